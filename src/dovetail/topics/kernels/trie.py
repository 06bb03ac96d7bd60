"""The exact index: a tree of prefixes in one hash table, and every answer checked against the text.

A node is found by its prefix's hash (`hashing.child`), so a tree of six million nodes is one array
without a pointer, and the walk over it computes hashes as the sketches do. Two prefixes whose
hashes collide share a node. A filter found there is compared with the topic byte for byte before it
counts; it may be found twice, and the caller takes it once.

A node says how many filters go through it (0: the slot is free), how many of them go on with `+`,
and which filters end here or end here with `/#`: each a list through `following`, nearly always of
one filter.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compiling import inlined, kernel, part
from dovetail.topics.kernels.hashing import (
    HASH,
    PLUS,
    ROOT,
    SINGLE_LEVEL,
    U64,
    Bytes,
    Words,
    child,
    count_levels,
    hash_levels,
    is_reserved,
    level_kinds,
)
from dovetail.topics.kernels.probing import after, home_of, may_fill

NODE = np.dtype(
    [("key", "u8"), ("through", "u4"), ("plus", "u4"), ("ends", "i4"), ("ends_multi", "i4")]
)
NONE = np.int32(-1)

Nodes = npt.NDArray[np.void]
Filters = npt.NDArray[np.int32]
Spans = npt.NDArray[np.int64]

_SLASH, _PLUS, _HASH = 0x2F, 0x2B, 0x23


@inlined
def _find(nodes: Nodes, key: np.uint64) -> np.uint64:
    """The slot of a node, or the free one where it belongs."""
    slots = U64(len(nodes))
    slot = home_of(key, slots)
    while nodes[slot].through != 0 and nodes[slot].key != key:
        slot = after(slot, slots)
    return slot


@part
def _remove(nodes: Nodes, hole: np.uint64) -> None:
    slots = U64(len(nodes))
    slot = after(hole, slots)
    while nodes[slot].through != 0:
        if may_fill(hole, slot, home_of(nodes[slot].key, slots)):
            nodes[hole] = nodes[slot]
            hole = slot
        slot = after(slot, slots)
    nodes[hole].through = 0


@part
def _parts(wanted: Bytes, seed: np.uint64) -> tuple[Words, npt.NDArray[np.uint8]]:
    """The hash and the kind of each level of a filter."""
    start = np.int64(0)
    depth = count_levels(wanted, start, len(wanted))
    levels = np.empty(depth, np.uint64)
    kinds = np.empty(depth, np.uint8)
    hash_levels(wanted, start, len(wanted), seed, levels, U64(0))
    level_kinds(wanted, start, len(wanted), kinds)
    return levels, kinds


@kernel
def move_nodes(nodes: Nodes, larger: Nodes) -> None:
    for i in range(len(nodes)):
        if nodes[i].through != 0:
            larger[_find(larger, nodes[i].key)] = nodes[i]


@kernel
def move_text(text: Bytes, spans: Spans, order: Spans, larger: Bytes) -> int:
    """The filters' texts, in this order, to the front of another buffer; returns where they end."""
    end = 0
    for number in order:
        start, stop = spans[number, 0], spans[number, 1]
        spans[number, 0] = end
        for i in range(start, stop):  # NumPy's slices bring texts of errors along, to be compiled
            larger[end] = text[i]
            end += 1
        spans[number, 1] = end
    return end


@kernel
def matches(
    filters: Bytes, start: int, stop: int, topic: Bytes, topic_start: int, size: int
) -> bool:
    """Does the filter in filters[start:stop] match topic[topic_start:size]? Section 4.7."""
    at = start
    given = topic_start
    if is_reserved(topic, given, size) and (filters[start] == _PLUS or filters[start] == _HASH):
        return False
    while True:
        # Both stand at the beginning of a level.
        if at < stop and filters[at] == _HASH:
            return True
        if at < stop and filters[at] == _PLUS:
            at += 1
            while given < size and topic[given] != _SLASH:
                given += 1
        else:
            while at < stop and filters[at] != _SLASH:
                if given >= size or topic[given] != filters[at]:
                    return False
                at += 1
                given += 1
            if given < size and topic[given] != _SLASH:
                return False
        if given == size:
            # The topic is at its end; so must the filter be, but for a last '/#'.
            return at == stop or (stop - at == 2 and filters[at + 1] == _HASH)
        if at == stop:
            return False
        at += 1
        given += 1


@inlined
def _is_text(text: Bytes, start: int, stop: int, wanted: Bytes) -> bool:
    if stop - start != len(wanted):
        return False
    for i in range(len(wanted)):
        if text[start + i] != wanted[i]:
            return False
    return True


@kernel
def locate(
    nodes: Nodes, text: Bytes, spans: Spans, following: Filters, wanted: Bytes, seed: np.uint64
) -> int:
    """The number of a filter, or NONE if it is not in."""
    levels, kinds = _parts(wanted, seed)
    depth = len(levels)
    key = ROOT
    for i in range(depth):
        if kinds[i] != HASH:
            key = child(key, SINGLE_LEVEL if kinds[i] == PLUS else levels[i])
    node = nodes[_find(nodes, key)]
    if node.through == 0:
        return NONE
    number = node.ends_multi if kinds[depth - 1] == HASH else node.ends
    while number != NONE and not _is_text(text, spans[number, 0], spans[number, 1], wanted):
        number = following[number]
    return number


