"""The where-clauses of all brokers, kept current by changes, and shipped to tasks.

    brokers' lists (broker/clause_log.py) -> entries by space and broker -> two tables of boxes

Rules:

- The driver knows the version of each list (`ListVersion`) and asks only for changes since. A
  list that begins anew replaces the earlier one.
- Tasks get two tables: a base with all clauses, which is rebuilt rarely, and the changes since.
  An unchanged table keeps its digest, and workers keep its index.
- A clause is parsed once, whatever changes around it.
- A shared group counts once, even with members at several brokers. Its matches go to the first
  broker that answers.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from dovetail.api.engine import ClauseChanges, ClauseQuery, ClauseSubscription
from dovetail.archive.arrow_stream import pack
from dovetail.attributes.space import Space
from dovetail.pipeline.limits import SERVE_CHANGES_MIN
from dovetail.pipeline.match.boxes import BoxReader, boxes_schema
from dovetail.pipeline.serve.broker_client import DeliveryTarget

_REBASED_SHARE = 4
"""If more than a quarter of all entries has changed, the base is rebuilt."""

_BOXES = boxes_schema(pa.int64())
_SUBSCRIPTIONS = pa.schema(
    [("number", pa.int64()), ("id", pa.int64()), ("filter", pa.string()), ("where", pa.string())]
)


class ListVersion(NamedTuple):
    """The version of a broker's list that is known here. `life` changes when a list begins anew."""

    life: int = 0
    version: int = 0


_UNKNOWN_VERSION = ListVersion()


class EntryKey(NamedTuple):
    """Identifies an entry across all lists."""

    target: DeliveryTarget
    id: int


@dataclass(frozen=True)
class ClauseTable:
    """Entries as tasks get them. The `id` of a box is the position of its entry in this table."""

    boxes: bytes
    """A packed table of boxes (pipeline/match/boxes.py)."""
    targets: tuple[int, ...]
    """By entry: a position in the shipment's `targets`."""
    ids: tuple[int, ...]
    """By entry: the subscription's id at that target."""
    digest: bytes = field(default=b"", compare=False)


@dataclass(frozen=True)
class ClauseShipment:
    """All clauses, as a task gets them."""

    targets: tuple[DeliveryTarget, ...]
    base: ClauseTable
    changes: ClauseTable
    stale: tuple[int, ...]
    """Positions in the base whose entries have changed or gone."""
    group_targets: Mapping[int, tuple[DeliveryTarget, ...]]
    """By id of a group with members at several brokers: all targets that have it."""
    versions: Mapping[DeliveryTarget, ListVersion]


@dataclass
class _ClauseList:
    version: ListVersion = _UNKNOWN_VERSION
    entries: dict[int, ClauseSubscription] = field(default_factory=dict)


