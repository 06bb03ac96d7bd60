"""The wheel has the right contents, and works in an environment with nothing else."""

import re
import subprocess
import sys
import zipfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail import __version__
from dovetail.process.extras import Extra
from support.processes.checkout import ROOT, copy_checkout

STAGES = ("broker", "archive", "spark", "dev")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from the source distribution, which shows that it is complete, too."""
    source = copy_checkout(tmp_path_factory.mktemp("source") / "dovetail")
    # Without isolation, because the build backend is locked and installed.
    run(sys.executable, "-m", "build", "--no-isolation", str(source))
    (built,) = (source / "dist").glob("*.whl")
    assert len(list((source / "dist").glob("*.tar.gz"))) == 1
    return built


def run(*command: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = wheel.parent.parent / "src"
    expected = {str(file.relative_to(source)) for file in source.rglob("*.py")}
    assert expected <= names
    assert "dovetail/py.typed" in names
    assert f"dovetail-{__version__}.dist-info/licenses/LICENSE" in names
    assert {name.partition("/")[0] for name in names} == {
        "dovetail",
        f"dovetail-{__version__}.dist-info",
    }


def link_packages(lock: Path, site: Path) -> None:
    """Link the packages of a lock, as installed here, into another environment."""
    for name in re.findall(r"^([\w-]+)==", lock.read_text(), re.MULTILINE):
        with suppress(PackageNotFoundError):  # it is for another system
            files = distribution(name).files
            assert files is not None
            for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
                linked = site / top
                if not linked.exists():  # a Python that has two versions in its lock has one
                    linked.symlink_to(str(distribution(name).locate_file(top)))


def test_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    # With the present pip: another one would have to be installed first.
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty"))
    (site,) = (tmp_path / "empty" / "lib").glob("*/site-packages")
    link_packages(ROOT / "requirements" / "broker.lock", site)
    python, program = (str(tmp_path / "empty" / "bin" / name) for name in ("python", "dovetail"))
    pip = (sys.executable, "-m", "pip", "--python", python)
    # Little of it is imported, so do not compile it.
    run(*pip, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(wheel))

    # The wheel needs the packages of a broker, and nothing of Spark.
    run(*pip, "check")
    assert run(program, "--version").stdout == f"dovetail {__version__}\n"
    filters, sketch = tmp_path / "filters", tmp_path / "sketch"
    filters.write_text("a/+\n")
    run(program, "sketch", "build", str(filters), "--out", str(sketch))
    assert run(program, "sketch", "search", str(sketch), "a/b").stdout.startswith("maybe")
    refused = run(program, "reproduce", "wildcard", status=2)
    assert "pyspark and pyarrow cannot be imported" in refused.stderr
    assert 'pip install "dovetail[spark]"' in refused.stderr


@pytest.mark.parametrize("name", [*(f"{stage}.lock" for stage in STAGES), "java.lock"])
def test_locks_name_no_index_and_no_machine(name: str) -> None:
    lock = (ROOT / "requirements" / name).read_text()
    assert "--hash=sha256:" in lock
    assert "//" not in lock
    assert "index-url" not in lock
    assert "find-links" not in lock


def test_a_stage_has_the_pins_of_those_before_it() -> None:
    """So a stage changes no package that a running broker uses."""

    def pins(stage: str) -> set[str]:
        lines = (ROOT / "requirements" / f"{stage}.lock").read_text().splitlines()
        return {line.partition(" ")[0] for line in lines if "==" in line and line[0].isalpha()}

    for smaller, larger in pairwise(STAGES):
        assert pins(smaller) < pins(larger)


def test_stages_are_those_of_the_set_up() -> None:
    script = (ROOT / "scripts" / "setup.sh").read_text()
    assert f"\nstages='{' '.join(STAGES)}'\n" in script
    assert {extra.extra for extra in Extra} <= {*STAGES}
