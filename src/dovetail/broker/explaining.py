"""What attributes of a publication lead to, for people: its space, its values, and matchers. Pure.

Nothing is sent or remembered: routes are looked up, and choices rehearsed, by what publications go
by.
"""

from collections.abc import Iterator, Mapping

from dovetail.attributes.space import Dimension, Point, Space
from dovetail.broker.narrowing import Narrowing
from dovetail.broker.routing import Router
from dovetail.broker.spaces import point_with
from dovetail.reports import AttributeReport, AttributesReport, MatchingReport, Place, Unasked


def explain_attributes(
    router: Router, topic: bytes, given: Mapping[str, str], narrowing: Narrowing | None
) -> AttributesReport:
    """Of a valid topic name. A ClientError says which attribute cannot be read.

    `narrowing`: in a cluster.
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
    """Dimensions in their order, then texts and what the space does not know."""
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
