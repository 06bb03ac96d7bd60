"""The offsets of a stream: which rows to read next, and their cut into tasks. No Spark, no network.

The offset of a stream has the offset of each broker (archive/sequences.py), as in
`{"b1": 17, "b2": 4}`. A broker that is missing there has not been read at all. Rules:

- A batch has the rows between two offsets. Planned again, after a kill, it has the same rows.
- While a broker is away, nothing is planned for it: its offset stays, and no row is lost.
- Unread rows that have vanished are an error, or are skipped if the user says so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.archive.sequences import Run, advance, clip_runs, count_rows, share_rows, split_runs
from dovetail.errors import DovetailError
from dovetail.pipeline.source.archives import AvailableRows

Offsets = dict[str, int]


class DataLossError(DovetailError):
    """Rows have vanished before the stream has read them."""


class ReadTask(NamedTuple):
    """Rows of one broker, for one task."""

    broker: str
    runs: tuple[Run, ...]
    is_sure: bool = True
    """False: the broker is away, and nobody knows how many rows the runs have."""


def first_offsets(found: Mapping[str, AvailableRows], start: str | Mapping[str, int]) -> Offsets:
    """Return where a stream begins. A broker that joins later is read from its beginning."""
    if start == "latest":
        return {name: waiting.runs[-1][1] if waiting.runs else 0 for name, waiting in found.items()}
    return {} if isinstance(start, str) else dict(start)


def next_offsets(
    offsets: Mapping[str, int],
    found: Mapping[str, AvailableRows],
    rows_max: int | None,
    target: Mapping[str, int] | None = None,
) -> Offsets:
    """Return the offsets at most `rows_max` rows further on, and not beyond `target`."""
    wanted = {
        name: clip_runs(
            waiting.runs, offsets.get(name, 0), None if target is None else target[name]
        )
        for name, waiting in found.items()
        if target is None or name in target
    }
    counts = {name: count_rows(runs) for name, runs in wanted.items()}
    shares = counts if rows_max is None else share_rows(counts, rows_max)
    reached = dict(offsets)
    for name, runs in wanted.items():
        if shares[name]:
            reached[name] = advance(runs, offsets.get(name, 0), shares[name])
    return reached


def check_data_loss(offsets: Mapping[str, int], found: Mapping[str, AvailableRows]) -> None:
    """Raise a DataLossError if a broker has lost rows above its offset."""
    for name, waiting in found.items():
        offset = offsets.get(name, 0)
        if offset and waiting.earliest is not None and waiting.earliest > offset + 1:
            raise data_loss(name, offset, waiting.earliest)


def data_loss(broker: str, after: int, earliest: int | None) -> DataLossError:
    since = "it has none any more" if earliest is None else f"the first it has is {earliest}"
    return DataLossError(
        f"rows of {broker} above {after} were not read, and may be gone: {since}.",
        hint="Were files of the archive deleted? The option failOnDataLoss = false goes on without "
        "them.",
    )


def read_tasks(
    start: Mapping[str, int],
    end: Mapping[str, int],
    found: Mapping[str, AvailableRows],
    rows_max: int,
) -> list[ReadTask]:
    """Return the tasks that read the rows between two offsets."""
    tasks = []
    for name in sorted(end):
        after, upto = start.get(name, 0), end[name]
        if after >= upto:
            continue
        if name not in found:
            tasks.append(ReadTask(name, ((after + 1, upto),), is_sure=False))
            continue
        runs = clip_runs(found[name].runs, after, upto)
        tasks += [ReadTask(name, tuple(piece)) for piece in split_runs(runs, rows_max)]
    return tasks
