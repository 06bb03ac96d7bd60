"""A task of a serving stream: rows of one publishing broker, to the brokers of who wants them.

    rows, read over HTTP -> floors -> Wanting: who wants each -> Handing: to their brokers

Rows come right from their broker, and not through Spark: that is shorter by two copies, and a task
need not fail because a broker is away. Spark would do it again; it says instead what was not read,
and who is behind.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast, TaskContext

from dovetail.api.engine import Matched
from dovetail.api.http_client import NoAnswerError
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import Spaces
from dovetail.errors import DovetailError
from dovetail.pipeline.serve.broker_client import Brokers, Target
from dovetail.pipeline.serve.clause_matcher import Wanting
from dovetail.pipeline.serve.clause_shipment import Part, Shipment
from dovetail.pipeline.serve.handover import Handing, Moves
from dovetail.pipeline.source.archives import Place

COLUMNS = (
    "broker",
    "sequence",
    "topic",
    "payload",
    "qos",
    "retain",
    "attributes",
    "texts",
    "stream",
)
"""Of the archive, that a task needs."""

TOLD_DDL = "kind string, name string, publisher string, number bigint"
_TOLD = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("publisher", pa.string()),
        ("number", pa.int64()),
    ]
)

BEHIND = "behind"
"""A broker has not got its share of a publisher's rows from a sequence on."""
UNREAD = "unread"
"""A publisher's rows could not be read."""
SPACE = "space"
"""Rows of a space that is not served; empty: of no space that is known."""
ROWS = "rows"
DELIVERIES = "deliveries"
"""How many."""

_TOPICS_KEPT = 1 << 16


@dataclass(frozen=True)
class Job:
    """What a task needs to know."""

    engine: str
    brokers: Brokers
    spaces: tuple[Space, ...]
    shipment: Shipment
    """Without its base where that is a broadcast."""
    served: frozenset[str]
    """Spaces whose lists are in the shipment; rows of others are told of."""
    wait_seconds: float
    base: "Broadcast[Part] | None" = None
    floors: Mapping[Target, int] = field(default_factory=dict)
    """By space and publisher: rows up to here were served by an earlier stream."""
    behind: frozenset[tuple[str, str]] = frozenset()
    """Owner and publisher: of whose rows it gets nothing now."""
    only_owner: str | None = None
    only_spaces: frozenset[str] | None = None
    """Nothing for others."""
    doubtful: Mapping[Target, frozenset[int]] = field(default_factory=dict)
    """Ids that came to a broker while rows were handed over that are handed over again."""

    def with_broadcast(self, base: "Broadcast[Part]") -> "Job":
        empty = replace(self.shipment, base=Part(b"", (), ()))
        return replace(self, shipment=empty, base=base)


class Range(NamedTuple):
    """Rows of one publishing broker."""

    publisher: str
    after: int
    upto: int


def serve_ranges(
    batches: Iterable[pa.RecordBatch], *, ranges: Sequence[Range], place: Place, job: Job
) -> Iterator[pa.RecordBatch]:
    """What a task does. Rows of Spark's have the `id` of a range."""
    context = TaskContext.get()
    is_again = context is not None and context.attemptNumber() > 0
    for batch in batches:
        for number in batch["id"].to_pylist():
            yield serve_range(ranges[number], place, job, is_again=is_again)


def serve_range(one: Range, place: Place, job: Job, *, is_again: bool = False) -> pa.RecordBatch:
    rows = place.rows(one.publisher, one.after, one.upto, job.wait_seconds)
    due = (some.filter(pc.is_valid(some["stream"])).select(COLUMNS) for some in rows)
    try:
        return Task(job, is_again=is_again).run(due)
    except UnreadError:
        return _told([(UNREAD, "", one.publisher, 0)])


class UnreadError(DovetailError):
    """Rows could not be read, as their broker is away."""


