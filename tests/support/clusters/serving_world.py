"""A serving stream without Spark and network: its own engine and tasks, over brokers of tests."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from dovetail.api.engine import ClauseChanges, ClauseQuery, DeliveryBatch, DeliveryReceipt
from dovetail.api.http_client import NoAnswerError
from dovetail.archive.rows import table_of
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.pipeline.serve.cluster_view import Timing
from dovetail.pipeline.serve.driver import ReportRow, ServingDriver
from dovetail.pipeline.serve.state_file import load
from dovetail.pipeline.serve.task import RowRange, TaskSpec, serve_rows
from dovetail.pipeline.source.archives import AvailableRows
from dovetail.pipeline.source.checkpoint import BatchOffsets
from dovetail.pipeline.source.offsets import Offsets, next_offsets
from support.brokers.streamed_world import StreamedWorld


class WorldBrokerClient:
    """Brokers that are asked by calling them, and may be away."""

    def __init__(self, worlds: dict[str, StreamedWorld]) -> None:
        self.worlds = worlds
        self.away: set[str] = set()
        self.forgotten: set[str] = set()
        self.handed: list[tuple[str, DeliveryBatch]] = []
        self.answers_lost = 0
        """So many of the next requests are done, and their answers do not come."""
        self.asked: list[tuple[str, ClauseQuery]] = []

    def members(self) -> frozenset[str]:
        return frozenset(self.worlds.keys() - self.forgotten)

    def _world(self, broker: str) -> StreamedWorld:
        if broker in self.away:
            raise NoAnswerError(f"{broker} is away.")
        self.worlds[broker].begin()
        return self.worlds[broker]

    def spaces(self, broker: str) -> tuple[Space, ...]:
        return self._world(broker).broker.router.spaces.all

    def clause_changes(self, broker: str, query: ClauseQuery) -> ClauseChanges | None:
        world = self._world(broker)
        self.asked.append((broker, query))
        if query.space not in [one.name for one in self.spaces(broker)]:
            return None
        listed = world.engine_backlog.clauses_since(query)
        world.settle()
        return listed

    def deliver(self, broker: str, batch: DeliveryBatch) -> DeliveryReceipt | None:
        world = self._world(broker)
        self.handed.append((broker, batch))
        unknown = []
        for row_source, one in enumerate(batch.matched):
            missing = world.engine_backlog.deliver(
                batch.engine, batch.space, one, is_moved=batch.is_moved
            )
            if missing:
                unknown.append((row_source, missing))
        world.settle()
        world.engine_backlog.forget_notes(batch.ends)
        if self.answers_lost:
            self.answers_lost -= 1
            raise NoAnswerError("the connection was lost.")
        return DeliveryReceipt(unknown)


class WorldRowSource:
    """Rows of their disks."""

    def __init__(self, brokers: WorldBrokerClient) -> None:
        self._brokers = brokers
        self.gone: set[str] = set()
        """Whose rows cannot be read."""

    def available_rows(self, offsets: Mapping[str, int]) -> dict[str, AvailableRows]:
        found = {}
        for name, world in self._brokers.worlds.items():
            if name not in self._brokers.away | self.gone:
                rows = sorted(world.rows())
                above = [(one, one) for one in rows if one > offsets.get(name, 0)]
                found[name] = AvailableRows(rows[0] if rows else None, above)
        return found

    def rows(
        self,
        broker: str,
        after: int,
        upto: int,
        wait_seconds: float,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        world = self._brokers.worlds[broker]
        rows = [(one, row) for one, row in sorted(world.rows().items()) if after < one <= upto]
        spaces = SpaceRegistry(world.broker.router.spaces.all)
        table = table_of(rows, spaces)
        if broker in self.gone:
            raise NoAnswerError(f"{broker} has gone.")
        yield from table.to_batches()


class LocalTaskRunner:
    """Tasks one after the other."""

    def __init__(self, row_source: WorldRowSource) -> None:
        self._row_source = row_source

    def run(self, start: Offsets, end: Offsets, spec: TaskSpec) -> Iterable[ReportRow]:
        for name, last in end.items():
            reports = serve_rows(RowRange(name, start.get(name, 0), last), self._row_source, spec)
            for row in reports.to_pylist():
                yield row["kind"], row["name"], row["publisher"], row["number"]


class ServingWorld:
    """Brokers, and one life of a stream."""

    def __init__(self, worlds: dict[str, StreamedWorld], checkpoint: Path) -> None:
        self.brokers = WorldBrokerClient(worlds)
        self.row_source = WorldRowSource(self.brokers)
        self.checkpoint = checkpoint
        self.offsets: Offsets = {}
        self.number = 0
        self.restart()

    def restart(self) -> None:
        """Another process, with what is in the checkpoint."""
        self.now = 0.0
        self.runner = LocalTaskRunner(self.row_source)
        timing = Timing(0.5, lambda: self.now, self.pass_time)
        self.driver = ServingDriver(
            self.brokers,
            self.row_source,
            self.runner,
            load(self.checkpoint),
            self.checkpoint,
            timing,
        )
        self.driver.reached = self.offsets
        self.driver.doubtful_batch = self.number
        self.begin = self.driver.begin()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def batch(self, *, is_killed: bool = False) -> None:
        """With what there is. `is_killed`: Spark never hears that it is done."""
        end = next_offsets(self.offsets, self.row_source.available_rows(self.offsets), None)
        self.driver.serve(self.number, BatchOffsets(self.offsets, end))
        if not is_killed:
            self.offsets = end
            self.number += 1
