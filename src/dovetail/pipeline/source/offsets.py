"""What a stream reads next, and how it is cut into tasks: offsets to offsets. No Spark, no network.

An offset of a stream is that of each broker (archive/sequences.py), as in `{"b1": 17, "b2": 4}`:
what it has read up to. A broker that is not in it has not been read at all. Rules:

- A batch is what lies between two offsets. Planned again, after a kill, it has the same rows.
- Of a broker that is away nothing is planned: its offset stays, and nothing of it is lost.
- Rows that were not read and are gone are a fault, or are passed over if the user says so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.archive.sequences import Run, advanced, between, cut, rows_in, shared_out
from dovetail.errors import DovetailError
from dovetail.pipeline.source.archives import Waiting

Offsets = dict[str, int]


class LossError(DovetailError):
    """Rows are gone that nobody has read."""


class Task(NamedTuple):
    """Rows of one broker. Of one that is away it is not known how many there are in between."""

    broker: str
    runs: tuple[Run, ...]
    is_sure: bool = True


def first_offsets(found: Mapping[str, Waiting], start: str | Mapping[str, int]) -> Offsets:
    """Where a stream begins; a broker that comes later is read from its beginning."""
    if start == "latest":
        return {name: waiting.runs[-1][1] if waiting.runs else 0 for name, waiting in found.items()}
    return {} if isinstance(start, str) else dict(start)


def next_offsets(
    offsets: Mapping[str, int],
    found: Mapping[str, Waiting],
    rows_max: int | None,
    target: Mapping[str, int] | None = None,
) -> Offsets:
    """So many rows on, and not beyond the target, if there is one."""
    wanted = {
        name: between(waiting.runs, offsets.get(name, 0), None if target is None else target[name])
        for name, waiting in found.items()
        if target is None or name in target
    }
    counts = {name: rows_in(runs) for name, runs in wanted.items()}
    shares = counts if rows_max is None else shared_out(counts, rows_max)
    reached = dict(offsets)
    for name, runs in wanted.items():
        if shares[name]:
            reached[name] = advanced(runs, offsets.get(name, 0), shares[name])
    return reached


def check_losses(offsets: Mapping[str, int], found: Mapping[str, Waiting]) -> None:
    """A LossError if a broker has less than it had."""
    for name, waiting in found.items():
        offset = offsets.get(name, 0)
        if offset and waiting.earliest is not None and waiting.earliest > offset + 1:
            raise lost(name, offset, waiting.earliest)


def lost(broker: str, after: int, earliest: int | None) -> LossError:
    since = "it has none any more" if earliest is None else f"the first it has is {earliest}"
    return LossError(
        f"rows of {broker} above {after} were not read, and may be gone: {since}.",
        hint="Were files of the archive deleted? The option failOnDataLoss = false goes on without "
        "them.",
    )


def tasks_of(
    start: Mapping[str, int], end: Mapping[str, int], found: Mapping[str, Waiting], rows_max: int
) -> list[Task]:
    """For what is between two offsets."""
    tasks = []
    for name in sorted(end):
        after, upto = start.get(name, 0), end[name]
        if after >= upto:
            continue
        if name not in found:
            tasks.append(Task(name, ((after + 1, upto),), is_sure=False))
            continue
        runs = between(found[name].runs, after, upto)
        tasks += [Task(name, tuple(piece)) for piece in cut(runs, rows_max)]
    return tasks
