"""What a matcher tells of its parts of spaces when somebody asks. Pure.

A part is of one searchable dimension: the segment that brokers ask about, or will once it serves,
the boxes that are held along it, its queue now, and its rates in the last LOAD_WINDOW_SECONDS.
"""

import math
from collections.abc import Iterator

from dovetail.api.reports import PartReport, SegmentReport
from dovetail.attributes.conjunctions import Range
from dovetail.matcher.matcher_side import Back
from dovetail.matcher.segment_tables import Placement


def parts_of(back: Back) -> Iterator[PartReport]:
    """In the order of spaces and dimensions."""
    for (space, dimension), load in back.answering.loads_now().items():
        layout = back.view.layouts[space]
        yield PartReport(
            space=layout.name,
            dimension=layout.name_of(dimension),
            segment=_segment(back, space, dimension),
            boxes=load.boxes,
            queue=load.queue,
            arrival_rate=load.arrival_rate,
            matching_rate=load.matching_rate,
        )


def segment_of(placement: Placement, name: str, dimension: int) -> SegmentReport | None:
    """None: it has none."""
    if name not in placement.table.tokens:
        return None
    if placement.layout.is_copied:
        return SegmentReport()
    segment = placement.table.dimensions[dimension].segment(name)
    return _told(segment) if segment.low < segment.high else None


def _segment(back: Back, space: str, dimension: int) -> SegmentReport | None:
    now, soon = back.view.now(space), back.view.next(space)
    return segment_of(now if back.name in now.names else soon, back.name, dimension)


def _told(segment: Range) -> SegmentReport:
    """JSON has no infinity."""
    return SegmentReport(
        None if segment.low == -math.inf else segment.low,
        None if segment.high == math.inf else segment.high,
    )
