"""Compiled code: kept where it may be kept, and never a reason not to start."""

import shutil
from pathlib import Path

import pytest

from dovetail.topics.kernels import compiling


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the kernels, taken for the kernels."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for source in compiling._SOURCES.glob("*.py"):
        shutil.copy(source, folder)
    monkeypatch.setattr(compiling, "_SOURCES", folder)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def forbid(folder: Path) -> None:
    """Nothing can be made below it. Root may write anywhere, but not below a file."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()


def test_a_change_of_any_kernel_is_another_folder(sources: Path) -> None:
    before = compiling._cache_folder()
    assert compiling._cache_folder() == before
    assert before.parent == sources / "__pycache__"
    with (sources / "hashing.py").open("a") as file:
        file.write("# changed\n")
    assert compiling._cache_folder() != before


def test_an_installation_that_may_not_be_written_to(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(sources / "__pycache__")
    assert compiling._cache_folder().parent == tmp_path / "home" / ".cache" / "dovetail"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert compiling._cache_folder().parent == tmp_path / "cache" / "dovetail"


def test_a_user_without_a_home_still_starts(sources: Path, tmp_path: Path) -> None:
    forbid(sources / "__pycache__")
    forbid(tmp_path / "home")
    folder = compiling._cache_folder()
    assert folder.name.startswith("dovetail-")
    assert folder.stat().st_mode & 0o077 == 0  # what lies there is run: nobody else's business
    shutil.rmtree(folder)
