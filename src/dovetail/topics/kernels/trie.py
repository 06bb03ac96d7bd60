"""The exact index: a tree of prefixes in one hash table; every match is checked against the text.

A node is found by its prefix's hash (`hashing.child`). So a tree of six million nodes is one array
without a pointer, and the walk over it computes hashes as the sketches do. Two prefixes whose
hashes collide share a node. A filter found there is compared with the topic byte for byte before it
counts. It may be found twice; the caller removes duplicates.

A node says how many filters go through it (0: the slot is free), how many of them go on with `+`,
and which filters end here or end here with `/#`. Each is a list through `following`, nearly always
of one filter.

A table that is full, or nearly empty, is not moved at once: no caller shall wait for millions of
nodes. For a while there are two tables, `nodes` and `older`, and each change moves some nodes. A
node is in one of them; a node that changes is moved first. The texts of filters move in the same
way between the buffers `first` and `second`. The start of a text says which buffer has it.

Kernels take these six arrays one by one: to unpack a NamedTuple of them costs a microsecond a call,
a third of a match, and to read arrays from it in the walk another fifth.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, inner_kernel, kernel
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

MOVED = np.uint32(0xFFFFFFFF)
"""Instead of a count in the older table: the node has moved to the other one."""
SECOND = np.int64(1 << 62)
"""Added to the start of a text that is in the second buffer."""
LONG = np.int32(-1)
"""Instead of a count of matches: the search needs more steps than it may take at once."""

_SLASH, _PLUS, _HASH = 0x2F, 0x2B, 0x23


@inlined
def _find(nodes: Nodes, key: np.uint64) -> np.uint64:
    """Return the slot of a node, or the free slot where it belongs."""
    slots = U64(len(nodes))
    slot = home_of(key, slots)
    while nodes[slot].through != 0 and nodes[slot].key != key:
        slot = after(slot, slots)
    return slot


@inlined
def _find_to_change(nodes: Nodes, older: Nodes, key: np.uint64) -> np.uint64:
    """Return the slot of a node that will change. A node in the older table moves first."""
    slot = _find(nodes, key)
    if nodes[slot].through == 0 and len(older) > 0:
        before = _find(older, key)
        if older[before].through != 0 and older[before].through != MOVED:
            nodes[slot] = older[before]
            older[before].through = MOVED
    return slot


@inner_kernel
def _remove(nodes: Nodes, hole: np.uint64) -> None:
    slots = U64(len(nodes))
    slot = after(hole, slots)
    while nodes[slot].through != 0:
        if may_fill(hole, slot, home_of(nodes[slot].key, slots)):
            nodes[hole] = nodes[slot]
            hole = slot
        slot = after(slot, slots)
    nodes[hole].through = 0


@inner_kernel
def _levels_of(wanted: Bytes, seed: np.uint64) -> tuple[Words, npt.NDArray[np.uint8]]:
    """Return the hash and the kind of each level of a filter."""
    start = np.int64(0)
    depth = count_levels(wanted, start, len(wanted))
    levels = np.empty(depth, np.uint64)
    kinds = np.empty(depth, np.uint8)
    hash_levels(wanted, start, len(wanted), seed, levels, U64(0))
    level_kinds(wanted, start, len(wanted), kinds)
    return levels, kinds


@kernel
def move_nodes(older: Nodes, at: int, count: int, nodes: Nodes) -> int:
    """Move the nodes in `count` slots of the older table. Return where to go on."""
    end = min(at + count, len(older))
    for i in range(at, end):
        if older[i].through != 0 and older[i].through != MOVED:
            nodes[_find(nodes, older[i].key)] = older[i]
            older[i].through = MOVED
    return end


@kernel
def count_used(spans: Spans, count: int) -> int:
    """Return `count` without the free numbers at the end."""
    while count > 0 and spans[count - 1, 0] < 0:
        count -= 1
    return count


@kernel
def move_texts(
    first: Bytes, second: Bytes, to_second: bool, spans: Spans, at: int, stop: int, end: int
) -> int:
    """Move the texts of filters number `at` to `stop` to one of the buffers, behind `end`.

    Return where they end.
    """
    for number in range(at, stop):
        start = spans[number, 0]
        if start < 0 or (start >= SECOND) == to_second:
            continue
        if to_second:
            spans[number, 0] = SECOND + end
            for i in range(start, spans[number, 1]):
                second[end] = first[i]
                end += 1
        else:
            spans[number, 0] = end
            for i in range(start - SECOND, spans[number, 1]):
                first[end] = second[i]
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
        # Both positions are at the start of a level.
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
            # The topic ends here. The filter must end too, or have only '/#' left.
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


@inlined
def _is_filter(first: Bytes, second: Bytes, spans: Spans, number: int, wanted: Bytes) -> bool:
    start = spans[number, 0]
    if start >= SECOND:
        return _is_text(second, start - SECOND, spans[number, 1], wanted)
    return _is_text(first, start, spans[number, 1], wanted)


@inner_kernel
def _locate(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    wanted: Bytes,
    levels: Words,
    kinds: npt.NDArray[np.uint8],
) -> int:
    depth = len(levels)
    key = ROOT
    for i in range(depth):
        if kinds[i] != HASH:
            key = child(key, SINGLE_LEVEL if kinds[i] == PLUS else levels[i])
    node = nodes[_find(nodes, key)]
    if node.through == 0:
        if len(older) == 0:
            return NONE
        node = older[_find(older, key)]
        if node.through == 0 or node.through == MOVED:  # noqa: PLR1714
            return NONE
    number = node.ends_multi if kinds[depth - 1] == HASH else node.ends
    while number != NONE and not _is_filter(first, second, spans, number, wanted):
        number = following[number]
    return number


@kernel
def locate(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    wanted: Bytes,
    seed: np.uint64,
) -> int:
    """Return the number of a filter, or NONE if it is not in."""
    levels, kinds = _levels_of(wanted, seed)
    return _locate(nodes, older, first, second, spans, following, wanted, levels, kinds)


@kernel
def insert(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    wanted: Bytes,
    seed: np.uint64,
    number: int,
    text_start: int,
) -> tuple[int, int]:
    """Insert a filter under this number, with its text at `text_start`. There is room.

    Return its number, and how many nodes are new: NONE if the filter was in.
    """
    levels, kinds = _levels_of(wanted, seed)
    known = _locate(nodes, older, first, second, spans, following, wanted, levels, kinds)
    if known != NONE:
        return known, NONE
    spans[number, 0] = text_start
    if text_start >= SECOND:
        text_start -= SECOND
        for i in range(len(wanted)):
            second[text_start + i] = wanted[i]
    else:
        for i in range(len(wanted)):
            first[text_start + i] = wanted[i]
    spans[number, 1] = text_start + len(wanted)
    depth = len(levels)
    fresh = 0
    key = ROOT
    for i in range(depth + 1):
        slot = _find_to_change(nodes, older, key)
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
    return number, fresh


@kernel
def insert_many(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    wanted: Bytes,
    ends: Spans,
    seed: np.uint64,
    free: Filters,
    text_start: int,
    found: Filters,
) -> tuple[int, int, int]:
    """Insert filters, whose texts in `wanted` end at `ends`. There is room.

    New ones get the numbers in `free`, in this order, and `found` gets the numbers of all. Return
    how many are new, how many bytes their texts have, and how many nodes are new.
    """
    start = 0
    count = 0
    size = 0
    nodes_new = 0
    for i in range(len(ends)):
        one = wanted[start : ends[i]]
        start = ends[i]
        number, fresh = insert(
            nodes,
            older,
            first,
            second,
            spans,
            following,
            one,
            seed,
            free[count],
            text_start + size,
        )
        found[i] = number
        if fresh != NONE:
            count += 1
            size += len(one)
            nodes_new += fresh
    return count, size, nodes_new


@inlined
def _unlink(following: Filters, first: int, number: int) -> int:
    """Remove a filter from a list. Return the list's new first filter."""
    if first == number:
        return following[number]
    before = first
    while following[before] != number:
        before = following[before]
    following[before] = following[number]
    return first


