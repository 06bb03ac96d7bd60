"""Measures contenders in turn, many times, with medians and with ratios of one run.

The machine is shared and its clock is not steady. Contenders take turns within each round, so that
a slow moment meets all of them; a ratio is the median over rounds of the ratio within a round.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from dovetail.papers.wildcard.simulation import Workload, as_column, draw_filters, draw_text
from dovetail.topics.topic_column import TopicColumn

LETTERS = 10
_missed: list[str] = []
PAPER = Workload(levels=10, wildcard_only=False)
"""Figure 6(b) at ten levels: 6,000 filters, half with wildcards, none of them wildcard-only."""


def in_turn(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each contender in each round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def median_and_range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def nanoseconds(seconds: Sequence[float], items: int) -> float:
    return statistics.median(seconds) / items * 1e9


def filters(rng: np.random.Generator, workload: Workload, count: int) -> TopicColumn:
    return as_column(*draw_filters(rng, workload, count, LETTERS))


def topics(rng: np.random.Generator, count: int, levels: int) -> TopicColumn:
    """Return random topics without a subscription."""
    return as_column(np.zeros((count, levels), np.uint8), draw_text(rng, (count, levels), LETTERS))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for row in (head, ["-" * width for width in widths], *rows):
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)))
    sys.stdout.flush()


def verdict(what: str, value: float, limit: float, *, at_most: bool) -> None:
    holds = value <= limit if at_most else value >= limit
    sign = "at most" if at_most else "at least"
    print(f"{'holds' if holds else 'MISSED'}: {what}: {value:.4g} ({sign} {limit:g})")
    if not holds:
        _missed.append(what)


def finish() -> None:
    """Exit with a code that tells whether all limits held."""
    sys.exit(1 if _missed else 0)
