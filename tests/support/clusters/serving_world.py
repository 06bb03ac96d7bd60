"""A serving stream without Spark and network: its own engine and tasks, over brokers of tests."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from dovetail.api.engine import Handover, Listed, Question, Taken
from dovetail.api.http_client import NoAnswerError
from dovetail.archive.rows import table_of
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import Spaces
from dovetail.pipeline.serve.cluster_view import Timing
from dovetail.pipeline.serve.driver import Engine, Told
from dovetail.pipeline.serve.state_file import load
from dovetail.pipeline.serve.task import Job, Range, serve_range
from dovetail.pipeline.source.archives import Waiting
from dovetail.pipeline.source.checkpoint import BatchOffsets
from dovetail.pipeline.source.offsets import Offsets, next_offsets
from support.brokers.streamed_world import StreamedWorld


class WorldBrokers:
    """Brokers that are asked by calling them, and may be away."""

    def __init__(self, worlds: dict[str, StreamedWorld]) -> None:
        self.worlds = worlds
        self.away: set[str] = set()
        self.forgotten: set[str] = set()
        self.handed: list[tuple[str, Handover]] = []
        self.answers_lost = 0
        """So many of the next requests are done, and their answers do not come."""
        self.asked: list[tuple[str, Question]] = []

    def members(self) -> frozenset[str]:
        return frozenset(self.worlds.keys() - self.forgotten)

    def _world(self, broker: str) -> StreamedWorld:
        if broker in self.away:
            raise NoAnswerError(f"{broker} is away.")
        self.worlds[broker].begin()
        return self.worlds[broker]

    def spaces(self, broker: str) -> tuple[Space, ...]:
        return self._world(broker).broker.router.spaces.all

    def tell(self, broker: str, question: Question) -> Listed | None:
        world = self._world(broker)
        self.asked.append((broker, question))
        if question.space not in [one.name for one in self.spaces(broker)]:
            return None
        listed = world.streamed.tell(question)
        world.settle()
        return listed

    def take(self, broker: str, handover: Handover) -> Taken | None:
        world = self._world(broker)
        self.handed.append((broker, handover))
        unknown = []
        for place, one in enumerate(handover.matched):
            missing = world.streamed.take(
                handover.engine, handover.space, one, is_moved=handover.is_moved
            )
            if missing:
                unknown.append((place, missing))
        world.settle()
        world.streamed.end(handover.ends)
        if self.answers_lost:
            self.answers_lost -= 1
            raise NoAnswerError("the connection was lost.")
        return Taken(unknown)


class WorldPlace:
    """Rows of their disks."""

    def __init__(self, brokers: WorldBrokers) -> None:
        self._brokers = brokers
        self.gone: set[str] = set()
        """Whose rows cannot be read."""

    def look(self, offsets: Mapping[str, int]) -> dict[str, Waiting]:
        found = {}
        for name, world in self._brokers.worlds.items():
            if name not in self._brokers.away | self.gone:
                rows = sorted(world.rows())
                above = [(one, one) for one in rows if one > offsets.get(name, 0)]
                found[name] = Waiting(rows[0] if rows else None, above)
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
        spaces = Spaces(world.broker.router.spaces.all)
        table = table_of(rows, spaces)
        if broker in self.gone:
            raise NoAnswerError(f"{broker} has gone.")
        yield from table.to_batches()


class HereWork:
    """Tasks one after the other."""

    def __init__(self, place: WorldPlace) -> None:
        self._place = place

    def run(self, start: Offsets, end: Offsets, job: Job) -> Iterable[Told]:
        for name, last in end.items():
            told = serve_range(Range(name, start.get(name, 0), last), self._place, job)
            for row in told.to_pylist():
                yield row["kind"], row["name"], row["publisher"], row["number"]


class ServingWorld:
    """Brokers, and one life of a stream."""

    def __init__(self, worlds: dict[str, StreamedWorld], checkpoint: Path) -> None:
        self.brokers = WorldBrokers(worlds)
        self.place = WorldPlace(self.brokers)
        self.checkpoint = checkpoint
        self.offsets: Offsets = {}
        self.number = 0
        self.restart()

    def restart(self) -> None:
        """Another process, with what is in the checkpoint."""
        self.now = 0.0
        self.work = HereWork(self.place)
        timing = Timing(0.5, lambda: self.now, self.pass_time)
        self.engine = Engine(
            self.brokers, self.place, self.work, load(self.checkpoint), self.checkpoint, timing
        )
        self.engine.reached = self.offsets
        self.engine.doubtful_batch = self.number
        self.begin = self.engine.begin()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def batch(self, *, is_killed: bool = False) -> None:
        """With what there is. `is_killed`: Spark never hears that it is done."""
        end = next_offsets(self.offsets, self.place.look(self.offsets), None)
        self.engine.serve(self.number, BatchOffsets(self.offsets, end))
        if not is_killed:
            self.offsets = end
            self.number += 1
