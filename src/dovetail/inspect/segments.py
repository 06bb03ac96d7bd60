"""Segments of dimensions, in as few words as a table has room for."""

from dovetail.api.reports import SegmentReport


def segment_words(segment: SegmentReport | None) -> str:
    """Half-open, as ranges are everywhere; at the ends of a dimension it has no end."""
    if segment is None:
        return "none"
    low, high = segment.low, segment.high
    if low is None:
        return "all" if high is None else f"below {high:.6g}"
    return f"{low:.6g} and above" if high is None else f"{low:.6g} to {high:.6g}"
