"""Compiled code is cached where possible, and a missing cache never prevents a start."""

import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from dovetail import compilation


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the kernels and limits that stands in for the package."""
    folder = tmp_path / "package"
    package = compilation._PACKAGE
    for source in (*package.glob("*/kernels/*.py"), *package.glob("**/limits.py")):
        copied = folder / source.relative_to(package)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copied)
    monkeypatch.setattr(compilation, "_PACKAGE", folder)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def forbid(folder: Path) -> None:
    """Make a folder unusable, even for root: it becomes a file."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()


def test_a_change_of_any_kernel_or_limit_is_another_folder(sources: Path) -> None:
    before = compilation._cache_folder()
    assert compilation._cache_folder() == before
    assert before.parent == sources / "__pycache__"
    with (sources / "topics" / "kernels" / "hashing.py").open("a") as file:
        file.write("# changed\n")
    changed = compilation._cache_folder()
    assert changed != before
    (sources / "topics" / "limits.py").write_text("BANK_BLOCK_TOPICS = 5\n")
    assert compilation._cache_folder() not in {before, changed}


def test_an_installation_that_may_not_be_written_to(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(sources / "__pycache__")
    assert compilation._cache_folder().parent == tmp_path / "home" / ".cache" / "dovetail"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert compilation._cache_folder().parent == tmp_path / "cache" / "dovetail"


def test_a_user_without_a_home_still_starts(sources: Path, tmp_path: Path) -> None:
    forbid(sources / "__pycache__")
    forbid(tmp_path / "home")
    folder = compilation._cache_folder()
    assert folder.name.startswith("dovetail-")
    assert folder.stat().st_mode & 0o077 == 0  # its files are executed
    shutil.rmtree(folder)


def test_only_our_own_old_folders_are_removed(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = compilation._cache_folder()
    old = current.with_name("compiled-0123")
    other = current.with_name("precious")
    for folder in (old, other):
        folder.mkdir()
    monkeypatch.setattr(compilation, "_FOLDER", current)
    compilation.remove_stale()
    assert sorted(sources.joinpath("__pycache__").iterdir()) == sorted([current, other])
    shared = tmp_path / "shared"
    (shared / "compiled-somebody-elses").mkdir(parents=True)
    for chosen in (shared / "compiled-ours", None):
        monkeypatch.setattr(compilation, "_FOLDER", chosen)
        compilation.remove_stale()
    assert (shared / "compiled-somebody-elses").exists()


def test_other_users_of_numba_keep_their_folder() -> None:
    assert str(compilation._FOLDER) != numba.config.CACHE_DIR  # type: ignore[attr-defined]


USE_EVERYTHING = """
import sys
from numba.core.dispatcher import Dispatcher
from dovetail.warmup import warm

def met():
    kernels = [
        value
        for name, module in sorted(sys.modules.items())
        if name.startswith("dovetail.") and ".kernels." in name
        for value in vars(module).values()
        if isinstance(value, Dispatcher)
    ]
    return {(kernel.py_func, types) for kernel in kernels for types in kernel.overloads}

warm()
before = met()
assert before

from dovetail.sim import workload
from dovetail.attributes.box_index import BoxIndex
from dovetail.topics.bank import SketchBank
from dovetail.topics.topic_column import TopicColumn
from dovetail.topics.sketches import METHODS, LinesSketch, build_sketch
from dovetail.topics.trie import FilterTrie

many = [f"{i}/+/{i}" for i in range(5000)]
for method in METHODS:
    sketch = build_sketch(method, TopicColumn.of(many), lineage=1)
    sketch.add("x/#"); sketch.discard("x/#"); sketch.search("1/x/1")
    sketch.copy().merge(sketch.copy()); sketch.delta(0)
    sketch.resized(4096, sketch.geometry.hashes)
bank = SketchBank()
for peer in range(70):
    bank.put(peer, LinesSketch(1024, lineage=1))
    bank.search("a/b")
trie = FilterTrie()
for i, topic_filter in enumerate(many): trie[topic_filter] = i
for topic_filter in many: trie.match("1/x/1"); del trie[topic_filter]
index = BoxIndex(*workload.bounds())
for box in range(3): index.insert(*workload.boxes(1, seed=box))
lows, highs = workload.boxes(300)
lows.flags.writeable = highs.flags.writeable = False
index.insert(lows, highs); index.insert(lows[:1], highs[:1]); index.insert(lows[::2], highs[::2])
index.match(workload.points(10), mask=1); index.count(workload.points(10))
index.discard([0])
assert met() == before, met() - before
"""


def test_set_up_leaves_nothing_to_compile() -> None:
    """Use everything after `warm`: no kernel may get types that are new to it.

    A new type counts whether it is compiled now or was cached: so the test needs no empty folder.
    """
    run("-c", USE_EVERYTHING)


KILLED = """
import os
import signal
from multiprocessing import parent_process
from dovetail import warmup

def one():
    if parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    print("one", flush=True)

def other():
    print("other", flush=True)

warmup._USES = (one, other)
if __name__ == "__main__":
    warmup.main()
"""


def test_a_set_up_without_memory_for_two_processes(tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    assert run(str(program)).splitlines()[:-1] == ["other", "one", "other"]
