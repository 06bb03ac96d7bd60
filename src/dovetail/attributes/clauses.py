"""Where-clauses of subscriptions: their keys, and which of many a publication satisfies. Pure.

A client may have several subscriptions to one filter: one without a clause, one for each clause. So
sessions, the disk and other brokers know a subscription by a key: its filter, a null character,
which no filter can contain, and its clause as `str` of a `WhereClause` writes it.

A `ClauseSet` has all clauses on one filter. It checks a few one by one; more are in an index
(box_index.py). The index takes all changes since the last search together: after a start, or when a
client leaves, there are many.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from dovetail.attributes.box_index import BoxIndex, Slots
from dovetail.attributes.filter_query import split_query
from dovetail.attributes.limits import CLAUSES_UNINDEXED_MAX
from dovetail.attributes.space import Box, Point, Space, has_texts, matches
from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import check_filter, is_plainly_valid

_SEPARATOR = "\0"
_OR = " or "
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|`(?:[^`\\]|\\.)*+`", re.DOTALL)


def key_of(topic_filter: str, clause: str) -> str:
    return f"{topic_filter}{_SEPARATOR}{clause}" if clause else topic_filter


def split_key(key: str) -> tuple[str, str]:
    """Return the filter and the clause, which is empty if there is none."""
    topic_filter, _, clause = key.partition(_SEPARATOR)
    return topic_filter, clause


def boxes_of(key: str) -> int:
    """Return how many boxes a subscription has in any space: 1 without a clause.

    They are the alternatives of the clause in its stored form, which has no parentheses.
    """
    if _OR not in key:
        return 1
    _, clause = split_key(key)
    return 1 + _QUOTED.sub("", clause).count(_OR)


def check_key(key: str) -> None:
    """Raise a ClientError if no subscription can have this key. The clause is not parsed."""
    topic_filter, separator, clause = key.partition(_SEPARATOR)
    if separator and (not clause or _SEPARATOR in clause):
        raise ClientError(ReasonCode.TOPIC_FILTER_INVALID, "a where-clause that is none")
    check_filter(topic_filter)


def check_requested_filter(topic_filter: str) -> None:
    """Raise a ClientError if this is no filter, with or without a query. Spaces check the query."""
    if is_plainly_valid(topic_filter):
        return
    try:
        check_filter(topic_filter)
    except ClientError:
        plain, query = split_query(topic_filter)
        if query is None:
            raise
        check_filter(plain)


class Clause(NamedTuple):
    """The boxes of a subscription in a space: a publication must fall in one of them."""

    space: Space
    boxes: tuple[Box, ...]

    def holds(self, point: Point) -> bool:
        return any(matches(box, point) for box in self.boxes)


Entry = TypeVar("Entry", bound=Hashable)


class ClauseSet(Generic[Entry]):
    """The clauses of all entries on one filter."""

    def __init__(self, topic_filter: str, space: Space) -> None:
        self.filter = topic_filter
        self.space = space
        self.boxes = 0
        """Boxes of all clauses."""
        self._clauses: dict[Entry, Clause] = {}
        self._to_insert: dict[Entry, None] = {}  # entries for the index, in order
        self._index: BoxIndex | None = None
        self._to_discard: list[int] = []  # slots of entries that are gone
        self._slots: dict[Entry, list[int]] = {}
        self._entry_of_slot: list[Entry | None] = []
        self._texts: dict[int, Box] = {}  # by slot, boxes with conditions on texts

    def __len__(self) -> int:
        return len(self._clauses)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._clauses)

    def add(self, entry: Entry, clause: Clause) -> None:
        """Add an entry, which must be new."""
        self._clauses[entry] = clause
        self.boxes += len(clause.boxes)
        if self._index is not None or self._to_insert:
            self._to_insert[entry] = None
        elif len(self._clauses) > CLAUSES_UNINDEXED_MAX:
            self._to_insert = dict.fromkeys(self._clauses)

    def remove(self, entry: Entry) -> None:
        self.boxes -= len(self._clauses.pop(entry).boxes)
        self._to_insert.pop(entry, None)
        slots = self._slots.pop(entry, None)
        if slots is not None:
            self._to_discard += slots
            self._note_removed(entry, slots)
        if not self._clauses:
            self._index = None
            self._to_discard.clear()

    def find(self, point: Point) -> list[Entry]:
        """Return the entries whose clauses hold, each once."""
        slots = self._search(point)
        if slots is None:
            return [entry for entry, clause in self._clauses.items() if clause.holds(point)]
        return list(dict.fromkeys(self._entries(slots.tolist(), point)))

    def _search(self, point: Point) -> Slots | None:
        """Return the boxes that hold the point's values, whatever its texts; None: no index."""
        self.update_index()
        return None if self._index is None else self._index.match_one(point.values)

    def boxes_one_by_one(self) -> list[tuple[Entry, Box]]:
        """Return all boxes with their entries."""
        return [(entry, box) for entry, clause in self._clauses.items() for box in clause.boxes]

    def _entries(self, slots: Iterable[int], point: Point) -> Iterator[Entry]:
        """Yield the entry of each box whose texts the point has."""
        at, texts = self._entry_of_slot, self._texts
        for slot in slots:
            entry = at[slot]
            assert entry is not None, "the slot has a box"
            if slot not in texts or has_texts(texts[slot], point):
                yield entry

    def update_index(self) -> None:
        """Insert new boxes into the index, and discard old ones.

        `find` does this too. An earlier call makes the next `find` fast.
        """
        if self._to_discard and self._index is not None:
            self._index.discard(self._to_discard)
            self._to_discard.clear()
        if not self._to_insert:
            return
        if self._index is None:
            dimensions = self.space.dimensions
            self._index = BoxIndex(
                [one.low for one in dimensions], [one.high for one in dimensions]
            )
        placed = [(entry, box) for entry in self._to_insert for box in self._clauses[entry].boxes]
        self._to_insert.clear()
        slots = self._index.insert(
            [box.lows for _, box in placed], [box.highs for _, box in placed]
        )
        self._note_inserted(slots.tolist(), placed)

    def _note_inserted(self, slots: list[int], entries: Sequence[tuple[Entry, Box]]) -> None:
        """Note boxes that the index has now."""
        self._entry_of_slot += [None] * (max(slots) + 1 - len(self._entry_of_slot))
        for slot, (entry, box) in zip(slots, entries, strict=True):
            self._entry_of_slot[slot] = entry
            known = self._slots.get(entry)
            if known is None:
                self._slots[entry] = [slot]
            else:
                known.append(slot)
            if box.texts:
                self._texts[slot] = box

    def _note_removed(self, entry: Entry, slots: list[int]) -> None:  # noqa: ARG002
        """Note boxes of an entry that are gone."""
        for slot in slots:
            self._entry_of_slot[slot] = None
            self._texts.pop(slot, None)