class ClusterClauses:
    """The where-clauses of all brokers, as the driver knows them."""

    def __init__(self) -> None:
        self._spaces: tuple[Space, ...] = ()
        self._reader = BoxReader(())
        self._lists: dict[DeliveryTarget, _ClauseList] = {}
        self._groups: dict[tuple[str, int], set[str]] = {}
        self._away: frozenset[str] = frozenset()
        self._changed: set[EntryKey] = set()
        self._base: ClauseTable | None = None
        self._places: dict[EntryKey, int] = {}
        self._targets: list[DeliveryTarget] = []
        self._shipment: ClauseShipment | None = None

    @property
    def spaces(self) -> tuple[Space, ...]:
        return self._spaces

    def change_spaces(self, spaces: Sequence[Space]) -> None:
        """Replace the spaces. If they differ, all clauses are parsed again."""
        if tuple(spaces) != self._spaces:
            self._spaces = tuple(spaces)
            self._reader = BoxReader(self._spaces)
            self._base = self._shipment = None

    # Changes from brokers -------------------------------------------------------------------------

    def version_of(self, target: DeliveryTarget) -> ListVersion:
        known = self._lists.get(target)
        return ListVersion() if known is None else known.version

    def query(self, target: DeliveryTarget, served: int) -> ClauseQuery:
        return ClauseQuery(target.space, *self.version_of(target), served)

    def apply(self, target: DeliveryTarget, listed: ClauseChanges | None) -> None:
        """Apply a broker's answer. None: the broker lacks the space."""
        known = self._lists.setdefault(target, _ClauseList())
        if listed is None or listed.is_whole:
            kept = () if listed is None else {one.id for one in listed.put}
            self._remove(target, [number for number in known.entries if number not in kept])
        known.version = (
            ListVersion() if listed is None else ListVersion(listed.life, listed.version)
        )
        if listed is not None:
            self._put(target, listed.put)
            self._remove(target, listed.gone)

    def forget(self, broker: str) -> None:
        """Remove all lists of a broker that has left the cluster."""
        for target in [one for one in self._lists if one.broker == broker]:
            self._remove(target, list(self._lists[target].entries))
            del self._lists[target]

    def _put(self, target: DeliveryTarget, entries: Iterable[ClauseSubscription]) -> None:
        own = self._lists[target].entries
        for entry in entries:
            if own.get(entry.id) == entry:
                continue
            own[entry.id] = entry
            self._mark_changed(target, entry.id)
            if entry.is_group:
                self._groups.setdefault((target.space, entry.id), set()).add(target.broker)
                self._mark_group_changed(target.space, entry.id)

    def _remove(self, target: DeliveryTarget, numbers: Iterable[int]) -> None:
        own = self._lists[target].entries
        for number in numbers:
            entry = own.pop(number, None)
            if entry is None:
                continue
            self._mark_changed(target, number)
            if entry.is_group:
                members = self._groups[target.space, number]
                members.discard(target.broker)
                self._mark_group_changed(target.space, number)
                if not members:
                    del self._groups[target.space, number]

    def _mark_changed(self, target: DeliveryTarget, number: int) -> None:
        self._changed.add(EntryKey(target, number))
        self._shipment = None

    def _mark_group_changed(self, space: str, number: int) -> None:
        """Mark the entries of a group at all of its brokers: another one may serve it now."""
        for broker in self._groups[space, number]:
            self._mark_changed(DeliveryTarget(space, broker), number)

    def set_away(self, brokers: Collection[str]) -> None:
        """Set the brokers that do not answer. Groups go to other brokers."""
        changed = self._away ^ frozenset(brokers)
        if not changed:
            return
        self._away = frozenset(brokers)
        self._shipment = None
        for (space, number), members in self._groups.items():
            if not changed.isdisjoint(members):
                self._mark_group_changed(space, number)

    # The shipment for tasks -----------------------------------------------------------------------

    def shipment(self) -> ClauseShipment:
        """Return all clauses; the same object until something changes.

        A SubscriptionRefusedError names a clause that cannot be parsed.
        """
        if self._shipment is not None:
            return self._shipment
        few = max(SERVE_CHANGES_MIN, len(self._places) // _REBASED_SHARE)
        if self._base is None or len(self._changed) > few:
            self._rebase()
        assert self._base is not None
        changed = sorted(self._changed)
        changes = self._table([key for key in changed if self._is_current(key)])
        self._shipment = ClauseShipment(
            tuple(self._targets),
            self._base,
            changes,
            tuple(self._places[key] for key in changed if key in self._places),
            self._group_targets(),
            {target: known.version for target, known in self._lists.items()},
        )
        return self._shipment

    def _rebase(self) -> None:
        keys = [
            key
            for target, known in sorted(self._lists.items())
            for key in (EntryKey(target, number) for number in known.entries)
            if self._is_current(key)
        ]
        self._targets = []
        self._base = self._table(keys)
        self._places = {key: place for place, key in enumerate(keys)}
        self._changed.clear()

    def _is_current(self, key: EntryKey) -> bool:
        entry = self._entry(key)
        if entry is None:
            return False
        return (
            not entry.is_group
            or self._serving_broker(key.target.space, key.id) == key.target.broker
        )

    def _entry(self, key: EntryKey) -> ClauseSubscription | None:
        known = self._lists.get(key.target)
        return None if known is None else known.entries.get(key.id)

    def _serving_broker(self, space: str, number: int) -> str:
        members = self._groups[space, number]
        return min(members - self._away or members)

    def _group_targets(self) -> dict[int, tuple[DeliveryTarget, ...]]:
        return {
            number: tuple(DeliveryTarget(space, broker) for broker in sorted(members))
            for (space, number), members in self._groups.items()
            if len(members) > 1
        }

    def _table(self, keys: Sequence[EntryKey]) -> ClauseTable:
        number_of = {target: number for number, target in enumerate(self._targets)}
        entries = [entry for entry in map(self._entry, keys) if entry is not None]
        for key in keys:
            if key.target not in number_of:
                number_of[key.target] = len(self._targets)
                self._targets.append(key.target)
        places = pa.array(range(len(entries)), pa.int64())
        subscriptions = pa.RecordBatch.from_arrays(
            [
                places,
                places,
                pa.array([one.filter for one in entries], pa.string()),
                pa.array([one.where for one in entries], pa.string()),
            ],
            schema=_SUBSCRIPTIONS,
        )
        boxes = pack(pa.Table.from_batches([self._reader.boxes(subscriptions)], _BOXES))
        targets = tuple(number_of[key.target] for key in keys)
        ids = tuple(key.id for key in keys)
        digest = hashlib.blake2b(boxes, digest_size=16)
        digest.update(repr((targets, ids, self._spaces)).encode())
        return ClauseTable(boxes, targets, ids, digest.digest())
