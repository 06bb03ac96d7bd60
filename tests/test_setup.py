"""scripts/setup: the stages of the set-up, and interrupted ones.

Everything is real except the packages, which are tiny (support/processes/tiny_packages.py), and the
kernels.
"""

import copy
import os
import pty
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from support.processes.checkout import ROOT, programs_without
from support.processes.mounts import mount, small_disk
from support.processes.tiny_packages import Registry
from support.processes.unprivileged import NOBODY

NOTHING: Mapping[str, str] = {}
STAGES = ("broker", "archive", "spark", "dev")
SOURCES = (
    "__init__.py",
    "limits.py",
    "compilation.py",
    "topics/limits.py",
    "topics/kernels/trie.py",
)
MADE = "making .venv"
COMPILED = 'from pathlib import Path\nPath(__file__).with_name("compiled").open("a").write("x")\n'


class Checkout:
    """A project with the real set-up, a tiny package in each stage, and one for Java."""

    def __init__(self, folder: Path, registry: Registry, path: str) -> None:
        self.folder = folder
        self.registry = registry
        self.environment = os.environ | {"PATH": path}
        self.entries = {stage: registry.add(f"tiny_{stage}") for stage in STAGES}
        (folder / "scripts").mkdir(parents=True)
        for name in ("setup", "setup.sh"):
            shutil.copy2(ROOT / "scripts" / name, folder / "scripts")
        self.kernel.parent.mkdir(parents=True)
        for source in SOURCES:
            (folder / "src" / "dovetail" / source).touch()
        (folder / "src" / "dovetail" / "warmup.py").write_text(COMPILED)
        (folder / "requirements").mkdir()
        self.write_locks()
        (folder / "requirements" / "java.lock").write_text(registry.add("tiny_java"))

    def copy(self, folder: Path) -> "Checkout":
        """Copy the project to another place, as if it had been set up there."""
        other = copy.copy(self)
        other.entries = dict(self.entries)
        other.environment = dict(self.environment)
        other.folder = folder / self.folder.name
        other.registry = Registry(folder / "registry")
        shutil.copytree(self.registry.folder, other.registry.folder, dirs_exist_ok=True)
        shutil.copytree(self.folder, other.folder, symlinks=True)
        (other.state / "folder").write_text(f"{other.folder}\n")
        other.module("dovetail").parent.with_suffix(".pth").write_text(f"{other.folder}/src\n")
        return other

    @property
    def state(self) -> Path:
        return self.folder / ".venv" / "dovetail-setup"

    @property
    def kernel(self) -> Path:
        return self.folder / "src" / "dovetail" / "topics" / "kernels" / "trie.py"

    def write_locks(self) -> None:
        whole = "# a lock\n"
        for stage in STAGES:
            whole += self.entries[stage]
            (self.folder / "requirements" / f"{stage}.lock").write_text(whole)

    def change(self, stage: str, *, code: str = "", gate: Path | None = None) -> None:
        """Change a stage's package to another version, in all locks that have it."""
        self.entries[stage] = self.registry.add(f"tiny_{stage}", "2", code=code, gate=gate)
        self.write_locks()

    def begin(
        self,
        stage: str,
        changes: Mapping[str, str] = NOTHING,
        user: int | None = None,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start a set-up, with `changes` of the environment."""
        return subprocess.Popen(
            [self.folder / "scripts" / "setup", stage],
            cwd="/",
            env={**self.environment, **self.registry.environment, **changes},
            user=user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            process_group=0,
        )

    def set_up(
        self,
        stage: str,
        changes: Mapping[str, str] = NOTHING,
        user: int | None = None,
        status: int = 0,
    ) -> str:
        """Run a set-up; return its output."""
        process = self.begin(stage, changes, user)
        _, errors = process.communicate()
        assert process.returncode == status, errors
        return errors

    def refuse(
        self,
        stage: str,
        *sentences: str,
        changes: Mapping[str, str] = NOTHING,
        user: int | None = None,
    ) -> None:
        errors = self.set_up(stage, changes, user, status=2)
        for sentence in sentences:
            assert sentence in errors
        assert len(errors[errors.index("dovetail: error: ") :].splitlines()) <= 2

    def packages(self) -> set[str]:
        """Return the packages that can be imported and are complete."""
        program = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
        python = self.folder / ".venv" / "bin" / "python"
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
        return {
            name.replace("-", "_").removeprefix("tiny_")
            for name in done.stdout.split()
            if self.module(name).is_file()
        }

    def module(self, name: str) -> Path:
        (site,) = (self.folder / ".venv" / "lib").glob("*/site-packages")
        return site / name.replace("-", "_") / "__init__.py"

    def compilations(self) -> int:
        return len((self.folder / "src" / "dovetail" / "compiled").read_text())


def pass_gate(gate: Path, process: subprocess.Popen[str]) -> int:
    """Wait until a package is being built; return the file to close to let it go on."""
    while process.poll() is None:
        with suppress(OSError):  # there is no reader yet
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.01)
    raise AssertionError("it never came to the package")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH with Java and without uv, which does not read pip's configuration."""
    folder = tmp_path_factory.mktemp("path") / "programs"
    found = programs_without(folder, "uv", "java")
    (folder / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    (folder / "java").chmod(0o755)
    return found


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory, path: str) -> dict[str, Checkout]:
    """Make one project with the broker's stage and one with Spark; tests copy them."""
    folder = tmp_path_factory.mktemp("templates")
    checkout = Checkout(folder / "a checkout", Registry(folder / "registry"), path)
    checkout.set_up("broker")
    broker = checkout.copy(folder / "broker")
    checkout.set_up("spark")
    return {"broker": broker, "spark": checkout}


@pytest.fixture
def checkout(tmp_path: Path, path: str) -> Checkout:
    """Return a project without any set-up."""
    return Checkout(tmp_path / "a checkout", Registry(tmp_path / "registry"), path)


@pytest.fixture
def with_broker(tmp_path: Path, templates: dict[str, Checkout]) -> Checkout:
    return templates["broker"].copy(tmp_path)


@pytest.fixture
def with_spark(tmp_path: Path, templates: dict[str, Checkout]) -> Checkout:
    return templates["spark"].copy(tmp_path)


@pytest.fixture
def folder_for_all() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="dovetail test ") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


