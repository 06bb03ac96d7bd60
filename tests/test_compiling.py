"""Compiled code: kept where it may be kept, and never a reason not to start."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from dovetail import compiling, config


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's kernels, taken for the package."""
    folder = tmp_path / "package"
    for source in compiling._PACKAGE.glob("*/kernels/*.py"):
        copied = folder / source.relative_to(compiling._PACKAGE)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copied)
    monkeypatch.setattr(compiling, "_PACKAGE", folder)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def forbid(folder: Path) -> None:
    """Nothing can be made below it. Root may write anywhere, but not below a file."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()


def test_a_change_of_any_kernel_or_limit_is_another_folder(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compiling._cache_folder()
    assert compiling._cache_folder() == before
    assert before.parent == sources / "__pycache__"
    with (sources / "topics" / "kernels" / "hashing.py").open("a") as file:
        file.write("# changed\n")
    changed = compiling._cache_folder()
    assert changed != before
    limits = sources.parent / "config.py"
    limits.write_text("BANK_BLOCK_TOPICS = 5\n")
    monkeypatch.setattr(config, "__file__", str(limits))
    assert compiling._cache_folder() not in {before, changed}


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


def test_only_our_own_old_folders_are_removed(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = compiling._cache_folder()
    old = current.with_name("compiled-0123")
    other = current.with_name("precious")
    for folder in (old, other):
        folder.mkdir()
    monkeypatch.setattr(compiling, "_FOLDER", current)
    compiling.remove_stale()
    assert sorted(sources.joinpath("__pycache__").iterdir()) == sorted([current, other])
    shared = tmp_path / "shared"
    (shared / "compiled-somebody-elses").mkdir(parents=True)
    for chosen in (shared / "compiled-ours", None):
        monkeypatch.setattr(compiling, "_FOLDER", chosen)
        compiling.remove_stale()
    assert (shared / "compiled-somebody-elses").exists()


def test_other_users_of_numba_keep_their_folder() -> None:
    assert str(compiling._FOLDER) != numba.config.CACHE_DIR  # type: ignore[attr-defined]


def test_set_up_leaves_nothing_to_compile(tmp_path: Path) -> None:
    """Use everything after `warm`: no compiled file may be added."""
    use = (
        "import glob\n"
        "from dovetail.warm import warm\n"
        "warm()\n"
        f"before = set(glob.glob({str(tmp_path)!r} + '/**/*.nbc', recursive=True))\n"
        "assert before\n"
        "from dovetail.topics.bank import SketchBank\n"
        "from dovetail.topics.columns import Column\n"
        "from dovetail.topics.sketches import METHODS, LinesSketch, build_sketch\n"
        "from dovetail.topics.trie import FilterTrie\n"
        "many = [f'{i}/+/{i}' for i in range(5000)]\n"
        "for method in METHODS:\n"
        "    sketch = build_sketch(method, Column.of(many), lineage=1)\n"
        "    sketch.add('x/#'); sketch.discard('x/#'); sketch.search('1/x/1')\n"
        "    sketch.copy().merge(sketch.copy()); sketch.delta(0)\n"
        "    sketch.resized(4096, sketch.geometry.hashes)\n"
        "bank = SketchBank()\n"
        "for peer in range(70):\n"
        "    bank.put(peer, LinesSketch(1024, lineage=1))\n"
        "    bank.search('a/b')\n"
        "trie = FilterTrie()\n"
        "for i, topic_filter in enumerate(many): trie[topic_filter] = i\n"
        "for topic_filter in many: trie.match('1/x/1'); del trie[topic_filter]\n"
        f"after = set(glob.glob({str(tmp_path)!r} + '/**/*.nbc', recursive=True))\n"
        "assert after == before, after - before\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", use],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
