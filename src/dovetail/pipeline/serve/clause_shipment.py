"""Where-clauses of all brokers, followed from answer to answer, and shipped to tasks.

    brokers' lists (broker/clause_log.py) -> entries by space and broker -> two tables of boxes

Rules:

- Of each list it is known how far it was followed (a `Mark`), and only what has changed is asked
  for. A list that begins anew replaces the one before.
- Tasks get all clauses as one table, which is made seldom, and what has changed since as another:
  what is unchanged keeps its digest, and workers keep the index that they made of it.
- A clause is read once, whatever changes around it.
- A group is one, at however many brokers it has members: it goes to the first that can be reached.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from dovetail.api.engine import Entry, Listed, Question
from dovetail.attributes.space import Space
from dovetail.pipeline.limits import SERVE_CHANGES_MIN
from dovetail.pipeline.match.boxes import Reader, boxes_schema
from dovetail.pipeline.match.bulk import packed
from dovetail.pipeline.serve.broker_client import Target

_REBASED_SHARE = 4
"""Changes to more than one part in so many, and all is shipped anew."""

_BOXES = boxes_schema(pa.int64())
_ASKED = pa.schema(
    [("number", pa.int64()), ("id", pa.int64()), ("filter", pa.string()), ("where", pa.string())]
)


class Mark(NamedTuple):
    """How far a list was followed."""

    life: int = 0
    version: int = 0


_UNHEARD = Mark()


class Key(NamedTuple):
    """An entry, wherever it is."""

    target: Target
    id: int


@dataclass(frozen=True)
class Part:
    """Entries on their way to a task: boxes whose `id` is a place, and whose each place is."""

    boxes: bytes
    """A table of pipeline/match/boxes.py, packed."""
    targets: tuple[int, ...]
    """Of each place, among the targets of the shipment."""
    ids: tuple[int, ...]
    digest: bytes = field(default=b"", compare=False)


@dataclass(frozen=True)
class Shipment:
    """All clauses as a task gets them."""

    targets: tuple[Target, ...]
    base: Part
    more: Part
    void: tuple[int, ...]
    """Places of the base that do not count any more."""
    spares: Mapping[int, tuple[Target, ...]]
    """Of a group with members at several brokers: where it is besides."""
    marks: Mapping[Target, Mark]


@dataclass
class _List:
    mark: Mark = _UNHEARD
    entries: dict[int, Entry] = field(default_factory=dict)


class Clauses:
    """What the driver knows of them."""

    def __init__(self) -> None:
        self._spaces: tuple[Space, ...] = ()
        self._reader = Reader(())
        self._lists: dict[Target, _List] = {}
        self._groups: dict[tuple[str, int], set[str]] = {}
        self._away: frozenset[str] = frozenset()
        self._changed: set[Key] = set()
        self._base: Part | None = None
        self._places: dict[Key, int] = {}
        self._targets: list[Target] = []
        self._shipment: Shipment | None = None

    @property
    def spaces(self) -> tuple[Space, ...]:
        return self._spaces

    def change_spaces(self, spaces: Sequence[Space]) -> None:
        """Clauses are read anew if these are others."""
        if tuple(spaces) != self._spaces:
            self._spaces = tuple(spaces)
            self._reader = Reader(self._spaces)
            self._base = self._shipment = None

    # What brokers tell ----------------------------------------------------------------------------

    def mark(self, target: Target) -> Mark:
        known = self._lists.get(target)
        return Mark() if known is None else known.mark

    def question(self, target: Target, served: int) -> Question:
        return Question(target.space, *self.mark(target), served)

    def take(self, target: Target, listed: Listed | None) -> None:
        """None: the broker has no such space."""
        known = self._lists.setdefault(target, _List())
        if listed is None or listed.is_whole:
            kept = () if listed is None else {one.id for one in listed.put}
            self._remove(target, [number for number in known.entries if number not in kept])
        known.mark = Mark() if listed is None else Mark(listed.life, listed.version)
        if listed is not None:
            self._put(target, listed.put)
            self._remove(target, listed.gone)

    def forget(self, broker: str) -> None:
        """It is no part of the cluster any more."""
        for target in [one for one in self._lists if one.broker == broker]:
            self._remove(target, list(self._lists[target].entries))
            del self._lists[target]

    def _put(self, target: Target, entries: Iterable[Entry]) -> None:
        own = self._lists[target].entries
        for entry in entries:
            if own.get(entry.id) == entry:
                continue
            own[entry.id] = entry
            self._note(target, entry.id)
            if entry.is_group:
                self._groups.setdefault((target.space, entry.id), set()).add(target.broker)
                self._note_group(target.space, entry.id)

    def _remove(self, target: Target, numbers: Iterable[int]) -> None:
        own = self._lists[target].entries
        for number in numbers:
            entry = own.pop(number, None)
            if entry is None:
                continue
            self._note(target, number)
            if entry.is_group:
                members = self._groups[target.space, number]
                members.discard(target.broker)
                self._note_group(target.space, number)
                if not members:
                    del self._groups[target.space, number]

    def _note(self, target: Target, number: int) -> None:
        self._changed.add(Key(target, number))
        self._shipment = None

    def _note_group(self, space: str, number: int) -> None:
        """Another broker may be the first now."""
        for broker in self._groups[space, number]:
            self._note(Target(space, broker), number)

    def change_away(self, brokers: Collection[str]) -> None:
        """Groups go to others than these."""
        changed = self._away ^ frozenset(brokers)
        if not changed:
            return
        self._away = frozenset(brokers)
        self._shipment = None
        for (space, number), members in self._groups.items():
            if not changed.isdisjoint(members):
                self._note_group(space, number)

    # What tasks get -------------------------------------------------------------------------------

    def shipment(self) -> Shipment:
        """The same object until something has changed. A RefusedError: a clause cannot be read."""
        if self._shipment is not None:
            return self._shipment
        few = max(SERVE_CHANGES_MIN, len(self._places) // _REBASED_SHARE)
        if self._base is None or len(self._changed) > few:
            self._rebase()
        assert self._base is not None
        changed = sorted(self._changed)
        more = self._part([key for key in changed if self._counts(key)])
        self._shipment = Shipment(
            tuple(self._targets),
            self._base,
            more,
            tuple(self._places[key] for key in changed if key in self._places),
            self._spares(),
            {target: known.mark for target, known in self._lists.items()},
        )
        return self._shipment

    def _rebase(self) -> None:
        keys = [
            key
            for target, known in sorted(self._lists.items())
            for key in (Key(target, number) for number in known.entries)
            if self._counts(key)
        ]
        self._targets = []
        self._base = self._part(keys)
        self._places = {key: place for place, key in enumerate(keys)}
        self._changed.clear()

    def _counts(self, key: Key) -> bool:
        entry = self._entry(key)
        if entry is None:
            return False
        return not entry.is_group or self._first(key.target.space, key.id) == key.target.broker

    def _entry(self, key: Key) -> Entry | None:
        known = self._lists.get(key.target)
        return None if known is None else known.entries.get(key.id)

    def _first(self, space: str, number: int) -> str:
        members = self._groups[space, number]
        return min(members - self._away or members)

    def _spares(self) -> dict[int, tuple[Target, ...]]:
        return {
            number: tuple(Target(space, broker) for broker in sorted(members))
            for (space, number), members in self._groups.items()
            if len(members) > 1
        }

    def _part(self, keys: Sequence[Key]) -> Part:
        number_of = {target: number for number, target in enumerate(self._targets)}
        entries = [entry for entry in map(self._entry, keys) if entry is not None]
        for key in keys:
            if key.target not in number_of:
                number_of[key.target] = len(self._targets)
                self._targets.append(key.target)
        places = pa.array(range(len(entries)), pa.int64())
        asked = pa.RecordBatch.from_arrays(
            [
                places,
                places,
                pa.array([one.filter for one in entries], pa.string()),
                pa.array([one.where for one in entries], pa.string()),
            ],
            schema=_ASKED,
        )
        boxes = packed(pa.Table.from_batches([self._reader.boxes(asked)], _BOXES))
        targets = tuple(number_of[key.target] for key in keys)
        ids = tuple(key.id for key in keys)
        digest = hashlib.blake2b(boxes, digest_size=16)
        digest.update(repr((targets, ids, self._spaces)).encode())
        return Part(boxes, targets, ids, digest.digest())
