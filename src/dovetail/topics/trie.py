"""The exact index of a broker's own filters: it finds those that match a topic.

The trie maps filters to values of any type. It consists of flat arrays, which grow by half when
full and shrink when nearly empty (kernels/trie.py has the layout). A million filters of six random
levels take some hundreds of bytes each, and no Python object but the value. A match visits only the
part of the tree that the topic reaches.

No call takes long, however many filters there are: nodes and texts move to larger or smaller arrays
bit by bit, with the changes that follow. A topic that reaches a large part of the tree is searched
in pieces (`search`).

A call is whole before another thread's begins (kernels keep the interpreter's lock), but changes
from several threads must take turns.
"""

import mmap
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.topics.kernels import trie as kernels
from dovetail.topics.topic_column import TopicColumn

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]
Value = TypeVar("Value")
Number = TypeVar("Number", bound=np.integer[Any])

_SLOTS_MIN = 64
_LOAD_MAX = 0.75
_LOAD_MIN = 0.1
_FILTERS_MIN = 16
_FILTERS_GROWTH_MAX = 1 << 18
_TEXT_MIN = 1024
_MATCHES_MIN = 64
_FREE = -1
_STEPS_MAX = 1 << 62  # no limit
_NO_TEXT = np.zeros(0, np.uint8)
_PAGED_BYTES_MIN = 1 << 20

# Each change moves so much. A table is then empty before its successor is full: the successor has
# room for a third more nodes, and each new node moves sixteen slots. A new buffer has room for half
# as much text again, and each byte of it moves a quarter of a filter.
_MOVED_MIN = 64
_SLOTS_PER_NODE = 16
_BYTES_PER_TEXT = 4


