"""Compiles every kernel once, at set-up, so that no later start waits for a compiler.

Numba compiles a kernel when it is called. So this module makes the same calls as the service: each
signature in use is compiled, and no other one. A compiler uses one core, so the set-up runs two
processes. Only these import the kernels, which takes about a second: the process that starts them
would spend it before they begin.
"""

import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context

from dovetail.process.terminal import say

_FILTERS = ("a/+/c", "a/#", "+/b", "$SYS/#")
_TOPICS = ("a/b/c", "$SYS/x")


def warm() -> None:
    """Compile every kernel in this process."""
    for use in _USES:
        _run(use)


def _run(use: Callable[[], None]) -> None:
    from dovetail.compilation import remove_stale

    remove_stale()
    use()


def _use_sketches() -> None:
    import numpy as np

    from dovetail.attributes.kernels.ascending import make_ascending
    from dovetail.topics.bank import SketchBank
    from dovetail.topics.limits import BANK_PLAIN_MAX
    from dovetail.topics.sketches import METHODS, LinesSketch, build_sketch
    from dovetail.topics.topic_column import TopicColumn

    topics = TopicColumn.of(_TOPICS)
    # Enough to grow every table once.
    many = TopicColumn.of([*_FILTERS, *(f"{number}/x" for number in range(200))])
    for method in METHODS:
        sketch = build_sketch(method, many)
        sketch.search_column(topics)
        sketch.discard(_FILTERS[0])
        sketch.resized(2 * sketch.bits, sketch.geometry.hashes)
    bank = SketchBank[int]()
    sketch = LinesSketch.sized_for(8, 0.01, lineage=1)
    for peer in range(BANK_PLAIN_MAX + 1):  # in both shapes, and back
        bank.put(peer, sketch)
        bank.search_column(topics)
    sketch.add(_FILTERS[0])
    for peer in range(BANK_PLAIN_MAX + 1):
        bank.apply(BANK_PLAIN_MAX - peer, sketch.delta(0))
        bank.remove(BANK_PLAIN_MAX - peer)
    sketch.copy().apply(sketch.delta(0))
    numbers, words = np.zeros(2, np.int64), np.zeros(1, np.uint64)
    make_ascending(numbers, numbers[:0], words, words[:], numbers[:])


def _use_the_rest() -> None:
    from dovetail.attributes.box_index import BoxIndex
    from dovetail.broker import delivery
    from dovetail.broker.kernel_loader import load_kernels
    from dovetail.matcher import held_boxes
    from dovetail.sim import workload
    from dovetail.topics.trie import FilterTrie

    load_kernels()
    delivery.load_kernels()
    trie = FilterTrie[str]()
    for number in range(100):
        trie[f"{number:020}/+/#"] = ""
        trie.match(_TOPICS[0])
        del trie[f"{number:020}/+/#"]
        trie[f"x/{number:020}"] = ""
    index = BoxIndex(*workload.bounds())
    slots = index.insert(*workload.boxes(10_000))  # more than there is room for at first
    index.match(workload.points(1))
    index.count(workload.points(1), mask=1)
    index.discard(slots)
    held_boxes.load_kernels()


# Both take about the same time. Kernels that both need are compiled twice, with the same result: it
# does not matter which copy is kept.
_USES = (_use_sketches, _use_the_rest)


def _warm_in_processes() -> bool:
    """Do the same as `warm`, with one process per group. Return True if all succeeded."""
    start = get_context("spawn").Process
    processes = [start(target=_run, args=(use,), daemon=True) for use in _USES]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return all(process.exitcode == 0 for process in processes)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # child processes end, too
    started = time.monotonic()
    # If a child was killed, memory may be too small for two. Compiled kernels are kept, and
    # this process compiles the rest. If a child failed, this process fails too and shows why.
    if not _warm_in_processes():
        warm()
    say(f"kernels are compiled ({time.monotonic() - started:.1f} s)")


if __name__ == "__main__":
    main()
