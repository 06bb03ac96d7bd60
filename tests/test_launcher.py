"""./dovetail in copies of the checkout: real installs, and its refusals.

The installs are real, but of locks with the few packages that the command line imports:
scripts/test itself has just installed the others. test_setup.py has the stages.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import __version__
from support.processes.checkout import (
    COMMAND_PACKAGES,
    copy_checkout,
    only_packages,
    programs_without,
)
from support.processes.tiny_packages import Registry

VERSION_LINE = f"dovetail {__version__}\n"
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="dovetail test ") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def checkout(folder: Path) -> Path:
    copy = copy_checkout(folder / "a checkout")
    lock = copy / "requirements" / "broker.lock"
    lock.write_text(only_packages(lock.read_text(), COMMAND_PACKAGES))
    return copy


def environment(**changes: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "DOVETAIL_PYTHON"}
    return inherited | changes


def start(
    launcher: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Start from a working directory that is not the checkout."""
    done = subprocess.run(
        [launcher, *(arguments or ("--version",))],
        cwd="/",
        env=env or environment(),
        user=user,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    skip_without_registry(done.stderr, env)
    return done


def begin(launcher: Path, stdout: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [launcher, "--version"],
        cwd="/",
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        process_group=0,
    )


def interrupt(launcher: Path, step: str) -> None:
    """Kill a start within a step."""
    killed = begin(launcher)
    assert killed.stderr is not None
    for line in killed.stderr:
        if step in line:
            break
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()


def skip_without_registry(errors: str, env: dict[str, str] | None = None) -> None:
    if env is None and "cannot reach the package registry" in errors:
        pytest.skip("no package registry can be reached from here")


def assert_refused(done: subprocess.CompletedProcess[str], *sentences: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    for sentence in sentences:
        assert sentence in done.stderr
    errors = done.stderr[done.stderr.index("dovetail: error: ") :]
    assert len(errors.splitlines()) <= 2


class TestSetUp:
    def test_from_an_interrupted_start_to_changed_locks(self, folder: Path, checkout: Path) -> None:
        """One set-up serves all steps: each set-up would take half a minute."""
        link = folder / "link"
        link.symlink_to(Path("a checkout", "dovetail"))
        interrupt(link, "installing packages")
        assert (checkout / ".venv" / "bin" / "python").exists()

        # One of two processes goes on with it.
        both = [begin(link, stdout=subprocess.PIPE) for _ in range(2)]
        outcomes = [process.communicate() for process in both]
        for _, errors in outcomes:
            skip_without_registry(errors)
        assert [output for output, _ in outcomes] == [VERSION_LINE, VERSION_LINE], outcomes
        installed = "Setting up Dovetail (first run): installing packages for a broker"
        assert sum(installed in errors for _, errors in outcomes) == 1
        # The first may have to wait, too, until the last killed process is gone.
        assert any("waiting for it" in errors for _, errors in outcomes)

        warm = start(link)
        assert (warm.returncode, warm.stdout, warm.stderr) == (0, VERSION_LINE, "")

        broker = checkout / "requirements" / "broker.lock"
        with broker.open("a") as lock:
            lock.write("# changed\n")
        updated = start(link)
        assert (updated.returncode, updated.stdout) == (0, VERSION_LINE)
        assert "Setting up Dovetail (update)" in updated.stderr
        assert start(link).stderr == ""

        # A command that needs more installs it, once.
        registry = Registry(folder / "registry")
        entry = registry.add("pyarrow", code='raise SystemExit("an archive is read")')
        archive = checkout / "requirements" / "archive.lock"
        archive.write_text(broker.read_text() + entry)
        local = environment(**registry.environment)
        first, second = (start(link, "compact", "/", env=local) for _ in range(2))
        assert "Setting up Dovetail (first use of the archive)" in first.stderr
        assert first.stderr.endswith("an archive is read\n")
        assert second.stderr == "an archive is read\n"

    def test_moved_folder_is_set_up_again(self, folder: Path, checkout: Path) -> None:
        # Programs in .venv/bin have the old path in them.
        state = checkout / ".venv" / "dovetail-setup"
        state.mkdir(parents=True)
        (state / "folder").write_text("/elsewhere\n")
        (state / "broker").write_text("a stamp of another place\n")
        (checkout / ".venv" / "left over").touch()
        # It gets as far as making a new one.
        unable = folder / "python3"
        unable.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
        unable.chmod(0o755)
        refused = start(checkout / "dovetail", env=environment(DOVETAIL_PYTHON=str(unable)))
        assert_refused(refused, "set-up failed while making .venv", "Log: ")
        assert "first run" in refused.stderr
        assert not (checkout / ".venv" / "left over").exists()


class TestRefusals:
    def test_python_is_too_old(self, folder: Path, checkout: Path) -> None:
        path = programs_without(folder / "programs", "python", "uv")
        old = folder / "programs" / "python3"
        old.write_text("#!/bin/sh\ncase $2 in *platform*) echo 3.9.2 ;; *) exit 1 ;; esac\n")
        old.chmod(0o755)
        assert_refused(
            start(checkout / "dovetail", env=environment(PATH=path)),
            "needs Python 3.11 to 3.14; found 3.9.2",
            "DOVETAIL_PYTHON",
        )
        assert_refused(
            start(checkout / "dovetail", env=environment(DOVETAIL_PYTHON=str(old))),
            "DOVETAIL_PYTHON=",
            "is 3.9.2",
        )
        assert not (checkout / ".venv").exists()

    def test_no_python(self, folder: Path, checkout: Path) -> None:
        path = programs_without(folder / "programs", "python", "uv")
        assert_refused(
            start(checkout / "dovetail", env=environment(PATH=path)), "found no Python at all"
        )

    def test_registry_is_out_of_reach(self, folder: Path, checkout: Path) -> None:
        """A .venv that somebody else made survives."""
        (checkout / ".venv").mkdir()
        (checkout / ".venv" / "precious").touch()
        unreachable = environment(PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="1")
        unreachable["PATH"] = programs_without(folder / "programs", "uv")
        refused = start(checkout / "dovetail", env=unreachable)
        assert_refused(refused, "cannot reach the package registry", "Log: ")
        assert Path(refused.stderr.strip().rpartition("Log: ")[2]).is_file()
        assert [kept.name for kept in checkout.glob(".venv.*/precious")] == ["precious"]

    def test_folder_is_not_writable(self, checkout: Path) -> None:
        checkout.chmod(0o555)
        # Root may write anywhere, so root runs it as another user.
        user = NOBODY if os.geteuid() == 0 else None
        try:
            assert_refused(start(checkout / "dovetail", user=user), "is not writable by")
        finally:
            checkout.chmod(0o755)
