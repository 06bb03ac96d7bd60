"""A task of a serving stream: reads rows of one publishing broker, and delivers the matches.

    rows, read over HTTP -> floors -> ClauseMatcher -> DeliverySender -> the brokers of the clients

A task reads rows directly from their broker and not through Spark. That saves two copies, and the
task need not fail when a broker is away, which would make Spark repeat it. Instead it reports rows
that it could not read, and brokers that are behind.
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

from dovetail.api.engine import EngineMatch
from dovetail.api.http_client import NoAnswerError
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.errors import DovetailError
from dovetail.pipeline.serve.broker_client import BrokerClient, DeliveryTarget
from dovetail.pipeline.serve.clause_matcher import ClauseMatcher
from dovetail.pipeline.serve.clause_shipment import ClauseShipment, ClauseTable
from dovetail.pipeline.serve.delivery_sender import ClauseLocator, DeliverySender
from dovetail.pipeline.source.archives import RowSource

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
"""The columns of the archive that a task reads."""

REPORT_DDL = "kind string, name string, publisher string, number bigint"
_REPORT = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("publisher", pa.string()),
        ("number", pa.int64()),
    ]
)

BEHIND = "behind"
"""A broker has not received its matches of a publisher's rows from a sequence on."""
UNREAD = "unread"
"""A publisher's rows could not be read."""
SPACE = "space"
"""There were rows of a space that is not served. An empty name: the space is unknown."""
ROWS = "rows"
"""The number of rows that were served."""
DELIVERIES = "deliveries"
"""The number of deliveries that were made."""

_TOPICS_KEPT = 1 << 16


@dataclass(frozen=True)
class TaskSpec:
    """All that a task needs besides its rows."""

    engine: str
    brokers: BrokerClient
    spaces: tuple[Space, ...]
    shipment: ClauseShipment
    """Its base is empty if `base` is a broadcast."""
    served: frozenset[str]
    """Spaces whose lists are in the shipment. The task reports rows of other spaces."""
    wait_seconds: float
    base: "Broadcast[ClauseTable] | None" = None
    floors: Mapping[DeliveryTarget, int] = field(default_factory=dict)
    """By space and publisher: the sequence up to which an earlier stream has served the rows."""
    behind: frozenset[tuple[str, str]] = frozenset()
    """Pairs of owner and publisher: the owner gets none of the publisher's rows now."""
    only_owner: str | None = None
    """If set, deliver to this broker only."""
    only_spaces: frozenset[str] | None = None
    """If set, deliver matches of these spaces only."""
    doubtful: Mapping[DeliveryTarget, frozenset[int]] = field(default_factory=dict)
    """Ids that moved to a broker during a batch that is repeated now."""

    def with_broadcast(self, base: "Broadcast[ClauseTable]") -> "TaskSpec":
        empty = replace(self.shipment, base=ClauseTable(b"", (), ()))
        return replace(self, shipment=empty, base=base)


class RowRange(NamedTuple):
    """Rows of one publishing broker."""

    publisher: str
    after: int
    upto: int


def serve_ranges(
    batches: Iterable[pa.RecordBatch],
    *,
    ranges: Sequence[RowRange],
    row_source: RowSource,
    spec: TaskSpec,
) -> Iterator[pa.RecordBatch]:
    """Serve ranges of rows. The `id` of a Spark row is a position in `ranges`."""
    context = TaskContext.get()
    is_retry = context is not None and context.attemptNumber() > 0
    for batch in batches:
        for number in batch["id"].to_pylist():
            yield serve_rows(ranges[number], row_source, spec, is_retry=is_retry)


def serve_rows(
    one: RowRange, row_source: RowSource, spec: TaskSpec, *, is_retry: bool = False
) -> pa.RecordBatch:
    rows = row_source.rows(one.publisher, one.after, one.upto, spec.wait_seconds)
    due = (some.filter(pc.is_valid(some["stream"])).select(COLUMNS) for some in rows)
    try:
        return ServeTask(spec, is_retry=is_retry).run(due)
    except RowsUnavailableError:
        return _report_batch([(UNREAD, "", one.publisher, 0)])


class RowsUnavailableError(DovetailError):
    """Rows could not be read because their broker is away."""