class Task:
    """One attempt at it."""

    def __init__(self, job: Job, *, is_again: bool = False) -> None:
        self._job = job
        shipment = job.shipment
        base = shipment.base if job.base is None else job.base.value
        self._wanting = Wanting(shipment, base, job.spaces)
        self._handing = Handing(
            job.brokers,
            job.engine,
            Moves(job.brokers, shipment.marks, shipment.spares),
            wait_seconds=job.wait_seconds,
            is_again=is_again,
        )
        self._targets = [target if self._is_wanted(target) else None for target in shipment.targets]
        self._governing = lru_cache(_TOPICS_KEPT)(self._space_name)
        self._spaces = Spaces(job.spaces)
        self._strange: set[str] = set()
        self._rows = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """What it tells, in the columns of TOLD_DDL."""
        rows = iter(batches)
        while True:
            try:
                batch = next(rows, None)
            except NoAnswerError as error:
                raise UnreadError(error.message) from error
            if batch is None:
                break
            self._serve(batch)
        self._handing.finish()
        return self._report()

    def _is_wanted(self, target: Target) -> bool:
        owner, spaces = self._job.only_owner, self._job.only_spaces
        return (owner is None or target.broker == owner) and (
            spaces is None or target.space in spaces
        )

    def _space_name(self, topic: str) -> str:
        space = self._spaces.governing(topic.encode())
        return "" if space is None else space.name

    def _serve(self, batch: pa.RecordBatch) -> None:
        coded = batch["topic"].dictionary_encode()
        names = [self._governing(topic) for topic in coded.dictionary.to_pylist()]
        self._strange.update(name for name in names if name not in self._job.served)
        spaces = pa.array(names, pa.string()).take(coded.indices)
        batch = batch.filter(pa.array(self._is_due(batch, spaces)))
        self._rows += len(batch)
        publications = _publications(batch)
        for wanted in self._wanting.match(batch):
            target, matched = self._targets[wanted.target], publications[wanted.row]
            if target is not None and (target.broker, matched.broker) not in self._job.behind:
                self._hand(target, matched, wanted.ids)

    def _is_due(self, batch: pa.RecordBatch, spaces: pa.Array) -> np.ndarray[Any, Any]:
        """Which rows are above their floors."""
        sequences = batch["sequence"].to_numpy()
        due = np.ones(len(batch), np.bool_)
        for publisher in pc.unique(batch["broker"]).to_pylist():
            own = pc.equal(batch["broker"], publisher).to_numpy(zero_copy_only=False)
            for target, floor in self._job.floors.items():
                if target.broker == publisher and floor:
                    within = pc.equal(spaces, target.space).to_numpy(zero_copy_only=False)
                    due &= ~(own & within) | (sequences > floor)
        return due

    def _hand(self, target: Target, matched: Matched, ids: list[int]) -> None:
        doubtful = self._job.doubtful.get(target, frozenset())
        sure = [number for number in ids if number not in doubtful] if doubtful else ids
        if sure:
            self._handing.add(target, msgspec.structs.replace(matched, ids=sure))
        if len(sure) < len(ids):
            moved = [number for number in ids if number in doubtful]
            self._handing.add(target, msgspec.structs.replace(matched, ids=moved), is_moved=True)

    def _report(self) -> pa.RecordBatch:
        told: list[tuple[str, str, str, int]] = [
            (BEHIND, owner, publisher, sequence)
            for (owner, publisher), sequence in self._handing.behind.items()
        ]
        told += [(SPACE, name, "", 0) for name in sorted(self._strange)]
        told += [(ROWS, "", "", self._rows), (DELIVERIES, "", "", self._handing.deliveries)]
        return _told(told)


def _told(told: Sequence[tuple[str, str, str, int]]) -> pa.RecordBatch:
    columns = zip(*told, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, _TOLD, strict=True)],
        schema=_TOLD,
    )


def _publications(batch: pa.RecordBatch) -> list[Matched]:
    """Rows as brokers take them, for nobody yet."""
    streams = batch["stream"]
    columns: list[list[Any]] = [
        batch["broker"].to_pylist(),
        batch["sequence"].to_pylist(),
        [topic.encode() for topic in batch["topic"].to_pylist()],
        batch["payload"].to_pylist(),
        batch["qos"].to_pylist(),
        batch["retain"].to_pylist(),
        [found or b"" for found in pc.struct_field(streams, "properties").to_pylist()],
        [
            None if microseconds is None else microseconds / 1e6
            for microseconds in pc.struct_field(streams, "expires").cast(pa.int64()).to_pylist()
        ],
        pc.struct_field(streams, "client").to_pylist(),
        [[] for _ in range(len(batch))],
    ]
    return [Matched(*row) for row in zip(*columns, strict=True)]
