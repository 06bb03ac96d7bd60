"""The index against a comparison with every box."""

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.limits import BOX_DIMENSIONS_MAX, LEAVES_MIN
from dovetail.sim import workload
from support.oracles.boxes import Floats, is_inside

LOW, HIGH = -10.0, 30.0

# Few numbers, so that values meet borders; some outside the bounds, some that share a code.
NUMBERS = [-1e300, -11.0, -10.0, 0.0, 1e-9, 5.0, 5.0 + 1e-9, 29.0, 30.0, 31.0, 1e300]
borders = st.sampled_from([-math.inf, *NUMBERS, math.inf])
values = st.sampled_from([-math.inf, *NUMBERS, math.inf, math.nan])


class Oracle:
    """Boxes by slot."""

    def __init__(self) -> None:
        self.boxes: dict[int, tuple[Floats, Floats, int]] = {}

    def match(self, point: Floats, mask: int | None = None) -> list[int]:
        slots = [slot for slot, box in self.boxes.items() if mask is None or box[2] & mask]
        if not slots:
            return []
        lows, highs = (np.array([self.boxes[slot][side] for slot in slots]) for side in (0, 1))
        return sorted(np.array(slots)[is_inside(lows, highs, point)].tolist())


def found(index: BoxIndex, points: Floats, mask: int | None = None) -> list[list[int]]:
    offsets, slots = index.match(points, mask)
    assert np.array_equal(index.count(points, mask), np.diff(offsets))
    assert offsets[0] == 0
    assert offsets[-1] == len(slots)
    if mask is None:
        for point, (a, b) in zip(points[:3].tolist(), pairwise(offsets), strict=False):
            assert np.array_equal(index.match_one(point), slots[a:b])
    return [sorted(slots[a:b].tolist()) for a, b in pairwise(offsets)]