class ServeTask:
    """One attempt at a task."""

    def __init__(self, spec: TaskSpec, *, is_retry: bool = False) -> None:
        self._spec = spec
        shipment = spec.shipment
        base = shipment.base if spec.base is None else spec.base.value
        self._matcher = ClauseMatcher(shipment, base, spec.spaces)
        self._sender = DeliverySender(
            spec.brokers,
            spec.engine,
            ClauseLocator(spec.brokers, shipment.versions, shipment.group_targets),
            wait_seconds=spec.wait_seconds,
            is_retry=is_retry,
        )
        self._targets = [
            target if self._is_selected(target) else None for target in shipment.targets
        ]
        self._governing = lru_cache(_TOPICS_KEPT)(self._space_name)
        self._spaces = SpaceRegistry(spec.spaces)
        self._unserved: set[str] = set()
        self._rows = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """Serve these rows, and return a report with the columns of REPORT_DDL."""
        rows = iter(batches)
        while True:
            try:
                batch = next(rows, None)
            except NoAnswerError as error:
                raise RowsUnavailableError(error.message) from error
            if batch is None:
                break
            self._serve(batch)
        self._sender.finish()
        return self._report()

    def _is_selected(self, target: DeliveryTarget) -> bool:
        owner, spaces = self._spec.only_owner, self._spec.only_spaces
        return (owner is None or target.broker == owner) and (
            spaces is None or target.space in spaces
        )

    def _space_name(self, topic: str) -> str:
        space = self._spaces.space_of_topic(topic.encode())
        return "" if space is None else space.name

    def _serve(self, batch: pa.RecordBatch) -> None:
        coded = batch["topic"].dictionary_encode()
        names = [self._governing(topic) for topic in coded.dictionary.to_pylist()]
        self._unserved.update(name for name in names if name not in self._spec.served)
        spaces = pa.array(names, pa.string()).take(coded.indices)
        batch = batch.filter(pa.array(self._is_due(batch, spaces)))
        self._rows += len(batch)
        publications = _publications(batch)
        for wanted in self._matcher.match(batch):
            target, matched = self._targets[wanted.target], publications[wanted.row]
            if target is not None and (target.broker, matched.broker) not in self._spec.behind:
                self._add(target, matched, wanted.ids)

    def _is_due(self, batch: pa.RecordBatch, spaces: pa.Array) -> np.ndarray[Any, Any]:
        """Return which rows are above their floors."""
        sequences = batch["sequence"].to_numpy()
        due = np.ones(len(batch), np.bool_)
        for publisher in pc.unique(batch["broker"]).to_pylist():
            own = pc.equal(batch["broker"], publisher).to_numpy(zero_copy_only=False)
            for target, floor in self._spec.floors.items():
                if target.broker == publisher and floor:
                    within = pc.equal(spaces, target.space).to_numpy(zero_copy_only=False)
                    due &= ~(own & within) | (sequences > floor)
        return due

    def _add(self, target: DeliveryTarget, matched: EngineMatch, ids: list[int]) -> None:
        doubtful = self._spec.doubtful.get(target, frozenset())
        sure = [number for number in ids if number not in doubtful] if doubtful else ids
        if sure:
            self._sender.add(target, msgspec.structs.replace(matched, ids=sure))
        if len(sure) < len(ids):
            moved = [number for number in ids if number in doubtful]
            self._sender.add(target, msgspec.structs.replace(matched, ids=moved), is_moved=True)

    def _report(self) -> pa.RecordBatch:
        reports: list[tuple[str, str, str, int]] = [
            (BEHIND, owner, publisher, sequence)
            for (owner, publisher), sequence in self._sender.behind.items()
        ]
        reports += [(SPACE, name, "", 0) for name in sorted(self._unserved)]
        reports += [(ROWS, "", "", self._rows), (DELIVERIES, "", "", self._sender.deliveries)]
        return _report_batch(reports)


def _report_batch(reports: Sequence[tuple[str, str, str, int]]) -> pa.RecordBatch:
    columns = zip(*reports, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, _REPORT, strict=True)],
        schema=_REPORT,
    )


def _publications(batch: pa.RecordBatch) -> list[EngineMatch]:
    """Return rows as matches without ids."""
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
    return [EngineMatch(*row) for row in zip(*columns, strict=True)]
