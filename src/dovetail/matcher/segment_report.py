"""Reports a matcher's segments: one part for each searchable dimension. Pure.

A part has the segment that brokers ask about, or will once it serves, the boxes that are held along
the dimension, the queue now, and the rates in the last LOAD_WINDOW_SECONDS.
"""

import math
from collections.abc import Iterator

from dovetail.api.reports import PartReport, SegmentReport
from dovetail.attributes.conjunctions import Range
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.matcher.segment_tables import Placement


def parts_of(side: MatcherSide) -> Iterator[PartReport]:
    """Yield the parts in the order of spaces and dimensions."""
    for (space, dimension), load in side.answers.loads_now().items():
        layout = side.directory.layouts[space]
        yield PartReport(
            space=layout.name,
            dimension=layout.name_of(dimension),
            segment=_segment(side, space, dimension),
            boxes=load.boxes,
            queue=load.queue,
            arrival_rate=load.arrival_rate,
            matching_rate=load.matching_rate,
        )


def segment_of(placement: Placement, name: str, dimension: int) -> SegmentReport | None:
    """Return a matcher's segment of a dimension, or None."""
    if name not in placement.table.tokens:
        return None
    if placement.layout.is_copied:
        return SegmentReport()
    segment = placement.table.dimensions[dimension].segment(name)
    return _bounds_of(segment) if segment.low < segment.high else None


def _segment(side: MatcherSide, space: str, dimension: int) -> SegmentReport | None:
    now, following = side.directory.now(space), side.directory.next(space)
    return segment_of(now if side.name in now.names else following, side.name, dimension)


def _bounds_of(segment: Range) -> SegmentReport:
    """JSON has no infinity."""
    return SegmentReport(
        None if segment.low == -math.inf else segment.low,
        None if segment.high == math.inf else segment.high,
    )
