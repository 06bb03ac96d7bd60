"""Sequences of one broker's rows, and how far a reader is: arithmetic, and nothing else.

A broker's sequences rise by one with each row while it runs, and go on higher up after a start. So
its rows are a few **runs** of sequences, from the first to the last, without a gap inside. An
**offset** is the sequence that a reader has read up to, 0 before anything. What it has not read of
a run is everything above its offset: reading from one offset to the next, in pieces of any kind,
gives each row once.

Runs are in their order and do not overlap. The distance of two offsets says nothing: between two
lives of a broker there may be billions of sequences that no row has.
"""

from collections.abc import Iterable, Mapping, Sequence

Run = tuple[int, int]
"""The first and the last sequence."""


def joined(ranges: Iterable[Run]) -> list[Run]:
    """Ranges in their order, those that follow each other without a gap put together."""
    runs: list[Run] = []
    for first, last in ranges:
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
    return runs


def between(runs: Iterable[Run], after: int, upto: int | None = None) -> list[Run]:
    """What of them is above an offset, and not above another."""
    found = []
    for first, last in runs:
        low, high = max(first, after + 1), last if upto is None else min(last, upto)
        if low <= high:
            found.append((low, high))
    return found


def rows_in(runs: Iterable[Run]) -> int:
    return sum(last - first + 1 for first, last in runs)


def advanced(runs: Iterable[Run], offset: int, rows: int) -> int:
    """The offset that so many rows further on is; the last there is, if there are fewer."""
    for first, last in between(runs, offset):
        if rows <= 0:
            break
        offset = min(first + rows - 1, last)
        rows -= offset - first + 1
    return offset


def shared_out(waiting: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """How many rows of each broker are read, of so many in all.

    Each gets the same, and what one does not need is for the others.
    """
    shares = {}
    left = rows_max
    by_need = sorted(waiting, key=lambda name: (waiting[name], name))
    for number, name in enumerate(by_need):
        shares[name] = min(waiting[name], left // (len(by_need) - number))
        left -= shares[name]
    return shares


def cut(runs: Sequence[Run], rows_max: int) -> list[list[Run]]:
    """In pieces of at most so many rows, as even as that goes."""
    total = rows_in(runs)
    pieces = -(-total // rows_max)
    found: list[list[Run]] = []
    offset = 0
    for number in range(pieces):
        rows = total * (number + 1) // pieces - total * number // pieces
        end = advanced(runs, offset, rows)
        found.append(between(runs, offset, end))
        offset = end
    return found
