"""Explains to people how a publication's attributes are matched: space, values, matchers. Pure.

It uses the tables and rules that publications use, but sends nothing and keeps nothing.
"""

from collections.abc import Iterator, Mapping

from dovetail.api.reports import AttributeReport, AttributesReport, MatchingReport, Place, Unasked
from dovetail.attributes.space import Dimension, Point, Space
from dovetail.attributes.space_registry import point_with
from dovetail.broker.matcher_client import Narrowing
from dovetail.broker.router import Router


def explain_attributes(
    router: Router, topic: bytes, given: Mapping[str, str], narrowing: Narrowing | None
) -> AttributesReport:
    """Return how a publication with these attributes on a valid topic would be matched.

    Raise ClientError if an attribute cannot be read. `narrowing` is None without a cluster.
    """
    space = router.spaces.governing(topic)
    if space is None:
        unknown = tuple(AttributeReport(name, text, "unknown") for name, text in given.items())
        return AttributesReport("", "", unknown, "space")
    point = point_with(space, given)
    unasked: Unasked = "attributes"
    matching: MatchingReport | None = None
    if narrowing is None:
        unasked = "alone"
    elif point is not None:
        unasked, matching = narrowing.explain(router.rehearse(topic), point)
    values = tuple(_values(space, given, point))
    return AttributesReport(space.name, space.topics, values, unasked, matching)


def _values(
    space: Space, given: Mapping[str, str], point: Point | None
) -> Iterator[AttributeReport]:
    """Yield the dimensions in their order, then texts and unknown attributes."""
    for number, one in enumerate(space.dimensions):
        text = given.get(one.name, "")
        place: Place = "missing"
        if point is not None and one.name in given:
            place = _place(one, point.values[number])
        yield AttributeReport(one.name, text, place, one.low, one.high)
    names = {one.name for one in space.dimensions}
    for name, text in given.items():
        if name not in names:
            yield AttributeReport(name, text, "text" if name in space.texts else "unknown")


def _place(dimension: Dimension, value: float) -> Place:
    if value < dimension.low:
        return "below"
    return "inside" if value <= dimension.high else "above"
