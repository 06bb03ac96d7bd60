"""Matches by broker, against a few lines of Python."""

from random import Random

import numpy as np
import pytest

from dovetail.matcher.kernels.grouping import UNSURE, group


@pytest.mark.parametrize("is_listing", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_as_plain_python_has_it(seed: int, is_listing: bool) -> None:
    random = Random(seed)
    slots_in_all, owners, columns = 50, 4, 3
    owner_of = [random.randrange(owners) for _ in range(slots_in_all)]
    kind_of = [random.randrange(4) for _ in range(slots_in_all)]
    column_of = random.sample([0, 1, 2, -1], owners)
    found = [random.sample(range(slots_in_all), random.randrange(20)) for _ in range(8)]
    first, points = 2, 5
    is_wanted = [random.random() < 0.7 for _ in range(4)]
    is_sure = [random.random() < 0.8 for _ in range(points * columns)]
    boxes_max, room = 6, random.choice([10, 100])

    expected_counts: list[int] = []
    expected: list[int] = []
    for point in range(points):
        for column in range(columns):
            own = [
                slot + 1_000
                for slot in found[first + point]
                if column_of[owner_of[slot]] == column and is_wanted[kind_of[slot]]
            ]
            fits = len(own) <= boxes_max and len(expected) + len(own) <= room
            if is_sure[point * columns + column] and (fits or not is_listing):
                expected_counts.append(len(own))
                expected += own if is_listing else []
            else:
                expected_counts.append(UNSURE)

    counts = np.empty(points * columns, np.uint32)
    numbers = np.empty(room, np.uint32)
    used = group(
        np.cumsum([0, *map(len, found)]),
        np.array([slot for slots in found for slot in slots], np.int64),
        first,
        points,
        np.array(owner_of, np.int32),
        np.arange(slots_in_all, dtype=np.uint32) + np.uint32(1_000),
        np.array(kind_of, np.uint16),
        np.array(column_of, np.int32),
        columns,
        np.array(is_wanted),
        np.array(is_sure),
        is_listing,
        boxes_max,
        counts,
        numbers,
    )
    assert counts.tolist() == expected_counts
    assert numbers[:used].tolist() == expected
