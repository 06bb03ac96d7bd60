"""A broker with a space that a stream serves, an oracle as its engine, and a manual clock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.attributes.space import Dimension, Space
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.engine_backlog import EngineBacklog
from dovetail.broker.store.journal import ArchiveRow
from support.brokers.harness import START, Disk, World
from support.oracles.engine import OracleEngine

LIVE = Space(
    "traffic",
    "traffic/#",
    (Dimension("x", 0, 10), Dimension("y", 0, 10)),
    frozenset({"road"}),
    json_fields=True,
)
STREAMED = replace(LIVE, is_streamed=True)


class StreamedWorld(World):
    """A broker with an archive, and an engine that runs only when a test says so."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        topics: Sequence[str] = (),
        bytes_max: int = 1 << 20,
        space: Space = STREAMED,
        now: float = START,
        auto_commit: bool = True,
        name: str = "one",
    ) -> None:
        self.name = name
        self.topics = topics
        self.bytes_max = bytes_max
        super().__init__(disk, now=now, spaces=[space], auto_commit=auto_commit)
        self.archive.restore(self.disk.state().archive)
        self.engine = OracleEngine(space, {name: self})

    def make_archive(self) -> ArchiveQueue:
        stored = max(self.disk.tables["archive"], default=0)
        self.archive = ArchiveQueue(
            self.shared,
            self.name,
            self.topics,
            bytes_max=self.bytes_max,
            next_sequence=stored + 1_000,
        )
        return self.archive

    @property
    def engine_backlog(self) -> EngineBacklog:
        assert self.broker.engine_backlog is not None
        return self.broker.engine_backlog

    def rows(self) -> Mapping[int, ArchiveRow]:
        return self.disk.tables["archive"]

    def begin(self) -> None:
        self.shared.now = self.now

    def restart(self) -> "StreamedWorld":
        return StreamedWorld(self.disk, now=self.now, space=self.engine.space)
