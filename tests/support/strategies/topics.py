"""Hypothesis strategies for topic names and filters, small enough that they often match."""

from hypothesis import strategies as st

LEVELS = ("", "a", "b", "ab", "$", "$x", "é", "日本", "a" * 8, "a" * 9, "x" * 17)

_level = st.sampled_from(LEVELS)
_filter_level = st.sampled_from((*LEVELS, "+", "+", "+"))


def _join(levels: list[str]) -> str:
    return "/".join(levels) or "/"


names = st.lists(_level, min_size=1, max_size=6).map(_join)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(_filter_level, min_size=1, max_size=6))
    if draw(st.integers(0, 2)) == 0:
        levels[-1] = "#"
    return _join(levels)


deep_names = st.lists(_level, min_size=100, max_size=130).map(_join)
deep_filters = st.lists(_filter_level, min_size=100, max_size=130).map(_join)
