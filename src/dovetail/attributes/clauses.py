"""Where-clauses of subscriptions: what one wants, and which of many a publication satisfies. Pure.

A subscription with a clause is one of its own, besides one to the same filter without it or with
another. So the key that a session, the disk and other brokers know it by is its filter and, behind
a null character, which no filter can have, its clause as `attributes.where` writes it.

A `ClauseSet` has all clauses on one filter. A few are looked at one by one; more are in an index
(box_index.py). Those that came or went since somebody last asked go into it or out of it
together: after a start, or when a client leaves, they are many.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from dovetail.attributes.box_index import BoxIndex, Slots
from dovetail.attributes.filter_query import split_query
from dovetail.attributes.limits import CLAUSES_UNINDEXED_MAX
from dovetail.attributes.space import Box, Point, Space, has_texts, matches
from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import check_filter

_MARK = "\0"
_OR = " or "
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|`(?:[^`\\]|\\.)*+`", re.DOTALL)


def key_of(topic_filter: str, clause: str) -> str:
    return f"{topic_filter}{_MARK}{clause}" if clause else topic_filter


def split_key(key: str) -> tuple[str, str]:
    """The filter, and the clause; empty if there is none."""
    topic_filter, _, clause = key.partition(_MARK)
    return topic_filter, clause


def boxes_of(key: str) -> int:
    """How many its subscription has, in whatever space: it counts as so many. One without a clause.

    They are the alternatives of a clause as it is written down, where there are no parentheses.
    """
    if _OR not in key:
        return 1
    _, clause = split_key(key)
    return 1 + _QUOTED.sub("", clause).count(_OR)


def check_key(key: str) -> None:
    """A ClientError if no subscription can have it. What its clause says is not looked at."""
    topic_filter, mark, clause = key.partition(_MARK)
    if mark and (not clause or _MARK in clause):
        raise ClientError(ReasonCode.TOPIC_FILTER_INVALID, "a where-clause that is none")
    check_filter(topic_filter)


def check_request(topic_filter: str) -> None:
    """A ClientError if it is no filter, nor one with a query behind it, which spaces decide."""
    try:
        check_filter(topic_filter)
    except ClientError:
        plain, query = split_query(topic_filter)
        if query is None:
            raise
        check_filter(plain)


class Clause(NamedTuple):
    """What a subscription wants of publications in a space: that one of these boxes has them."""

    space: Space
    boxes: tuple[Box, ...]

    def holds(self, point: Point) -> bool:
        return any(matches(box, point) for box in self.boxes)


Entry = TypeVar("Entry", bound=Hashable)


class ClauseSet(Generic[Entry]):
    """Who wants something of the publications on one filter's topics, and what."""

    def __init__(self, topic_filter: str, space: Space) -> None:
        self.filter = topic_filter
        self.space = space
        self.boxes = 0
        """Of all clauses."""
        self._clauses: dict[Entry, Clause] = {}
        self._waiting: dict[Entry, None] = {}  # for a place in the index, in their order
        self._index: BoxIndex | None = None
        self._leaving: list[int] = []  # slots of the index whose boxes are nobody's any more
        self._slots: dict[Entry, list[int]] = {}
        self._at: list[Entry | None] = []  # by slot
        self._texts: dict[int, Box] = {}  # boxes that ask for some

    def __len__(self) -> int:
        return len(self._clauses)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._clauses)

    def put(self, entry: Entry, clause: Clause) -> None:
        """The entry is new here."""
        self._clauses[entry] = clause
        self.boxes += len(clause.boxes)
        if self._index is not None or self._waiting:
            self._waiting[entry] = None
        elif len(self._clauses) > CLAUSES_UNINDEXED_MAX:
            self._waiting = dict.fromkeys(self._clauses)

    def take(self, entry: Entry) -> None:
        self.boxes -= len(self._clauses.pop(entry).boxes)
        self._waiting.pop(entry, None)
        slots = self._slots.pop(entry, None)
        if slots is not None:
            self._leaving += slots
            self._removed(entry, slots)
        if not self._clauses:
            self._index = None
            self._leaving.clear()

    def find(self, point: Point) -> list[Entry]:
        """Whose clauses hold, each once."""
        slots = self._search(point)
        if slots is None:
            return [entry for entry, clause in self._clauses.items() if clause.holds(point)]
        return list(dict.fromkeys(self._entries(slots.tolist(), point)))

    def _search(self, point: Point) -> Slots | None:
        """The boxes that have its values, whatever texts they ask for; None: there is no index."""
        self.settle()
        return None if self._index is None else self._index.match_one(point.values)

    def _entries(self, slots: Iterable[int], point: Point) -> Iterator[Entry]:
        """Whose boxes these are, as often as they are, if the point has their texts."""
        at, texts = self._at, self._texts
        for slot in slots:
            entry = at[slot]
            assert entry is not None, "there is a box in it"
            if slot not in texts or has_texts(texts[slot], point):
                yield entry

    def settle(self) -> None:
        """Into the index with what waits, out of it with what is gone.

        Who asks for something need not call it before, but is not kept waiting then.
        """
        if self._leaving and self._index is not None:
            self._index.discard(self._leaving)
            self._leaving.clear()
        if not self._waiting:
            return
        if self._index is None:
            dimensions = self.space.dimensions
            self._index = BoxIndex(
                [one.low for one in dimensions], [one.high for one in dimensions]
            )
        placed = [(entry, box) for entry in self._waiting for box in self._clauses[entry].boxes]
        self._waiting.clear()
        slots = self._index.insert(
            [box.lows for _, box in placed], [box.highs for _, box in placed]
        )
        self._placed(slots.tolist(), placed)

    def _placed(self, slots: list[int], entries: Sequence[tuple[Entry, Box]]) -> None:
        """These boxes are in the index now."""
        self._at += [None] * (max(slots) + 1 - len(self._at))
        for slot, (entry, box) in zip(slots, entries, strict=True):
            self._at[slot] = entry
            known = self._slots.get(entry)
            if known is None:
                self._slots[entry] = [slot]
            else:
                known.append(slot)
            if box.texts:
                self._texts[slot] = box

    def _removed(self, entry: Entry, slots: list[int]) -> None:  # noqa: ARG002
        """These boxes of an entry are not there any more."""
        for slot in slots:
            self._at[slot] = None
            self._texts.pop(slot, None)
