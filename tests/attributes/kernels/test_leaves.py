"""The order of leaves, and redundant data that must agree after any change."""

import numpy as np
import pytest

from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.kernels import codes, leaves
from dovetail.attributes.kernels.codes import CELLS, keys_of
from dovetail.attributes.kernels.lanes import LANES
from dovetail.attributes.limits import LEAF_BOXES_MIN
from dovetail.sim import workload
from support.oracles.kernel_parts import callable_kernel

cut_of = callable_kernel(leaves.cut_position)
cells_of = callable_kernel(codes.cells_of)
low_code, high_code = callable_kernel(codes.low_code), callable_kernel(codes.high_code)


@pytest.mark.parametrize("more", [False, True])
def test_a_cut_is_before_the_highest_bit_that_changes(more: bool) -> None:
    first, last = (LANES // 2, LANES - 1) if more else (LEAF_BOXES_MIN, LANES - LEAF_BOXES_MIN)
    for seed in range(50):
        drawn = np.random.default_rng(seed).integers(0, 1 << 40, LANES).astype(np.uint64)
        keys = np.sort(drawn)
        cut = cut_of(keys, more)
        changes = [int(keys[i] ^ keys[i - 1]) for i in range(first, last + 1)]
        assert first <= cut <= last
        assert int(keys[cut] ^ keys[cut - 1]) == max(changes)


def test_equal_keys_are_cut_late() -> None:
    assert cut_of(np.zeros(LANES, np.uint64), False) == LANES - LEAF_BOXES_MIN
    assert cut_of(np.zeros(LANES, np.uint64), True) == LANES - 1


def check(index: BoxIndex) -> None:
    """Check every rule of the module's docstring."""
    dimensions = index.dimensions
    state = index._state
    order = index._order[: state[leaves.LEAVES]]
    firsts = index._firsts[: state[leaves.LEAVES]].tolist()
    free = index._free_leaves[: state[leaves.FREE_LEAVES]]
    assert sorted([*order, *free]) == list(range(len(index._used)))
    assert firsts == sorted(firsts)
    assert firsts[0] == 0
    edges = index._edges.reshape(-1, 2 * dimensions)
    codes = index._codes.reshape(-1, dimensions, 2, LANES)
    rows = index._rows.reshape(dimensions, leaves.ROWS, -1)
    seen = 0
    for at, leaf in enumerate(order):
        cover, opens = [0] * dimensions, 0
        for lane in range(LANES):
            if not int(index._used[leaf]) >> lane & 1:
                assert (codes[leaf, :, 0, lane] > codes[leaf, :, 1, lane]).all()
                continue
            place = leaf * LANES + lane
            seen += 1
            assert index._place_of[index._slot_of[place]] == place
            key = int(keys_of(edges[place].copy(), index._origins, index._scales)[0])
            assert firsts[at] <= key
            assert at + 1 == len(firsts) or key <= firsts[at + 1]
            for j in range(dimensions):
                low = low_code(edges[place, j], index._origins[j], index._scales[j])
                high = high_code(edges[place, dimensions + j], index._origins[j], index._scales[j])
                assert codes[leaf, j, :, lane].tolist() == [low, high]
                cover[j] |= int(cells_of(low, high))
                if np.isinf(edges[place, [j, dimensions + j]]).all():
                    opens |= 1 << j
        own = index._cover.reshape(-1, dimensions + 1)[leaf].tolist()
        assert own == [*cover, opens]
        for j in range(dimensions):
            bits = rows[j, :, leaf // 64] >> np.uint64(leaf % 64) & np.uint64(1)
            assert bits[CELLS] == opens >> j & 1
            assert sum(int(bit) << cell for cell, bit in enumerate(bits[:CELLS])) == cover[j]
    assert seen == len(index) == np.count_nonzero(index._place_of >= 0)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_twice_agrees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lows, highs = workload.boxes(6_000, seed, dimensions=2, open_share=0.1)
    # Some keys have several leaves.
    lows[:300], highs[:300] = lows[0], highs[0]
    index = BoxIndex(*workload.bounds(2))
    check(index)
    slots = np.empty(0, np.int64)
    for part in np.array_split(rng.permutation(6_000), 4):
        slots = np.append(slots, index.insert(lows[part], highs[part]))
        check(index)
        going = rng.permutation(len(slots))[: len(slots) // 3]
        index.discard(slots[going])
        slots = np.delete(slots, going)
        check(index)
    for part in np.array_split(rng.permutation(slots), 6):
        index.discard(part)
        check(index)
    assert len(index) == 0
