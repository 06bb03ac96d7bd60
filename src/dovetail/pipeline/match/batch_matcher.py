"""Match Arrow batches of messages with boxes, using the kernels of the live cluster. No Spark.

    topics      the trie gives the filters that match each topic; each different topic is looked up
                once in a batch
    boxes       a filter with many boxes has a box index, as in a broker; the boxes of the other
                filters are compared directly
    texts       are compared if a point lies in a box with conditions on texts
    result      for each message, the numbers of its subscriptions, ascending, each once

A message whose topic is null or no valid name matches nothing. As in a broker, a message with an
infinite number or NaN in its space satisfies no clause; a null counts as missing. Numbers are in
the column `attributes`, texts in `texts`. If that is missing, no clause with a text holds.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.kernels.ascending import make_ascending
from dovetail.attributes.space import Space
from dovetail.limits import TOPIC_BYTES_MAX
from dovetail.pipeline.match.arrow_arrays import (
    Bools,
    Floats,
    GroupedValues,
    Ints,
    matrix,
    point_matrix,
    whole,
)
from dovetail.pipeline.match.boxes import NO_SPACE
from dovetail.pipeline.match.text_conditions import TextConditions
from dovetail.topics.topic_column import TopicColumn
from dovetail.topics.trie import FilterTrie

INDEXED_MIN = 32
"""A filter with at least this many boxes gets an index."""

PAIRS_WANTED = 1 << 20
"""Pairs of messages and boxes to compare at once, and to return in one batch, approximately."""

ROWS_FIRST = 64
_GROWTH = 8
_NO_NAME = r"^$|[+#\x00]"


class BatchMatcher:
    """Finds which boxes of a fixed set each message matches."""

    def __init__(
        self, boxes: pa.Table, spaces: Sequence[Space], indexed_min: int = INDEXED_MIN
    ) -> None:
        """`boxes` has the columns of `boxes_schema`."""
        boxes = boxes.combine_chunks()
        numbers, first = np.unique(boxes["number"].to_numpy(), return_index=True)
        self.ids: pa.Array = whole(boxes["id"].take(pa.array(first)))
        self._owners = np.searchsorted(numbers, boxes["number"].to_numpy())
        self._words = np.zeros(-(-len(numbers) // 64), np.uint64)
        self._summary = np.zeros(-(-len(self._words) // 64), np.uint64)
        self._entries = _FilterTrie(whole(boxes["filter"]))
        self._rows_next = ROWS_FIRST
        space_of = boxes["space"].to_numpy()
        self._plain = GroupedValues(self._entries.of_rows, space_of == NO_SPACE, len(self._entries))
        self._spaces = [
            _SpaceBoxes(space, boxes, space_of == number, self._entries, self._owners, indexed_min)
            for number, space in enumerate(spaces)
            if (space_of == number).any()
        ]

    def match(self, messages: pa.RecordBatch) -> Iterator[tuple[int, Ints, Ints]]:
        """Match a batch in slices. Yield the first row, the offsets of rows, and their matches.

        A match is a position in `ids`. Matches ascend within a row.
        """
        start = 0
        while start < len(messages):
            rows = messages.slice(start, self._rows_next)
            offsets, places = self._ascending(self._pairs(rows), len(rows))
            yield start, offsets, places
            start += len(rows)
            wanted = PAIRS_WANTED * len(rows) // max(len(places), 1)
            self._rows_next = int(np.clip(wanted, 1, _GROWTH * len(rows)))

    def _pairs(self, messages: pa.RecordBatch) -> Ints:
        """Return matches as row << 32 | position in `ids`."""
        of_topic, topic_of = self._entries.matching(messages["topic"])
        rows, entries = of_topic.expand(topic_of)
        in_rows, boxes = self._plain.joined(rows, entries)
        found = [in_rows << 32 | self._owners[boxes]]
        for space in self._spaces:
            found += space.matching(messages, rows, entries)
        found = [keys for keys in found if len(keys)] or found[:1]
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _ascending(self, keys: Ints, rows: int) -> tuple[Ints, Ints]:
        """Return the offsets of rows, and their matches, ascending and each once."""
        of_keys = keys >> 32
        if (of_keys[1:] < of_keys[:-1]).any():
            # The keys are concatenated filter by filter, each sorted by row: a stable sort of such
            # runs is fast.
            keys = np.sort(keys, kind="stable")
            of_keys = keys >> 32
        starts = np.searchsorted(of_keys, np.arange(rows + 1))
        places = keys & 0xFFFF_FFFF
        offsets = np.zeros(rows + 1, np.int64)
        last = make_ascending(starts, places, self._words, self._summary, offsets)
        return offsets, places[:last]


def match_arrays(
    matcher: BatchMatcher, messages: pa.RecordBatch, id_type: pa.DataType
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each message: `message`, and the ids of its `subscriptions`."""
    for start, offsets, places in matcher.match(messages):
        found = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), matcher.ids.take(pa.array(places))
        )
        ids = messages["id"].slice(start, len(offsets) - 1)
        yield pa.RecordBatch.from_arrays(
            [ids, found.cast(pa.list_(id_type))], ["message", "subscriptions"]
        )