class Changing(RuleBasedStateMachine):
    """Boxes come and go; after each step some points are matched."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BoxIndex([LOW] * 2, [HIGH] * 2)
        self.oracle = Oracle()

    @rule(
        ranges=st.lists(st.tuples(borders, borders, borders, borders), min_size=1, max_size=5),
        kind=st.integers(0, 7),
        times=st.sampled_from([1, 30, 70]),
    )
    def insert(self, ranges: list[tuple[float, ...]], kind: int, times: int) -> None:
        boxes = np.array(ranges * times)
        slots = self.index.insert(boxes[:, :2], boxes[:, 2:], kind)
        for slot, box in zip(slots.tolist(), boxes, strict=True):
            assert slot not in self.oracle.boxes
            self.oracle.boxes[slot] = (box[:2], box[2:], kind)

    @precondition(lambda self: self.oracle.boxes)
    @rule(seed=st.integers(0, 100), share=st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    def discard(self, seed: int, share: float) -> None:
        slots = np.random.default_rng(seed).permutation(sorted(self.oracle.boxes))
        going = slots[: max(1, int(share * len(slots)))]
        self.index.discard(going)
        for slot in going.tolist():
            del self.oracle.boxes[slot]

    @rule(box=st.tuples(borders, borders, borders, borders), times=st.sampled_from([1, 70]))
    def insert_one_by_one(self, box: tuple[float, ...], times: int) -> None:
        """Insert read-only arrays, such as views of received bytes."""
        both = np.frombuffer(np.array([box]).tobytes()).reshape(1, 4)
        for _ in range(times):
            [slot] = self.index.insert(both[:, :2], both[:, 2:], 5).tolist()
            assert slot not in self.oracle.boxes
            self.oracle.boxes[slot] = (both[0, :2], both[0, 2:], 5)

    @precondition(lambda self: self.oracle.boxes)
    @rule(seed=st.integers(0, 100), times=st.sampled_from([1, 10]))
    def replace(self, seed: int, times: int) -> None:
        """Remove boxes one by one, and insert them again together."""
        some = np.random.default_rng(seed).choice(sorted(self.oracle.boxes), times)
        for old in set(some.tolist()):
            low, high, kind = self.oracle.boxes.pop(old)
            self.index.discard([old])
            [slot] = self.index.insert([low], [high], [kind]).tolist()
            assert slot not in self.oracle.boxes
            self.oracle.boxes[slot] = (low, high, kind)

    @rule(count=st.sampled_from([1, 2, 200]), data=st.data())
    def refuse(self, count: int, data: st.DataObject) -> None:
        """Insert boxes with a border that is NaN: nothing changes."""
        boxes = np.zeros((count, 4))
        boxes[data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, 3))] = math.nan
        with pytest.raises(ValueError, match="number"):
            self.index.insert(boxes[:, :2], boxes[:, 2:])

    @rule(point=st.tuples(values, values), mask=st.one_of(st.none(), st.integers(0, 7)))
    def match(self, point: tuple[float, float], mask: int | None) -> None:
        array = np.array([point])
        assert found(self.index, array, mask) == [self.oracle.match(array[0], mask)]

    @invariant()
    def same_size(self) -> None:
        assert len(self.index) == len(self.oracle.boxes)


TestChanging = Changing.TestCase
TestChanging.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)


@settings(deadline=None)
@given(st.data(), st.integers(1, 6))
def test_borders_and_values_that_meet(data: st.DataObject, dimensions: int) -> None:
    side = st.lists(borders, min_size=dimensions, max_size=dimensions)
    lows = np.array(data.draw(st.lists(side, min_size=1, max_size=20)))
    highs = np.array([data.draw(side) for _ in lows])
    given_points = st.lists(values, min_size=dimensions, max_size=dimensions)
    points = np.array(data.draw(st.lists(given_points, min_size=1, max_size=10)))
    index = BoxIndex([LOW] * dimensions, [HIGH] * dimensions)
    slots = index.insert(lows, highs)
    expected = [sorted(slots[is_inside(lows, highs, point)].tolist()) for point in points]
    assert found(index, points) == expected


@pytest.mark.parametrize("dimensions", [1, 2, 4, 9, BOX_DIMENSIONS_MAX])
def test_the_papers_workload(dimensions: int) -> None:
    open_share = max(0.3, 1 - 3 / dimensions)  # so that something matches in many dimensions too
    lows, highs = workload.boxes(5_000, 1, dimensions=dimensions, open_share=open_share)
    points = workload.points(200, 1, dimensions=dimensions, missing_share=0.02)
    index = BoxIndex(*workload.bounds(dimensions))
    slots = index.insert(lows, highs)
    expected = [sorted(slots[is_inside(lows, highs, point)].tolist()) for point in points]
    assert found(index, points) == expected
    assert any(expected)


def test_an_empty_index_matches_nothing() -> None:
    index = BoxIndex([0.0], [1.0])
    assert found(index, np.array([[0.5], [math.nan]])) == [[], []]
    assert found(index, np.empty((0, 1))) == []
    assert len(index.insert(np.empty((0, 1)), np.empty((0, 1)))) == 0
    index.discard([])
    assert len(index) == 0


def test_boxes_can_be_read_back() -> None:
    lows, highs = workload.boxes(1_000, 1, open_share=0.1)
    index = BoxIndex(*workload.bounds())
    slots = index.insert(lows, highs)
    for ours, theirs in zip(index.boxes(slots[5:50]), (lows, highs), strict=True):
        assert np.array_equal(ours, theirs[5:50])
    index.discard(slots[:1])
    for unknown in (slots[0], -1, 10**9):
        with pytest.raises(KeyError):
            index.boxes([unknown])
        with pytest.raises(KeyError):
            index.discard([unknown])
    assert len(index) == 999


def test_slots_are_reused() -> None:
    lows, highs = workload.boxes(3_000, 1)
    index = BoxIndex(*workload.bounds())
    slots = index.insert(lows, highs)
    assert sorted(slots.tolist()) == list(range(3_000))
    index.discard(slots[1_000:2_000])
    again = index.insert(lows[1_000:2_000], highs[1_000:2_000])
    assert sorted(again.tolist()) == sorted(slots[1_000:2_000].tolist())


def test_memory_grows_by_steps_and_shrinks() -> None:
    lows, highs = workload.boxes(40_000, 1)
    index = BoxIndex(*workload.bounds())
    sizes = [index.nbytes]
    slots: list[npt.NDArray[np.int64]] = []
    for at in range(0, 40_000, 1_000):
        slots.append(index.insert(lows[at : at + 1_000], highs[at : at + 1_000]))
        sizes.append(index.nbytes)
    assert sizes == sorted(sizes)
    assert 5 < len(set(sizes)) < 40
    assert sizes[-1] / len(index) < 250
    point = np.array([[300.0, 400.0, 600.0, 700.0]])
    for part in slots[:0:-1]:
        index.discard(part)
    assert index.nbytes < sizes[-1] / 8
    held = is_inside(lows[:1_000], highs[:1_000], point[0])
    assert found(index, point) == [sorted(slots[0][held].tolist())]
    index.discard(slots[0])
    assert len(index._used) == LEAVES_MIN


def test_more_matches_than_there_is_room_for() -> None:
    index = BoxIndex([0.0], [1.0])
    slots = index.insert(np.zeros((9_000, 1)), np.ones((9_000, 1)))
    expected = sorted(slots.tolist())
    assert found(index, np.full((5, 1), 0.5)) == [expected] * 5


def test_kinds() -> None:
    index = BoxIndex([0.0], [1.0])
    slots = index.insert(np.zeros((3, 1)), np.ones((3, 1)), [1, 2, 1 << 31 | 1])
    point = np.array([[0.5]])
    for mask, expected in ((1, [0, 2]), (2, [1]), (3, [0, 1, 2]), (1 << 31, [2]), (4, [])):
        assert found(index, point, mask) == [sorted(slots[expected].tolist())]


@pytest.mark.parametrize(
    ("lows", "highs"),
    [([], []), ([0.0], [0.0]), ([1.0], [0.0]), ([0.0], [math.inf]), ([math.nan], [1.0]),
     ([0.0, 0.0], [1.0]), ([-1.7e308], [1.7e308]), ([0.0], [5e-324]), ([0.0] * 33, [1.0] * 33)],
)  # fmt: skip
def test_bounds_that_are_refused(lows: list[float], highs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"bound|dimensions"):
        BoxIndex(lows, highs)


def test_what_is_put_in_is_copied() -> None:
    """The caller may reuse its arrays."""
    low, high = np.zeros((1, 2)), np.ones((1, 2))
    index = BoxIndex([0.0, 0.0], [1.0, 1.0])
    slots = np.concatenate([index.insert(low, high), index.insert(low, high)])
    low += 7
    for ours, theirs in zip(index.boxes(slots), (0.0, 1.0), strict=True):
        assert np.array_equal(ours, np.full((2, 2), theirs))


def test_boxes_and_points_that_are_refused() -> None:
    index = BoxIndex([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="number"):
        index.insert([[0.0, math.nan]], [[1.0, 1.0]])
    for wrong in ([[0.0]], [0.0, 0.0]):
        with pytest.raises(ValueError, match="dimensions"):
            index.insert(wrong, wrong)
        with pytest.raises(ValueError, match="dimensions"):
            index.match(wrong)
    assert len(index) == 0


def test_an_index_is_not_made_smaller_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lows, highs = workload.boxes(20_000, 1)
    index = BoxIndex(*workload.bounds())
    slots = index.insert(lows, highs)
    rooms: list[int] = []
    resize = index._resize_leaves

    def noted(room: int) -> None:
        rooms.append(room)
        resize(room)

    monkeypatch.setattr(index, "_resize_leaves", noted)
    for slot in slots[np.random.default_rng(1).permutation(len(slots))]:
        index.discard([slot])
    assert rooms == sorted(set(rooms), reverse=True)
    assert 1 <= len(rooms) < 8
    assert len(index) == 0
