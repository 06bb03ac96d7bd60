"""Numbers, versions and kinds of a broker's own boxes."""

import math
from random import Random

import numpy as np
import pytest

from dovetail.attributes.limits import BOXES_MAX
from dovetail.attributes.partition import Bounds
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import BOX_KINDS_MAX
from dovetail.matcher.own_boxes import Ledger

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 100)), (0, 1))


def test_numbers_are_low_and_used_again() -> None:
    ledger = Ledger(LAYOUT)
    assert [ledger.add((0, 0), (1, 1)) for _ in range(3)] == [0, 1, 2]
    ledger.discard(1)
    ledger.discard(0)
    assert ledger.add((0, 0), (9, 9)) == 0
    ledger.put(1, (0, 0), (5, 5))  # its owner has numbers of its own
    assert ledger.free_number() == 3
    assert len(ledger) == 3
    assert ledger.version == 7
    assert ledger.held(np.array([-1, 0, 2, 3, 99])).tolist() == [0, 2]


def test_kinds_come_and_go() -> None:
    ledger = Ledger(LAYOUT)
    assert ledger.told_kinds() == []
    wide, narrow = (0, 0), (10, 10)
    number = ledger.add(wide, (90, 90))
    ledger.add(wide, narrow)
    assert ledger.told_kinds() == [0b00, 0b11]
    ledger.put(number, (0, 0), (90, 10))
    assert ledger.told_kinds() == [0b10, 0b11]
    ledger.discard(number)
    assert ledger.told_kinds() == [0b11]


def test_who_has_too_many_kinds_is_not_asked_about() -> None:
    dimensions = 9
    layout = Layout("s", (Bounds(0, 1),) * dimensions, tuple(range(dimensions)))
    ledger = Ledger(layout)
    for kind in range(1, BOX_KINDS_MAX + 2):
        highs = [0.1 if kind >> place & 1 else math.inf for place in range(dimensions)]
        ledger.add([-math.inf if math.isinf(high) else 0 for high in highs], highs)
        assert ledger.told_kinds() == ([0] if kind > BOX_KINDS_MAX else list(range(1, kind + 1)))


@pytest.mark.parametrize("number", [-1, BOXES_MAX])
def test_numbers_have_an_end(number: int) -> None:
    with pytest.raises(ValueError, match="a box has a number from 0 to"):
        Ledger(LAYOUT).put(number, (0, 0), (1, 1))


def test_what_is_not_there_cannot_go() -> None:
    ledger = Ledger(LAYOUT)
    ledger.add((0, 0), (1, 1))
    for number in (1, -1, 1_000):
        with pytest.raises(KeyError):
            ledger.discard(number)


def test_as_a_dict_has_it() -> None:
    random = Random(1)
    ledger = Ledger(LAYOUT)
    boxes: dict[int, tuple[float, float]] = {}
    for step in range(500):
        if boxes and random.random() < 0.45:
            number = random.choice(list(boxes))
            del boxes[number]
            ledger.discard(number)
        else:
            low = random.uniform(0, 50)
            boxes[ledger.add((low, low), (low + 1, low + 1))] = (low, low)
        assert ledger.version == step + 1
    assert np.flatnonzero(ledger.is_there).tolist() == sorted(boxes)
    for number, lows in boxes.items():
        assert tuple(ledger.lows[number]) == lows