class TestStages:
    def test_each_has_those_before_it(self, checkout: Checkout) -> None:
        said = checkout.set_up("broker")
        assert f"(first run): {MADE}" in said
        assert "up to 90 MB to download" in said
        assert checkout.packages() == {"broker"}
        assert checkout.set_up("broker") == ""

        said = checkout.set_up("spark")
        assert "(first use of Spark): installing packages for Spark" in said
        assert MADE not in said
        assert checkout.packages() == {"broker", "archive", "spark"}
        for stage in ("broker", "archive", "spark"):
            assert checkout.set_up(stage) == ""
        assert checkout.compilations() == 1

    def test_all_at_once(self, checkout: Checkout) -> None:
        checkout.set_up("dev")
        assert checkout.packages() == {*STAGES, "java"}
        assert checkout.compilations() == 1
        assert [checkout.set_up(stage) for stage in STAGES] == [""] * len(STAGES)

    def test_a_machine_without_java_gets_one(self, with_broker: Checkout, tmp_path: Path) -> None:
        without = {"PATH": programs_without(tmp_path / "programs", "uv", "java"), "JAVA_HOME": ""}
        assert "installing a Java runtime" in with_broker.set_up("spark", without)
        assert "java" in with_broker.packages()

    def test_a_stage_that_is_not_there(self, checkout: Checkout) -> None:
        checkout.refuse("sparc", "there is no stage named sparc", "broker archive spark dev")
        assert not checkout.state.exists()

    def test_an_update_installs_only_the_stages_in_use(self, with_spark: Checkout) -> None:
        with_spark.change("spark", code="new = True")
        assert with_spark.set_up("broker") == ""
        assert "(update): installing packages for Spark" in with_spark.set_up("spark")
        assert with_spark.module("tiny_spark").read_text() == "new = True"

        # A change of a common package reaches each stage at its next use.
        with_spark.change("broker", code="new = True")
        assert "(update): installing packages for a broker" in with_spark.set_up("broker")
        assert with_spark.module("tiny_broker").read_text() == "new = True"
        assert "installing packages for Spark" in with_spark.set_up("spark")
        assert with_spark.set_up("archive") == ""

    def test_kernels_are_compiled_when_their_sources_change(self, with_spark: Checkout) -> None:
        with_spark.kernel.write_text("# changed\n")
        said = with_spark.set_up("broker")
        assert "compiling kernels" in said
        assert "installing" not in said
        assert with_spark.compilations() == 2
        assert with_spark.set_up("spark") == ""

    def test_progress_is_shown(self, with_broker: Checkout, tmp_path: Path) -> None:
        with_broker.change("archive", gate=tmp_path / "gate")
        terminal, stderr = pty.openpty()
        process = with_broker.begin("archive", {"TERM": "xterm"}, stderr=stderr)
        os.close(stderr)
        held = pass_gate(tmp_path / "gate", process)
        said = b""
        while b" MB, " not in said:
            said += os.read(terminal, 1_000)
        assert b"package 1 of 1, 0 of about 55 MB, " in said
        os.close(held)
        assert process.wait() == 0
        os.close(terminal)


