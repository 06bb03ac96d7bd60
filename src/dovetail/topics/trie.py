"""The index a broker keeps of its own subscriptions: which filters match this topic? Exactly.

A mapping from filters to whatever the broker wants to know about them. All of it is flat arrays,
grown by half when full and given back when nearly empty (kernels/trie.py has the layout): a million
filters of six random levels take some hundreds of bytes each, and no Python object but the value. A
match costs what the part of the tree costs that the topic reaches, whatever else is in it.

A call is whole before another thread's begins (kernels keep the interpreter's lock), but changes
from several threads have to take turns.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from itertools import accumulate, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.topics.columns import Column
from dovetail.topics.kernels import trie as kernels

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]
Value = TypeVar("Value")
Number = TypeVar("Number", bound=np.integer[Any])

_SLOTS_MIN = 64
_LOAD_MAX = 0.75
_LOAD_MIN = 0.1
_FILTERS_MIN = 16
_TEXT_MIN = 1024
_MATCHES_MIN = 64
_FREE = -1


class FilterTrie(MutableMapping[str | bytes, Value]):
    """Filters are taken as they are: whoever takes them from outside checks them (names.py)."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = np.uint64(seed)
        self._nodes = np.zeros(_SLOTS_MIN, kernels.NODE)
        self._nodes_used = 0
        self._text = np.zeros(_TEXT_MIN, np.uint8)
        self._text_end = 0
        self._text_live = 0
        self._spans = np.zeros((_FILTERS_MIN, 2), np.int64)
        self._following = np.zeros(_FILTERS_MIN, np.int32)
        self._values: list[Value | None] = []
        self._free: set[int] = set()  # never the last number: that one is taken back
        self._changes = 0

    def match(self, topic: str | bytes) -> list[Value]:
        """The values of all filters that match this (valid) topic name."""
        topic = topic.encode() if isinstance(topic, str) else topic
        (numbers,) = self.match_many((topic,))
        # Once each: prefixes whose hashes collide may lead to a filter twice.
        return [self.value(number) for number in dict.fromkeys(numbers)]

    def match_many(self, topics: Sequence[bytes]) -> list[tuple[int, ...]]:
        """The numbers of the filters that match each of these (valid) topic names.

        A filter's number holds until the trie changes; one number may be there twice.
        """
        text = np.frombuffer(b"".join(topics), np.uint8)
        ends = np.fromiter(accumulate(map(len, topics)), np.int64, len(topics))
        counts, numbers = self._match(text, ends)
        if not len(numbers):
            return [()] * len(topics)
        found = iter(numbers.tolist())
        return [tuple(islice(found, matched)) for matched in counts.tolist()]

    def match_column(self, topics: Column) -> tuple[Numbers, Numbers]:
        """The same as arrays: how many filters match each topic, and their numbers."""
        start = topics.offsets[0]
        return self._match(topics.data[start:], topics.offsets[1:] - start)

    def _match(self, text: Bytes, ends: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        counts = np.empty(len(ends), np.int32)
        room = _MATCHES_MIN + 2 * len(ends)
        while True:
            numbers = np.empty(room, np.int32)
            count = kernels.match(
                self._nodes,
                self._text,
                self._spans,
                self._following,
                text,
                ends,
                self._seed,
                numbers,
                counts,
            )
            if count <= room:
                return counts, numbers[:count]
            room = count

    def value(self, number: int) -> Value:
        """The value of the filter that has this number."""
        return self._values[number]  # type: ignore[return-value]

    def __getitem__(self, topic_filter: str | bytes) -> Value:
        return self._values[self._number(topic_filter)]  # type: ignore[return-value]

    def __setitem__(self, topic_filter: str | bytes, value: Value) -> None:
        wanted = _bytes(topic_filter)
        number = self._locate(wanted)
        if number != kernels.NONE:
            self._values[number] = value
        else:
            self._add(wanted, value)

    def setdefault(self, topic_filter: str | bytes, default: Value) -> Value:
        """The filter's value, which is `default` if it was not in."""
        wanted = _bytes(topic_filter)
        number = self._locate(wanted)
        if number != kernels.NONE:
            return self._values[number]  # type: ignore[return-value]
        self._add(wanted, default)
        return default

    def _add(self, wanted: Bytes, value: Value) -> None:
        number = self._new_number(value)
        self._make_room_for_nodes(2 + int(np.count_nonzero(wanted == ord("/"))))
        self._store_text(number, wanted)
        self._changes += 1
        self._nodes_used += kernels.insert(self._nodes, self._following, number, wanted, self._seed)

    def __delitem__(self, topic_filter: str | bytes) -> None:
        number = self._number(topic_filter)
        wanted = _bytes(topic_filter)
        self._nodes_used -= kernels.delete(self._nodes, self._following, number, wanted, self._seed)
        self._text_live -= len(wanted)
        self._spans[number] = _FREE
        self._values[number] = None
        self._free.add(number)
        while self._values and len(self._values) - 1 in self._free:
            self._values.pop()
            self._free.remove(len(self._values))
        self._changes += 1
        self._give_back()

    def __len__(self) -> int:
        return len(self._values) - len(self._free)

    def __iter__(self) -> Iterator[bytes]:
        """The filters, in no particular order."""
        changes = self._changes
        for start, stop in self._spans[: len(self._values)].tolist():
            if changes != self._changes:
                raise RuntimeError("the trie changed while it was iterated over")
            if start >= 0:
                yield self._text[start:stop].tobytes()

    def clear(self) -> None:
        seed, changes = int(self._seed), self._changes
        self.__init__(seed=seed)  # type: ignore[misc]
        self._changes = changes + 1

    def popitem(self) -> tuple[bytes, Value]:
        """Any filter, taken out with its value."""
        if not self._values:
            raise KeyError("the trie is empty")
        start, stop = self._spans[len(self._values) - 1].tolist()
        topic_filter = self._text[start:stop].tobytes()
        return topic_filter, self.pop(topic_filter)

    @property
    def nbytes(self) -> int:
        """Memory taken, without the values themselves."""
        arrays = (self._nodes, self._text, self._spans, self._following)
        lists = self._values.__sizeof__() + self._free.__sizeof__()
        return sum(array.nbytes for array in arrays) + lists

    def _number(self, topic_filter: str | bytes) -> int:
        number = self._locate(_bytes(topic_filter))
        if number == kernels.NONE:
            raise KeyError(topic_filter)
        return number

    def _locate(self, wanted: Bytes) -> int:
        return int(
            kernels.locate(
                self._nodes, self._text, self._spans, self._following, wanted, self._seed
            )
        )

    def _new_number(self, value: Value) -> int:
        if self._free:
            number = self._free.pop()
            self._values[number] = value
            return number
        number = len(self._values)
        if number == len(self._spans):
            self._spans = _grown(self._spans, number + 1)
            self._following = _grown(self._following, number + 1)
        self._values.append(value)
        return number

    def _make_room_for_nodes(self, nodes: int) -> None:
        wanted = self._nodes_used + nodes
        if wanted <= _LOAD_MAX * len(self._nodes):
            return
        self._move_nodes(max(int(wanted / _LOAD_MAX) + 1, len(self._nodes) * 3 // 2))

    def _move_nodes(self, slots: int) -> None:
        moved = np.zeros(slots, kernels.NODE)
        kernels.move_nodes(self._nodes, moved)
        self._nodes = moved

    def _give_back(self) -> None:
        """Memory that is hardly used any more."""
        if not len(self):
            self.clear()
            return
        if self._nodes_used < _LOAD_MIN * len(self._nodes) and len(self._nodes) > _SLOTS_MIN:
            self._move_nodes(max(int(self._nodes_used / _LOAD_MAX * 2), _SLOTS_MIN))
            self._compact_text(0)
        if len(self._values) < _LOAD_MIN * len(self._spans) and len(self._spans) > _FILTERS_MIN:
            numbers = max(2 * len(self._values), _FILTERS_MIN)
            self._spans = self._spans[:numbers].copy()
            self._following = self._following[:numbers].copy()
            self._free = set(self._free)  # a set keeps its size until it is made anew

    def _store_text(self, number: int, wanted: Bytes) -> None:
        end = self._text_end + len(wanted)
        if end > len(self._text):
            self._compact_text(len(wanted))
            end = self._text_end + len(wanted)
        self._text[self._text_end : end] = wanted
        self._spans[number] = self._text_end, end
        self._text_end = end
        self._text_live += len(wanted)

    def _compact_text(self, room: int) -> None:
        """The texts that are still in, moved to the front of a buffer with room to spare."""
        text = np.zeros(max((self._text_live + room) * 3 // 2, _TEXT_MIN), np.uint8)
        (used,) = np.nonzero(self._spans[: len(self._values), 0] >= 0)
        order = used[np.argsort(self._spans[used, 0])]
        self._text_end = int(kernels.move_text(self._text, self._spans, order, text))
        self._text = text


def _bytes(text: str | bytes) -> Bytes:
    encoded = text.encode() if isinstance(text, str) else text
    return np.frombuffer(encoded, np.uint8)


def _grown(array: npt.NDArray[Number], rows: int) -> npt.NDArray[Number]:
    larger = np.zeros((max(rows, len(array) * 3 // 2), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
