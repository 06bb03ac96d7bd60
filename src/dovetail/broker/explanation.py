"""Explains to people how a publication's attributes are matched: space, values, matchers. Pure.

It uses the tables and rules that publications use, but sends nothing and keeps nothing.
"""

from collections.abc import Iterator, Mapping

from dovetail.api.reports import (
    AttributeReport,
    AttributesReport,
    MatchingReport,
    SkipReason,
    ValuePosition,
)
from dovetail.attributes.space import Dimension, Point, Space
from dovetail.attributes.space_registry import point_with
from dovetail.broker.matcher_client import MatcherClient
from dovetail.broker.router import Router


def explain_attributes(
    router: Router, topic: bytes, given: Mapping[str, str], matcher_client: MatcherClient | None
) -> AttributesReport:
    """Return how a publication with these attributes on a valid topic would be matched.

    Raise ClientError if an attribute cannot be read. `matcher_client` is None without a cluster.
    """
    space = router.spaces.space_of_topic(topic)
    if space is None:
        unknown = tuple(AttributeReport(name, text, "unknown") for name, text in given.items())
        return AttributesReport("", "", unknown, "space")
    point = point_with(space, given)
    unasked: SkipReason = "attributes"
    matching: MatchingReport | None = None
    if matcher_client is None:
        unasked = "alone"
    elif point is not None:
        unasked, matching = matcher_client.explain(router.route_for_report(topic), point)
    values = tuple(_values(space, given, point))
    return AttributesReport(space.name, space.topics, values, unasked, matching)


def _values(
    space: Space, given: Mapping[str, str], point: Point | None
) -> Iterator[AttributeReport]:
    """Yield the dimensions in their order, then texts and unknown attributes."""
    for number, one in enumerate(space.dimensions):
        text = given.get(one.name, "")
        place: ValuePosition = "missing"
        if point is not None and one.name in given:
            place = _position(one, point.values[number])
        yield AttributeReport(one.name, text, place, one.low, one.high)
    names = {one.name for one in space.dimensions}
    for name, text in given.items():
        if name not in names:
            yield AttributeReport(name, text, "text" if name in space.texts else "unknown")


def _position(dimension: Dimension, value: float) -> ValuePosition:
    if value < dimension.low:
        return "below"
    return "inside" if value <= dimension.high else "above"
