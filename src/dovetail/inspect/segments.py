"""The short text of a segment, for cells of tables."""

from dovetail.api.reports import SegmentReport


def segment_words(segment: SegmentReport | None) -> str:
    """Return the text of a half-open segment. It has no border at an end of its dimension."""
    if segment is None:
        return "none"
    low, high = segment.low, segment.high
    if low is None:
        return "all" if high is None else f"below {high:.6g}"
    return f"{low:.6g} and above" if high is None else f"{low:.6g} to {high:.6g}"
