"""The short text of segments."""

import pytest

from dovetail.api.reports import SegmentReport
from dovetail.inspect.segments import segment_words


@pytest.mark.parametrize(
    ("segment", "words"),
    [
        (SegmentReport(), "all"),
        (SegmentReport(None, -2.25), "below -2.25"),
        (SegmentReport(0, 1e20), "0 to 1e+20"),
        (SegmentReport(1 / 3, None), "0.333333 and above"),
        (None, "none"),
    ],
)
def test_words(segment: SegmentReport | None, words: str) -> None:
    assert segment_words(segment) == words
