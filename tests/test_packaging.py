"""The wheel: what is in it, and that it works in an environment with nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checkout import ROOT, SPARK_PACKAGES, copy_checkout, without_packages
from dovetail import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, which shows that that one is whole too."""
    source = copy_checkout(tmp_path_factory.mktemp("source") / "dovetail")
    # Without isolation, because the build backend is locked and here already.
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


def test_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    lock = tmp_path / "core.lock"
    runtime = (ROOT / "requirements" / "runtime.lock").read_text()
    lock.write_text(without_packages(runtime, SPARK_PACKAGES))
    # With the pip that is here: one more would have to be installed first.
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty"))
    python, program = (str(tmp_path / "empty" / "bin" / name) for name in ("python", "dovetail"))
    pip = (sys.executable, "-m", "pip", "--python", python)
    # Little of it is imported, and compiled then.
    install = (*pip, "install", "--quiet", "--no-compile")
    run(*install, "--require-hashes", "-r", str(lock))
    run(*install, "--no-deps", str(wheel))

    # The core dependencies of the wheel are all met by the lock, and name nothing of Spark.
    run(*pip, "check")
    assert run(program, "--version").stdout == f"dovetail {__version__}\n"
    filters, sketch = tmp_path / "filters", tmp_path / "sketch"
    filters.write_text("a/+\n")
    run(program, "sketch", "build", str(filters), "--out", str(sketch))
    assert run(program, "sketch", "search", str(sketch), "a/b").stdout.startswith("maybe")
    refused = run(program, "reproduce", "wildcard", status=2)
    assert "pyspark and pyarrow cannot be imported" in refused.stderr
    assert 'pip install "dovetail[spark]"' in refused.stderr


@pytest.mark.parametrize("name", ["runtime.lock", "dev.lock", "java.lock"])
def test_locks_name_no_index_and_no_machine(name: str) -> None:
    lock = (ROOT / "requirements" / name).read_text()
    assert "--hash=sha256:" in lock
    assert "//" not in lock
    assert "index-url" not in lock
    assert "find-links" not in lock


def test_development_pins_are_the_runtime_pins() -> None:
    def pins(name: str) -> set[str]:
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        return {line.partition(" ")[0] for line in lines if "==" in line and line[0].isalpha()}

    assert pins("runtime.lock") <= pins("dev.lock")