@kernel
def delete(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    wanted: Bytes,
    seed: np.uint64,
) -> tuple[int, int]:
    """Remove a filter. Return its number, NONE if it was not in, and how many nodes went."""
    levels, kinds = _levels_of(wanted, seed)
    number = _locate(nodes, older, first, second, spans, following, wanted, levels, kinds)
    if number == NONE:
        return number, 0
    depth = len(levels)
    gone = 0
    key = ROOT
    for i in range(depth + 1):
        slot = _find_to_change(nodes, older, key)
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
    spans[number, 0] = -1
    spans[number, 1] = -1
    return number, gone


@inlined
def _collect(
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    head: int,
    topic: Bytes,
    topic_start: int,
    topic_stop: int,
    out: Filters,
    count: int,
) -> int:
    number = head
    while number != NONE:
        start = spans[number, 0]
        stop = spans[number, 1]
        if start >= SECOND:
            is_match = matches(second, start - SECOND, stop, topic, topic_start, topic_stop)
        else:
            is_match = matches(first, start, stop, topic, topic_start, topic_stop)
        if is_match:
            if count < len(out):
                out[count] = number
            count += 1
        number = following[number]
    return count


@inner_kernel
def _walk(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    topics: Bytes,
    start: int,
    stop: int,
    levels: Words,
    depth: int,
    stack: Words,
    stack_level: Spans,
    top: int,
    steps_max: int,
    out: Filters,
    count: int,
) -> tuple[int, int, int]:
    """Continue from the stack for at most `steps_max` nodes; matches go into out[count:].

    The walk follows `+` and leaves the literal child on the stack, so the stack is no deeper than
    the topic. It visits only nodes that exist. Nodes are known by their keys, so the tree may
    change between two calls: a filter that is in from the first to the last is found.
    Return the height of the stack, the count, and how many nodes were visited.
    """
    reserved = is_reserved(topics, start, stop)
    steps = 0
    while top > 0 and steps < steps_max:
        top -= 1
        key = stack[top]
        level = stack_level[top]
        while True:
            steps += 1
            node = nodes[_find(nodes, key)]
            if node.through == 0:
                if len(older) == 0:
                    break
                node = older[_find(older, key)]
                if node.through == 0 or node.through == MOVED:  # noqa: PLR1714
                    break
            wildcards = not (reserved and level == 0)
            if node.ends_multi != NONE and wildcards:
                count = _collect(
                    first, second, spans, following, node.ends_multi, topics, start, stop, out,
                    count,
                )  # fmt: skip
            if level == depth:
                if node.ends != NONE:
                    count = _collect(
                        first, second, spans, following, node.ends, topics, start, stop, out, count
                    )
                break
            stack[top] = child(key, levels[level])
            stack_level[top] = level + 1
            top += 1
            if node.plus == 0 or not wildcards:
                break
            key = child(key, SINGLE_LEVEL)
            level += 1
    return top, count, steps


