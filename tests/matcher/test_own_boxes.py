"""Numbers, versions and kinds of a broker's own boxes."""

import math
from random import Random

import numpy as np
import pytest

from dovetail.attributes.limits import BOXES_MAX
from dovetail.attributes.partition import Bounds
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import BOX_KINDS_MAX
from dovetail.matcher.own_boxes import OwnBoxes

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 100)), (0, 1))


def test_numbers_are_low_and_used_again() -> None:
    own_boxes = OwnBoxes(LAYOUT)
    assert [own_boxes.add((0, 0), (1, 1)) for _ in range(3)] == [0, 1, 2]
    own_boxes.discard(1)
    own_boxes.discard(0)
    assert own_boxes.add((0, 0), (9, 9)) == 0
    own_boxes.put(1, (0, 0), (5, 5))  # its owner has numbers of its own
    assert own_boxes.free_number() == 3
    assert len(own_boxes) == 3
    assert own_boxes.version == 7
    assert own_boxes.existing(np.array([-1, 0, 2, 3, 99])).tolist() == [0, 2]


def test_kinds_come_and_go() -> None:
    own_boxes = OwnBoxes(LAYOUT)
    assert own_boxes.announced_kinds() == []
    wide, narrow = (0, 0), (10, 10)
    number = own_boxes.add(wide, (90, 90))
    own_boxes.add(wide, narrow)
    assert own_boxes.announced_kinds() == [0b00, 0b11]
    own_boxes.put(number, (0, 0), (90, 10))
    assert own_boxes.announced_kinds() == [0b10, 0b11]
    own_boxes.discard(number)
    assert own_boxes.announced_kinds() == [0b11]


def test_who_has_too_many_kinds_is_not_asked_about() -> None:
    dimensions = 9
    layout = Layout("s", (Bounds(0, 1),) * dimensions, tuple(range(dimensions)))
    own_boxes = OwnBoxes(layout)
    for kind in range(1, BOX_KINDS_MAX + 2):
        highs = [0.1 if kind >> place & 1 else math.inf for place in range(dimensions)]
        own_boxes.add([-math.inf if math.isinf(high) else 0 for high in highs], highs)
        assert own_boxes.announced_kinds() == (
            [0] if kind > BOX_KINDS_MAX else list(range(1, kind + 1))
        )


@pytest.mark.parametrize("number", [-1, BOXES_MAX])
def test_numbers_have_an_end(number: int) -> None:
    with pytest.raises(ValueError, match="a box has a number from 0 to"):
        OwnBoxes(LAYOUT).put(number, (0, 0), (1, 1))


def test_what_is_not_there_cannot_go() -> None:
    own_boxes = OwnBoxes(LAYOUT)
    own_boxes.add((0, 0), (1, 1))
    for number in (1, -1, 1_000):
        with pytest.raises(KeyError):
            own_boxes.discard(number)


def test_as_a_dict_has_it() -> None:
    random = Random(1)
    own_boxes = OwnBoxes(LAYOUT)
    boxes: dict[int, tuple[float, float]] = {}
    for step in range(500):
        if boxes and random.random() < 0.45:
            number = random.choice(list(boxes))
            del boxes[number]
            own_boxes.discard(number)
        else:
            low = random.uniform(0, 50)
            boxes[own_boxes.add((low, low), (low + 1, low + 1))] = (low, low)
        assert own_boxes.version == step + 1
    assert np.flatnonzero(own_boxes.exists).tolist() == sorted(boxes)
    for number, lows in boxes.items():
        assert tuple(own_boxes.lows[number]) == lows