class FilterTrie(MutableMapping[str | bytes, Value]):
    """A mapping from filters to values. The caller checks filters from outside (names.py)."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = np.uint64(seed)
        self._table = _NodeTable(_SLOTS_MIN)
        self._older = _NodeTable(0)
        self._unmapping: list[_NodeTable] = []  # moved; their memory goes bit by bit
        self._older_at = 0  # slots before this one have moved
        self._nodes_used = 0
        self._texts: tuple[Bytes, Bytes] = (np.zeros(_TEXT_MIN, np.uint8), _NO_TEXT)
        self._text_in = 0  # the buffer in use; texts in the other one move there
        self._texts_at = 0  # texts of filters below this number have moved
        self._text_to_move = 0  # bytes in the other buffer, for which there is room
        self._text_end = 0
        self._text_live = 0
        self._spans = np.zeros((_FILTERS_MIN, 2), np.int64)
        self._following = np.zeros(_FILTERS_MIN, np.int32)
        self._values: list[Value | None] = []
        self._free: list[int] = []  # numbers that were free, and mostly are
        self._count = 0
        self._changes = 0

    def match(self, topic: str | bytes) -> list[Value]:
        """Return the values of all filters that match this (valid) topic name."""
        topic = topic.encode() if isinstance(topic, str) else topic
        (numbers,) = self.match_many((topic,))
        # Once each: prefixes whose hashes collide may lead to a filter twice.
        return [self.value(number) for number in dict.fromkeys(numbers)]

    def match_many(self, topics: Sequence[bytes]) -> list[tuple[int, ...]]:
        """Return the numbers of the filters that match each of these (valid) topic names.

        A filter's number is valid until the trie changes. A number may occur twice.
        """
        return [found or () for found in self.match_some(topics, _STEPS_MAX)]

    def match_some(
        self, topics: Sequence[bytes], steps_max: int
    ) -> Sequence[tuple[int, ...] | None]:
        """Match as `match_many`, and visit about `steps_max` nodes for all topics together.

        A topic that needs more nodes gets None; use `search` for it.
        """
        text = np.frombuffer(b"".join(topics), np.uint8)
        ends = np.fromiter(accumulate(map(len, topics)), np.int64, len(topics))
        counts, numbers = self._match(text, ends, steps_max)
        if not len(numbers) and counts.min(initial=0) >= 0:
            return [()] * len(topics)
        found = iter(numbers.tolist())
        return [
            tuple(islice(found, matched)) if matched >= 0 else None for matched in counts.tolist()
        ]

    def match_column(self, topics: TopicColumn) -> tuple[Numbers, Numbers]:
        """Return arrays: how many filters match each topic, and their numbers."""
        start = topics.offsets[0]
        return self._match(topics.data[start:], topics.offsets[1:] - start, _STEPS_MAX)

    def _match(
        self, text: Bytes, ends: npt.NDArray[np.int64], steps_max: int
    ) -> tuple[Numbers, Numbers]:
        counts = np.empty(len(ends), np.int32)
        room = _MATCHES_MIN + 2 * len(ends)
        while True:
            numbers = np.empty(room, np.int32)
            count = kernels.match(
                self._table.nodes,
                self._older.nodes,
                *self._texts,
                self._spans,
                self._following,
                text,
                ends,
                self._seed,
                steps_max,
                numbers,
                counts,
            )
            if count <= room:
                return counts, numbers[:count]
            room = count

    def search(self, topic: bytes, steps: int) -> Iterator[list[int]]:
        """Yield the numbers of the filters that match one topic, in pieces of `steps` nodes.

        The trie may change between two pieces; numbers are valid until it does. A filter that is in
        from the beginning to the end is found.
        """
        text = np.frombuffer(topic, np.uint8)
        levels = np.empty(topic.count(b"/") + 1, np.uint64)
        stack = np.empty(len(levels) + 1, np.uint64)
        stack_level = np.empty(len(levels) + 1, np.int64)
        kernels.begin(text, self._seed, levels, stack, stack_level)
        top = 1
        while top:
            before, state = top, (stack.copy(), stack_level.copy())
            numbers = np.empty(2 * steps + _MATCHES_MIN, np.int32)
            while True:
                top, count = kernels.go_on(
                    self._table.nodes,
                    self._older.nodes,
                    *self._texts,
                    self._spans,
                    self._following,
                    text,
                    levels,
                    stack,
                    stack_level,
                    before,
                    steps,
                    numbers,
                )
                if count <= len(numbers):
                    break
                # Many filters share a node: their prefixes' hashes collide.
                stack[:], stack_level[:] = state
                numbers = np.empty(count, np.int32)
            yield numbers[:count].tolist()

    def value(self, number: int) -> Value:
        """Return the value of the filter with this number."""
        return self._values[number]  # type: ignore[return-value]

    def __getitem__(self, topic_filter: str | bytes) -> Value:
        return self._values[self._number(topic_filter)]  # type: ignore[return-value]

    def __setitem__(self, topic_filter: str | bytes, value: Value) -> None:
        (number,) = self._put((_encoded(topic_filter),), (value,))
        self._values[number] = value

    def setdefault(self, topic_filter: str | bytes, default: Value) -> Value:
        """Return the filter's value; insert `default` if it was not in."""
        return self.setdefault_many((_encoded(topic_filter),), (default,))[0]

    def setdefault_many(
        self, topic_filters: Sequence[bytes], defaults: Sequence[Value]
    ) -> list[Value]:
        """Return the filters' values; insert the defaults of those that were not in.

        A few dozen filters are one short step. For one that occurs twice its first default counts.
        """
        values = self._values
        return [values[number] for number in self._put(topic_filters, defaults)]  # type: ignore[misc]

    def _put(self, wanted: Sequence[bytes], values: Sequence[Value]) -> list[int]:
        """Return the numbers of filters, and insert those that were not in with their values."""
        text = b"".join(wanted)
        count = len(wanted)
        self._make_room_for_nodes(2 * count + text.count(b"/"))
        self._make_room_for_text(len(text))
        free = self._next_numbers(count)
        found = np.empty(count, np.int32)
        new, size, fresh = kernels.insert_many(
            self._table.nodes,
            self._older.nodes,
            *self._texts,
            self._spans,
            self._following,
            np.frombuffer(text, np.uint8),
            np.fromiter(accumulate(map(len, wanted)), np.int64, count),
            self._seed,
            np.array(free, np.int32),
            self._text_end + (int(kernels.SECOND) if self._text_in else 0),
            found,
        )
        numbers: list[int] = found.tolist()
        behind_all = len(self._values)
        self._free += [number for number in free[new:] if number < behind_all]
        if not new:
            return numbers
        given = iter(free[:new])
        number = next(given)
        for place, one in enumerate(numbers):
            if one != number:
                continue
            if number == len(self._values):
                self._values.append(values[place])
            else:
                self._values[number] = values[place]
            number = next(given, _FREE)
        self._count += new
        self._changes += 1
        self._nodes_used += fresh
        self._text_end += size
        self._text_live += size
        self._continue_moves(_SLOTS_PER_NODE * fresh, size // _BYTES_PER_TEXT)
        return numbers

    def __delitem__(self, topic_filter: str | bytes) -> None:
        wanted = _encoded(topic_filter)
        number, gone = kernels.delete(
            self._table.nodes,
            self._older.nodes,
            *self._texts,
            self._spans,
            self._following,
            np.frombuffer(wanted, np.uint8),
            self._seed,
        )
        if number == kernels.NONE:
            raise KeyError(topic_filter)
        self._nodes_used -= gone
        self._text_live -= len(wanted)
        self._values[number] = None
        self._free.append(number)
        self._count -= 1
        self._changes += 1
        self._shrink()
        self._continue_moves(0, 0)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """Yield the filters, in no particular order."""
        changes = self._changes
        for number in range(len(self._values)):
            if changes != self._changes:
                raise RuntimeError("the trie changed while it was iterated over")
            if self._spans[number, 0] != _FREE:
                yield self._text(number)

    def clear(self) -> None:
        seed, changes = int(self._seed), self._changes
        unmapping = [*self._unmapping, *(t for t in (self._table, self._older) if t.is_large)]
        self.__init__(seed=seed)  # type: ignore[misc]
        self._unmapping = unmapping
        self._changes = changes + 1

    def tidy(self) -> bool:
        """Do some of the moves that earlier changes began. Return False if there were none.

        Changes do it too; call this while there are none.
        """
        is_tidy = not (
            self._unmapping or len(self._older.nodes) or len(self._texts[1 - self._text_in])
        )
        self._continue_moves(0, 0)
        return not is_tidy

    def popitem(self) -> tuple[bytes, Value]:
        """Remove any filter. Return it with its value."""
        if not self._count:
            raise KeyError("the trie is empty")
        self._drop_free_at_end()
        topic_filter = self._text(len(self._values) - 1)
        return topic_filter, self.pop(topic_filter)

    @property
    def nbytes(self) -> int:
        """Return the memory in bytes, without the values themselves."""
        arrays = (self._table.nodes, self._older.nodes, *self._texts, self._spans, self._following)
        lists = self._values.__sizeof__() + self._free.__sizeof__()
        return sum(array.nbytes for array in arrays) + lists

    def _number(self, topic_filter: str | bytes) -> int:
        number = kernels.locate(
            self._table.nodes,
            self._older.nodes,
            *self._texts,
            self._spans,
            self._following,
            np.frombuffer(_encoded(topic_filter), np.uint8),
            self._seed,
        )
        if number == kernels.NONE:
            raise KeyError(topic_filter)
        return int(number)

    def _text(self, number: int) -> bytes:
        start, stop = self._spans[number].tolist()
        second = int(kernels.SECOND)
        if start >= second:
            return self._texts[1][start - second : stop].tobytes()
        return self._texts[0][start:stop].tobytes()

    # Numbers ------------------------------------------------------------------------

    def _next_numbers(self, count: int) -> list[int]:
        """Take free numbers from the end of `_free`, and then those behind all."""
        found: dict[int, None] = {}
        behind_all = len(self._values)
        for _ in range(_MOVED_MIN + count):
            if not self._free or len(found) == count:
                break
            number = self._free.pop()
            # It may have been dropped, and perhaps given again, since it was put there.
            if number < behind_all and self._spans[number, 0] == _FREE:
                found[number] = None
        end = behind_all + count - len(found)
        if end > len(self._spans):
            rows = max(end, behind_all + min(behind_all // 2, _FILTERS_GROWTH_MAX))
            self._spans.resize((rows, 2), refcheck=False)
            self._following.resize(rows, refcheck=False)
        return [*found, *range(behind_all, end)]

    def _drop_free_at_end(self) -> None:
        """Drop free numbers at the end."""
        count = len(self._values)
        if count and self._spans[count - 1, 0] == _FREE:
            del self._values[kernels.count_used(self._spans, count) :]

    # Nodes and texts move -----------------------------------------------------------

    def _continue_moves(self, slots: int, texts: int) -> None:
        """Move some of the nodes and texts that are still in an old array."""
        if len(self._older.nodes):
            self._move_nodes(max(slots, _MOVED_MIN))
        if len(self._texts[1 - self._text_in]):
            self._move_texts(max(texts, _MOVED_MIN))
        if self._unmapping and not self._unmapping[-1].release_some():
            self._unmapping.pop()

    def _make_room_for_nodes(self, nodes: int) -> None:
        wanted = self._nodes_used + nodes
        if wanted > _LOAD_MAX * len(self._table.nodes):
            slots = max(int(wanted / _LOAD_MAX) + 1, len(self._table.nodes) * 3 // 2)
            self._begin_to_move_nodes(slots)

    def _begin_to_move_nodes(self, slots: int) -> None:
        if len(self._older.nodes):
            self._move_nodes(len(self._older.nodes))
        self._older, self._older_at = self._table, 0
        self._table = _NodeTable(slots)
        self._move_nodes(_MOVED_MIN)

    def _move_nodes(self, slots: int) -> None:
        self._older_at = kernels.move_nodes(
            self._older.nodes, self._older_at, slots, self._table.nodes
        )
        if self._older_at == len(self._older.nodes):
            if self._older.is_large:
                self._unmapping.append(self._older)
            self._older, self._older_at = _NodeTable(0), 0

    def _make_room_for_text(self, size: int) -> None:
        if self._text_end + self._text_to_move + size > len(self._texts[self._text_in]):
            self._move_texts(len(self._values))
            if self._text_end + size > len(self._texts[self._text_in]):
                self._begin_to_move_texts(size)

    def _begin_to_move_texts(self, room: int) -> None:
        """Begin to move all texts to a new buffer with room to spare."""
        text = np.zeros(max((self._text_live + room) * 3 // 2, _TEXT_MIN), np.uint8)
        first, second = self._texts
        self._texts = (text, second) if self._text_in else (first, text)
        self._text_in = 1 - self._text_in
        self._text_end = 0
        self._text_to_move = self._text_live
        self._texts_at = 0
        self._move_texts(_MOVED_MIN)

    def _move_texts(self, count: int) -> None:
        if not len(self._texts[1 - self._text_in]):
            return
        stop = min(self._texts_at + count, len(self._values))
        end = kernels.move_texts(
            *self._texts, bool(self._text_in), self._spans, self._texts_at, stop, self._text_end
        )
        self._text_to_move -= end - self._text_end
        self._text_end = end
        self._texts_at = stop
        if stop == len(self._values):
            first, second = self._texts
            self._texts = (_NO_TEXT, second) if self._text_in else (first, _NO_TEXT)
            self._text_to_move = 0

    def _shrink(self) -> None:
        """Begin to move to smaller arrays if most of the memory is unused."""
        if not self._count:
            self.clear()
            return
        self._drop_free_at_end()
        if (
            self._nodes_used < _LOAD_MIN * len(self._table.nodes)
            and len(self._table.nodes) > _SLOTS_MIN
            and not len(self._older.nodes)
        ):
            self._begin_to_move_nodes(max(int(self._nodes_used / _LOAD_MAX * 2), _SLOTS_MIN))
            if not len(self._texts[1 - self._text_in]):
                self._begin_to_move_texts(0)
        if len(self._values) < _LOAD_MIN * len(self._spans) and len(self._spans) > _FILTERS_MIN:
            numbers = max(2 * len(self._values), _FILTERS_MIN)
            self._spans = self._spans[:numbers].copy()
            self._following = self._following[:numbers].copy()


class _NodeTable:
    """The memory of a hash table of nodes; a large table comes and goes in small pages.

    Nodes are spread over the table, and a huge page is cleared when it is first touched: the first
    change to a large table would wait for hundreds of them. To release all pages at once takes as
    long.
    """

    def __init__(self, slots: int) -> None:
        size = slots * kernels.NODE.itemsize
        self._memory: mmap.mmap | None = None
        self._left = size
        if size < _PAGED_BYTES_MIN or not hasattr(mmap, "MADV_NOHUGEPAGE"):
            self.nodes = np.zeros(slots, kernels.NODE)
            return
        memory = self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without large pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.nodes = np.frombuffer(memory, kernels.NODE)

    @property
    def is_large(self) -> bool:
        return self._memory is not None

    def release_some(self) -> bool:
        """Release some of an unused table's memory. Return False when none is left."""
        if self._memory is None or self._left <= _PAGED_BYTES_MIN:
            return False
        self._left = (self._left - 1) // _PAGED_BYTES_MIN * _PAGED_BYTES_MIN
        self._memory.madvise(mmap.MADV_DONTNEED, self._left, _PAGED_BYTES_MIN)
        return True


def _encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