@kernel
def match(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    topics: Bytes,
    ends: Spans,
    seed: np.uint64,
    steps_max: int,
    out: Filters,
    counts: Filters,
) -> int:
    """Find the filters that match each topic. Return how many; `out` holds as many as fit.

    Topics lie one behind the other, and `ends` says where each ends. `counts` becomes the number of
    filters in `out` for each topic. About `steps_max` nodes are visited for all topics together;
    the count of a topic that needs more is LONG.
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
        stack[0] = ROOT
        stack_level[0] = 0
        top, count, steps = _walk(
            nodes, older, first, second, spans, following, topics, start, stop, levels, depth,
            stack, stack_level, np.int64(1), steps_max, out, count,
        )  # fmt: skip
        steps_max = max(steps_max - steps, 0)
        if top > 0:
            count = before
            counts[i] = LONG
        else:
            counts[i] = count - before
        start = stop
    return count


@kernel
def begin(topic: Bytes, seed: np.uint64, levels: Words, stack: Words, stack_level: Spans) -> None:
    """Prepare a search for one topic. `go_on` continues it."""
    hash_levels(topic, np.int64(0), len(topic), seed, levels, U64(0))
    stack[0] = ROOT
    stack_level[0] = 0


@kernel
def go_on(
    nodes: Nodes,
    older: Nodes,
    first: Bytes,
    second: Bytes,
    spans: Spans,
    following: Filters,
    topic: Bytes,
    levels: Words,
    stack: Words,
    stack_level: Spans,
    top: int,
    steps_max: int,
    out: Filters,
) -> tuple[int, int]:
    """Visit `steps_max` nodes. Return the height of the stack, and how many filters match."""
    top, count, _ = _walk(
        nodes, older, first, second, spans, following, topic, np.int64(0), len(topic), levels,
        len(levels), stack, stack_level, top, steps_max, out, np.int64(0),
    )  # fmt: skip
    return top, count
