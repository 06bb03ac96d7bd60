"""`dovetail spaces`: lists the spaces of a node, their topics, attributes and clauses."""

from collections.abc import Iterator

import msgspec

from dovetail.api.http_client import fetch
from dovetail.api.reports import DimensionReport, SpaceReport, SpacesReport
from dovetail.process.terminal import say, say_json


def show_spaces(url: str, *, as_json: bool) -> None:
    report = fetch(url, "/spaces", SpacesReport)
    if as_json:
        say_json(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        say(*sentences(report))


def sentences(report: SpacesReport) -> Iterator[str]:
    if not report.spaces:
        yield f"{report.asked} has no spaces. A table [spaces.NAME] in its configuration makes one."
        return
    yield f"{report.asked} has {_counted(len(report.spaces), 'space')}:"
    for space in report.spaces:
        yield f"  {space.name}: publications on {space.topics}; {_wanted(space)}"
        width = max(len(name) for name in (*(one.name for one in space.dimensions), *space.texts))
        for dimension in space.dimensions:
            yield f"      {dimension.name:{width}}  {_bounds(dimension)}"
        for text in space.texts:
            yield f"      {text:{width}}  a text"
        if space.json_fields:
            yield "      Fields of JSON payloads are attributes too."
        if space.engine == "spark":
            yield "      A stream on Spark finds who wants them: neither brokers nor matchers look."
        else:
            yield f"      Matchers {_sharing(space)}."


def _wanted(space: SpaceReport) -> str:
    if not space.subscriptions:
        return "nobody here has a where-clause for them"
    clauses = _counted(space.subscriptions, "subscription")
    return f"{clauses} with where-clauses, {_counted(space.boxes, 'box', 'boxes')}"


def _sharing(space: SpaceReport) -> str:
    if space.scheme == "full":
        return "hold all boxes each (full), and any of them is asked"
    if space.scheme == "p2p":
        return f"share its boxes along {space.along} alone (p2p)"
    return f"share its boxes along each dimension (mpartition); policy: {space.policy}"


def _bounds(dimension: DimensionReport) -> str:
    words = f"{dimension.low:g} to {dimension.high:g}"
    return words if dimension.is_searchable else f"{words}, not searchable"


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
