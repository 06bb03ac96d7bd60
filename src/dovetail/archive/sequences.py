"""Arithmetic on the sequences of a broker's rows, and on the offsets of readers. Pure.

A broker's sequences rise by one with each row while it runs, and continue higher up after a start.
So its rows form a few **runs**: ranges from the first to the last sequence without a gap. An
**offset** is the last sequence that a reader has read, or 0 at first. Reading from one offset to
the next, in pieces of any size, gives each row once.

Runs are sorted and do not overlap. The distance of two offsets means nothing: between two lives of
a broker there may be billions of unused sequences.
"""

from collections.abc import Iterable, Mapping, Sequence

Run = tuple[int, int]
"""The first and the last sequence."""


def merge_runs(ranges: Iterable[Run]) -> list[Run]:
    """Merge sorted ranges that follow each other without a gap."""
    runs: list[Run] = []
    for first, last in ranges:
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
    return runs


def clip_runs(runs: Iterable[Run], after: int, upto: int | None = None) -> list[Run]:
    """Return the parts of runs above `after` and up to `upto`."""
    found = []
    for first, last in runs:
        low, high = max(first, after + 1), last if upto is None else min(last, upto)
        if low <= high:
            found.append((low, high))
    return found


def count_rows(runs: Iterable[Run]) -> int:
    return sum(last - first + 1 for first, last in runs)


def advance(runs: Iterable[Run], offset: int, rows: int) -> int:
    """Return the offset this many rows further on, or the last one if there are fewer rows."""
    for first, last in clip_runs(runs, offset):
        if rows <= 0:
            break
        offset = min(first + rows - 1, last)
        rows -= offset - first + 1
    return offset


def share_rows(waiting: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """Return how many rows to read from each broker, at most `rows_max` in all.

    All brokers get equal shares. What a broker does not need goes to the others.
    """
    shares = {}
    left = rows_max
    by_need = sorted(waiting, key=lambda name: (waiting[name], name))
    for number, name in enumerate(by_need):
        shares[name] = min(waiting[name], left // (len(by_need) - number))
        left -= shares[name]
    return shares


def split_runs(runs: Sequence[Run], rows_max: int) -> list[list[Run]]:
    """Split runs into pieces of about equal size, each of at most `rows_max` rows."""
    total = count_rows(runs)
    pieces = -(-total // rows_max)
    found: list[list[Run]] = []
    offset = 0
    for number in range(pieces):
        rows = total * (number + 1) // pieces - total * number // pieces
        end = advance(runs, offset, rows)
        found.append(clip_runs(runs, offset, end))
        offset = end
    return found
