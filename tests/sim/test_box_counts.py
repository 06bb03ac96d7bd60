"""The counts of boxes per matcher, against the service's own decision for each box."""

import numpy as np
import pytest

from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.segment_tables import Placement
from dovetail.sim import box_counts, workload
from dovetail.sim.systems import MatcherTestbed


def counted_one_by_one(placement: Placement, lows: Floats, highs: Floats) -> list[object]:
    layout = placement.layout
    kinds = layout.kinds(lows, highs)
    found = [layout.along(lows, highs, kinds, placement.cover(name)) for name in placement.names]
    return [
        (
            [int((one >> place & 1).sum()) for place in range(layout.searchable)],
            int((one > 0).sum()),
        )
        for one in found
    ]


@pytest.mark.parametrize("scheme", list(Scheme))
@pytest.mark.parametrize("matchers", [1, 7, 1_200])
def test_counts_equal_those_of_the_service(scheme: Scheme, matchers: int) -> None:
    """Also for ranges that are open, too wide to place a box, or narrower than a segment."""
    testbed = MatcherTestbed(matchers=matchers, along=2)
    layout: Layout = testbed.layout(scheme)
    placement = testbed.placement(layout)
    lows, highs = workload.boxes(60, 1, open_share=0.2)
    narrow_lows, narrow_highs = workload.boxes(60, 2, width=0.5)
    lows, highs = np.concatenate((lows, narrow_lows)), np.concatenate((highs, narrow_highs))
    lows[0], highs[0] = 0.0, 900.0
    found = box_counts.count(placement, lows, highs)
    ours = [*zip(found.along.tolist(), found.held.tolist(), strict=True)]
    assert ours == counted_one_by_one(placement, lows, highs)


def test_counts_of_parts_add_up() -> None:
    testbed = MatcherTestbed(matchers=5, boxes=100)
    placement = testbed.placement(testbed.layout(Scheme.MPARTITION))
    lows, highs = testbed.drawn_boxes(1)
    whole = box_counts.count(placement, lows, highs)
    parts = box_counts.Holdings.zero(5, workload.DIMENSIONS)
    for part in (slice(0, 30), slice(30, None)):
        parts += box_counts.count(placement, lows[part], highs[part])
    assert parts.along.tolist() == whole.along.tolist()
    assert parts.held.tolist() == whole.held.tolist()