class TestDisturbed:
    def test_killed_while_it_downloads(self, with_broker: Checkout, tmp_path: Path) -> None:
        with_broker.change("spark", gate=tmp_path / "gate")
        killed = with_broker.begin("spark")
        held = pass_gate(tmp_path / "gate", killed)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        os.close(held)
        # A broker is not affected.
        assert with_broker.set_up("broker") == ""
        assert with_broker.packages() == {"broker"}

        # Two set-ups go on, each with its own stage; the larger one waits at the gate.
        both = [with_broker.begin(stage) for stage in ("archive", "spark")]
        os.close(pass_gate(tmp_path / "gate", both[1]))
        for process in both:
            _, errors = process.communicate()
            assert process.returncode == 0, errors
            assert MADE not in errors
        assert with_broker.packages() == {"broker", "archive", "spark"}
        assert not list(with_broker.state.glob("work.*"))

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_stopped_while_it_downloads(
        self, with_broker: Checkout, tmp_path: Path, number: signal.Signals
    ) -> None:
        with_broker.change("archive", gate=tmp_path / "gate")
        stopped = with_broker.begin("archive")
        held = pass_gate(tmp_path / "gate", stopped)
        stopped.send_signal(number)
        assert stopped.wait() == 128 + number
        os.close(held)
        assert not list(with_broker.state.glob("work.*"))
        assert with_broker.set_up("broker") == ""
        assert with_broker.packages() == {"broker"}

    def test_killed_while_it_installs(self, with_spark: Checkout) -> None:
        # It leaves the last package without its last files, and no stamp.
        module = with_spark.module("tiny_spark")
        module.unlink()
        (module.parents[1] / "tiny_spark-1.dist-info" / "INSTALLER").unlink()
        (with_spark.state / "spark").unlink()
        assert with_spark.set_up("broker") == ""
        assert with_spark.set_up("archive") == ""
        assert "first use of Spark" in with_spark.set_up("spark")
        assert with_spark.packages() == {"broker", "archive", "spark"}

    def test_killed_while_it_makes_the_environment(self, with_broker: Checkout) -> None:
        for name in ("folder", "broker"):
            (with_broker.state / name).unlink()
        (with_broker.folder / ".venv" / "left over").touch()
        assert MADE in with_broker.set_up("broker")
        assert not (with_broker.folder / ".venv" / "left over").exists()

    def test_different_stages_begin_at_once(self, checkout: Checkout) -> None:
        processes = [checkout.begin(stage) for stage in ("spark", "broker", "archive")]
        said = [process.communicate()[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], said
        assert sum(MADE in errors for errors in said) == 1
        assert sum("waiting for it" in errors for errors in said) >= 1
        assert checkout.packages() == {"broker", "archive", "spark"}
        assert checkout.compilations() == 1

    @pytest.mark.parametrize("template", ["broker", "spark"])
    def test_no_network(
        self, templates: dict[str, Checkout], tmp_path: Path, template: str
    ) -> None:
        """Without a network, a new stage and an update change nothing, and all still works."""
        checkout = templates[template].copy(tmp_path)
        stamps = [file for file in checkout.state.iterdir() if file.name != "log"]
        before = [stamp.read_text() for stamp in stamps]
        checkout.change("spark")
        unreachable = {
            "PIP_NO_INDEX": "0",
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": "http://127.0.0.1:9/",
            "PIP_RETRIES": "1",
        }
        checkout.refuse("spark", "cannot reach the package registry", "Log: ", changes=unreachable)
        assert [stamp.read_text() for stamp in stamps] == before
        assert checkout.set_up("broker") == ""
        checkout.set_up("spark")
        assert checkout.set_up("spark") == ""

    def test_a_disk_with_too_little_room(self, tmp_path: Path, path: str) -> None:
        with small_disk(tmp_path / "disk", 5_000_000) as disk:
            checkout = Checkout(disk / "a checkout", Registry(tmp_path / "registry"), path)
            checkout.refuse("broker", "the disk is full: ", "needs about 700 MB")
            assert not checkout.state.exists()

    def test_a_disk_that_fills_up(self, templates: dict[str, Checkout], tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", 10_000_000) as disk:
            checkout = templates["spark"].copy(disk)
            large = f"# {'x' * 20_000_000}"
            checkout.change("archive", code=large)
            checkout.refuse("archive", "the disk is full: ", "Log: ")
            assert checkout.set_up("broker") == ""
            mount("-o", "remount,size=100M", str(disk))
            (checkout.state / "archive").touch()  # as an update, which needs less room
            checkout.set_up("archive")
            assert checkout.module("tiny_archive").stat().st_size == len(large)

    def test_another_user_without_write_access(
        self, templates: dict[str, Checkout], folder_for_all: Path
    ) -> None:
        checkout = templates["broker"].copy(folder_for_all)
        python = checkout.folder / ".venv" / "bin" / "python"
        python.unlink()
        python.symlink_to("/bin/sh")  # the present one may be in root's own folder; it does not run
        files = [checkout.folder, *checkout.folder.rglob("*")]
        folders = [file for file in files if file.is_dir() and not file.is_symlink()]
        for folder in folders:
            folder.chmod(0o555)
        # Root may write anywhere, so root runs it as another user.
        user = NOBODY if os.geteuid() == 0 else None
        try:
            path = {"PATH": os.environ["PATH"]}  # ours is pytest's
            assert checkout.set_up("broker", path, user=user) == ""
            sentences = ("is not writable by", "Run `scripts/setup spark` once")
            checkout.refuse("spark", *sentences, changes=path, user=user)
        finally:
            for folder in folders:
                folder.chmod(0o755)