def match_pairs(
    matcher: BatchMatcher, messages: pa.RecordBatch, id_type: pa.DataType
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each `message` and `subscription` that match."""
    for start, offsets, places in matcher.match(messages):
        rows = np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))
        yield pa.RecordBatch.from_arrays(
            [
                messages["id"].take(pa.array(rows)),
                matcher.ids.take(pa.array(places)).cast(id_type),
            ],
            ["message", "subscription"],
        )


class _FilterTrie:
    """The distinct filters, numbered, in a trie."""

    def __init__(self, filters: pa.Array) -> None:
        coded = filters.dictionary_encode()
        self.of_rows: Ints = coded.indices.to_numpy().astype(np.int64)
        self._count = len(coded.dictionary)
        self._trie: FilterTrie[int] = FilterTrie()
        for number, topic_filter in enumerate(TopicColumn.of_arrow(coded.dictionary)):
            self._trie[topic_filter] = number

    def __len__(self) -> int:
        return self._count

    def matching(self, topics: pa.Array) -> tuple[GroupedValues, Ints]:
        """Return the matching filters of each distinct topic, and the topic number of each row."""
        coded = topics.dictionary_encode()
        names = coded.dictionary
        topic_of = coded.indices.fill_null(len(names)).to_numpy().astype(np.int64)
        counts = np.zeros(len(names) + 1, np.int64)  # the last is for null
        is_none = pc.or_(
            pc.match_substring_regex(names, _NO_NAME),
            pc.greater(pc.binary_length(names), TOPIC_BYTES_MAX),
        )
        valid = np.flatnonzero(~is_none.to_numpy(zero_copy_only=False))
        matched, numbers = self._trie.match_column(
            TopicColumn.of_arrow(names.take(pa.array(valid)))
        )
        counts[valid] = matched
        # No filter is ever removed, so filters are numbered in the order in which they came. A
        # number may occur twice if hashes of prefixes collide.
        found = GroupedValues.of(counts, numbers.astype(np.int64))
        return _without_duplicates(found), topic_of


def _without_duplicates(lists: GroupedValues) -> GroupedValues:
    owners = np.repeat(np.arange(len(lists.counts)), lists.counts)
    keys = owners << 32 | lists.values
    unique = np.unique(keys)
    if len(unique) == len(keys):
        return lists
    return GroupedValues.of(
        np.bincount(unique >> 32, minlength=len(lists.counts)), unique & 0xFFFF_FFFF
    )


class _SpaceBoxes:
    """The boxes of one space."""

    def __init__(
        self,
        space: Space,
        boxes: pa.Table,
        chosen: Bools,
        entries: _FilterTrie,
        owners: Ints,
        indexed_min: int,
    ) -> None:
        self._names = pa.array([one.name for one in space.dimensions])
        rows = np.flatnonzero(chosen)
        self._owners = owners[rows]
        dimensions = len(space.dimensions)
        wanted = pa.array(rows)
        self._lows = matrix(boxes["lows"].take(wanted), dimensions)
        self._highs = matrix(boxes["highs"].take(wanted), dimensions)
        self._open = np.isneginf(self._lows) & np.isposinf(self._highs)
        self._texts = TextConditions(whole(boxes["texts"].take(wanted)))
        of_boxes = entries.of_rows[rows]
        counts = np.bincount(of_boxes, minlength=len(entries))
        self._has_boxes = counts > 0
        self._few = GroupedValues(of_boxes, counts[of_boxes] < indexed_min, len(entries))
        self._is_indexed = counts >= indexed_min
        self._indexed: dict[int, _FilterIndex] = {}
        low = [one.low for one in space.dimensions]
        high = [one.high for one in space.dimensions]
        many = GroupedValues(of_boxes, counts[of_boxes] >= indexed_min, len(entries))
        for entry in np.flatnonzero(self._is_indexed).tolist():
            own = many.values[many.starts[entry] :][: many.counts[entry]]
            index = BoxIndex(low, high)
            slots = index.insert(self._lows[own], self._highs[own])
            box_at = np.zeros(int(slots.max()) + 1, np.int64)
            box_at[slots] = own
            self._indexed[entry] = _FilterIndex(index, box_at, self._owners[box_at])

    def matching(self, messages: pa.RecordBatch, rows: Ints, entries: Ints) -> list[Ints]:
        """Return the matches among these pairs of rows and filters, as row << 32 | owner."""
        wanted = self._has_boxes[entries]
        rows, entries = rows[wanted], entries[wanted]
        if not len(rows):
            return []
        points, is_bad = point_matrix(messages["attributes"], self._names)
        if is_bad.any():
            kept = ~is_bad[rows]
            rows, entries = rows[kept], entries[kept]
        return [
            *self._in_few(messages, points, rows, entries),
            *self._in_indexes(messages, points, rows, entries),
        ]

    def _with_texts(self, messages: pa.RecordBatch, rows: Ints, boxes: Ints) -> Ints:
        if self._texts.any:
            has = self._texts.hold(messages, rows, boxes)
            rows, boxes = rows[has], boxes[has]
        return rows << 32 | self._owners[boxes]

    def _in_few(
        self, messages: pa.RecordBatch, points: Floats, rows: Ints, entries: Ints
    ) -> Iterator[Ints]:
        """Compare all boxes of filters without an index, in slices of bounded size."""
        has = self._few.counts[entries] > 0
        rows, entries = rows[has], entries[has]
        ends = np.cumsum(self._few.counts[entries])
        start = 0
        while start < len(rows):
            before = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, before + PAIRS_WANTED)), start + 1)
            pair_rows, boxes = self._few.joined(rows[start:stop], entries[start:stop])
            inside = np.ones(len(boxes), np.bool_)
            for dimension in range(points.shape[1]):
                value = points[pair_rows, dimension]
                within = self._lows[boxes, dimension] <= value
                within &= value < self._highs[boxes, dimension]
                inside &= within | self._open[boxes, dimension]
            yield self._with_texts(messages, pair_rows[inside], boxes[inside])
            start = stop

    def _in_indexes(
        self, messages: pa.RecordBatch, points: Floats, rows: Ints, entries: Ints
    ) -> Iterator[Ints]:
        has = self._is_indexed[entries]
        rows, entries = rows[has], entries[has]
        order = np.argsort(entries, kind="stable")
        rows, entries = rows[order], entries[order]
        starts = np.flatnonzero(np.diff(entries, prepend=-1)).tolist()
        for start, stop in pairwise([*starts, len(entries)]):
            index, box_at, owner_at = self._indexed[int(entries[start])]
            own = rows[start:stop]
            offsets, slots = index.match(points[own])
            matched = np.diff(offsets)
            if self._texts.any:
                yield self._with_texts(messages, np.repeat(own, matched), box_at[slots])
            else:
                yield np.repeat(own << 32, matched) | owner_at[slots]


class _FilterIndex(NamedTuple):
    """The index of one filter's boxes. By slot of the index: its box, and the owner of the box."""

    boxes: BoxIndex
    box_at: Ints
    owner_at: Ints
