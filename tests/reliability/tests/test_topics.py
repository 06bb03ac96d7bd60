"""The tool's own matching agrees with the oracles of the broker's tests."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes import filter_query, grammar
from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space import matches as is_in_box
from dovetail.settings import parse_settings
from dovetail.topics import names
from reliability.boxes import DIMENSIONS, clause, contains, draw_box, draw_point
from reliability.boxes import query as query_of
from reliability.topics import matches
from support.strategies.topics import filters
from support.strategies.topics import names as topics

SPACE = f"""
[spaces.space]
topics = "t/#"
[spaces.space.dimensions]
{"".join(f"{name} = [0, 100]{chr(10)}" for name in DIMENSIONS)}
"""


@given(filters(), topics)
def test_filters_match_as_the_specification_says(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic) == names.matches(topic_filter, topic)


@given(st.integers(0, 1_000_000))
def test_boxes_contain_what_their_clauses_match(seed: int) -> None:
    random = Random(seed)
    (space,) = declared_spaces(parse_settings(SPACE, "a test").spaces)
    box, attributes = draw_box(random), draw_point(random)
    point = space.point({name: f"{value:g}" for name, value in attributes.items()})
    for parsed in (
        grammar.parse(clause(box)),
        filter_query.parse_query(query_of(box).removeprefix("?")),
    ):
        found = any(is_in_box(one, point) for one in space.boxes(parsed))
        assert found == contains(box, attributes)