@kernel
def insert(nodes: Nodes, following: Filters, number: int, wanted: Bytes, seed: np.uint64) -> int:
    """Put filter `number` in, which is not; there is room. Returns how many nodes are new."""
    levels, kinds = _parts(wanted, seed)
    depth = len(levels)
    fresh = 0
    key = ROOT
    for i in range(depth + 1):
        slot = _find(nodes, key)
        if nodes[slot].through == 0:
            nodes[slot].key = key
            nodes[slot].plus = 0
            nodes[slot].ends = NONE
            nodes[slot].ends_multi = NONE
            fresh += 1
        nodes[slot].through += np.uint32(1)
        if i == depth:
            following[number] = nodes[slot].ends
            nodes[slot].ends = number
        elif kinds[i] == HASH:
            following[number] = nodes[slot].ends_multi
            nodes[slot].ends_multi = number
            break
        elif kinds[i] == PLUS:
            nodes[slot].plus += np.uint32(1)
            key = child(key, SINGLE_LEVEL)
        else:
            key = child(key, levels[i])
    return fresh


@inlined
def _unlink(following: Filters, first: int, number: int) -> int:
    """A list without one of its filters; returns its new first."""
    if first == number:
        return following[number]
    before = first
    while following[before] != number:
        before = following[before]
    following[before] = following[number]
    return first


@kernel
def delete(nodes: Nodes, following: Filters, number: int, wanted: Bytes, seed: np.uint64) -> int:
    """Take filter `number` out, which is in; returns how many nodes went."""
    levels, kinds = _parts(wanted, seed)
    depth = len(levels)
    gone = 0
    key = ROOT
    for i in range(depth + 1):
        slot = _find(nodes, key)
        last = i == depth or kinds[i] == HASH
        if i == depth:
            nodes[slot].ends = _unlink(following, nodes[slot].ends, number)
        elif kinds[i] == HASH:
            nodes[slot].ends_multi = _unlink(following, nodes[slot].ends_multi, number)
        elif kinds[i] == PLUS:
            nodes[slot].plus -= np.uint32(1)
            key = child(key, SINGLE_LEVEL)
        else:
            key = child(key, levels[i])
        if nodes[slot].through == 1:
            _remove(nodes, slot)
            gone += 1
        else:
            nodes[slot].through -= np.uint32(1)
        if last:
            break
    return gone


@inlined
def _collect(
    text: Bytes,
    spans: Spans,
    following: Filters,
    first: int,
    topic: Bytes,
    topic_start: int,
    topic_stop: int,
    out: Filters,
    count: int,
) -> int:
    number = first
    while number != NONE:
        if matches(text, spans[number, 0], spans[number, 1], topic, topic_start, topic_stop):
            if count < len(out):
                out[count] = number
            count += 1
        number = following[number]
    return count


@kernel
def match(
    nodes: Nodes,
    text: Bytes,
    spans: Spans,
    following: Filters,
    topics: Bytes,
    ends: Spans,
    seed: np.uint64,
    out: Filters,
    counts: Filters,
) -> int:
    """The filters that match each topic; returns how many, of which `out` holds as many as fit.

    Topics lie one behind the other, and `ends` says where each ends; `counts` becomes how many of
    the filters in `out` are for each. The walk goes on with `+` and leaves the literal child on a
    stack, so the stack is no deeper than the topic; it visits only nodes that exist.
    """
    room = 0
    start = np.int64(0)
    for i in range(len(ends)):
        room = max(room, count_levels(topics, start, ends[i]))
        start = ends[i]
    levels = np.empty(room, np.uint64)
    stack = np.empty(room + 1, np.uint64)
    stack_level = np.empty(room + 1, np.int64)
    count = np.int64(0)
    start = np.int64(0)
    for i in range(len(ends)):
        stop = ends[i]
        before = count
        depth = count_levels(topics, start, stop)
        hash_levels(topics, start, stop, seed, levels, U64(0))
        reserved = is_reserved(topics, start, stop)
        stack[0] = ROOT
        stack_level[0] = 0
        top = 1
        while top > 0:
            top -= 1
            key = stack[top]
            level = stack_level[top]
            while True:
                node = nodes[_find(nodes, key)]
                if node.through == 0:
                    break
                wildcards = not (reserved and level == 0)
                if node.ends_multi != NONE and wildcards:
                    count = _collect(
                        text, spans, following, node.ends_multi, topics, start, stop, out, count
                    )
                if level == depth:
                    if node.ends != NONE:
                        count = _collect(
                            text, spans, following, node.ends, topics, start, stop, out, count
                        )
                    break
                stack[top] = child(key, levels[level])
                stack_level[top] = level + 1
                top += 1
                if node.plus == 0 or not wildcards:
                    break
                key = child(key, SINGLE_LEVEL)
                level += 1
        counts[i] = count - before
        start = stop
    return count
