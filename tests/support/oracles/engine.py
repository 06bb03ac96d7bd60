"""An engine without Spark: it checks all clauses of all brokers one by one.

Brokers are whatever has a `engine_backlog` part and a disk with rows of an archive.
"""

from collections.abc import Mapping
from typing import Protocol

from dovetail.api.engine import ClauseChanges, ClauseQuery, ClauseSubscription, EngineMatch
from dovetail.attributes.space import Space, matches
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import delivery_context_decoder
from dovetail.broker.engine_backlog import EngineBacklog
from dovetail.broker.publication_point import point_of
from dovetail.broker.store.journal import ArchiveRow
from dovetail.messages import Message
from dovetail.topics import names


class EngineBroker(Protocol):
    """The part of a broker that an engine uses."""

    @property
    def engine_backlog(self) -> EngineBacklog: ...

    def rows(self) -> Mapping[int, ArchiveRow]: ...

    def begin(self) -> None: ...

    def settle(self) -> None: ...


class OracleEngine:
    """An engine with one history of offsets."""

    def __init__(
        self, space: Space, brokers: Mapping[str, EngineBroker], name: str = "engine"
    ) -> None:
        self.space = space
        self.brokers = brokers
        self.name = name
        self.offsets: dict[str, int] = {}
        self.known: dict[str, ClauseChanges] = {}
        self.entries: dict[str, dict[int, ClauseSubscription]] = {}

    def follow(self) -> None:
        """Fetch new and removed clauses from all brokers."""
        for name, broker in self.brokers.items():
            while True:
                known = self.known.get(name)
                question = ClauseQuery(
                    self.space.name,
                    known.life if known else 0,
                    known.version if known else 0,
                    self.offsets.get(name, 0),
                )
                broker.begin()
                listed = self.known[name] = broker.engine_backlog.clauses_since(question)
                broker.settle()
                own = self.entries.setdefault(name, {})
                if listed.is_whole:
                    own.clear()
                own.update((one.id, one) for one in listed.put)
                for number in listed.gone:
                    own.pop(number, None)
                if not listed.has_more:
                    break

    def run(self, *, forgets: bool = False) -> int:
        """Run one batch. Return the number of publications. `forgets`: it is killed at the end."""
        rows = [
            (name, sequence, row)
            for name, broker in self.brokers.items()
            for sequence, row in sorted(broker.rows().items())
            if row.stream and sequence > self.offsets.get(name, 0)
        ]
        self.follow()
        ends = dict(self.offsets)
        for name, sequence, row in rows:
            self.hand_over(name, sequence, row)
            ends[name] = max(sequence, ends.get(name, 0))
        if not forgets:
            self.offsets = ends
            for broker in self.brokers.values():
                broker.engine_backlog.forget_notes(ends)
            self.follow()
        return len(rows)

    def hand_over(self, name: str, sequence: int, row: ArchiveRow) -> None:
        unknown: set[int] = set()
        groups: set[int] = set()
        for owner, broker in self.brokers.items():
            ids = []
            for one in self.entries[owner].values():
                if one.is_group and one.id in groups:
                    continue  # one broker serves it
                if self.wants(one, row):
                    ids.append(one.id)
                    if one.is_group:
                        groups.add(one.id)
            if ids:
                unknown |= self._hand(broker, matched_of(name, sequence, row, ids))
        if unknown:
            self.follow()
            for owner, broker in self.brokers.items():
                ids = [number for number in unknown if number in self.entries[owner]]
                if ids:
                    matched = matched_of(name, sequence, row, ids)
                    self._hand(broker, matched, is_moved=True)

    def _hand(
        self, broker: EngineBroker, matched: EngineMatch, *, is_moved: bool = False
    ) -> set[int]:
        broker.begin()
        missing = broker.engine_backlog.deliver(
            self.name, self.space.name, matched, is_moved=is_moved
        )
        broker.settle()
        return set(missing)

    def wants(self, one: ClauseSubscription, row: ArchiveRow) -> bool:
        if not names.matches(one.filter, row.topic.decode()):
            return False
        point = point_of(self.space, Message(row.topic, row.payload, properties=row.properties))
        clause = SpaceRegistry([self.space]).clause(one.filter, one.where)
        assert point is not None
        assert clause is not None
        return any(matches(box, point) for box in clause.boxes)


def matched_of(name: str, sequence: int, row: ArchiveRow, ids: list[int]) -> EngineMatch:
    waiting = delivery_context_decoder.decode(row.stream)
    return EngineMatch(
        name,
        sequence,
        row.topic,
        row.payload,
        row.qos,
        row.retain,
        row.properties,
        waiting.expires_at,
        waiting.client,
        ids,
    )
