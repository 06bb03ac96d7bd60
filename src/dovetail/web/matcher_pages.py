"""The pages of a matcher: health, metrics and the cluster."""

import math
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dovetail import __version__
from dovetail.api.reports import MatcherReport, PartReport, SegmentReport
from dovetail.web.metrics import build_info, registry_of
from dovetail.web.pages import cluster_page, health_page, metrics_page
from dovetail.web.views import MatcherViews

_INDEX = f"""Dovetail {__version__}, a matcher

/healthz  200 when all is well, 503 with the reason when not
/metrics  counters and gauges for Prometheus
/cluster  all nodes of the cluster, as JSON
"""

COUNTERS: Mapping[str, tuple[str, Callable[[MatcherReport], float]]] = {
    "matcher_points": (
        "Publications for which this matcher has answered questions.",
        lambda matcher: matcher.points_answered,
    ),
    "matcher_points_unsure": (
        "Of these, the ones for which a broker had to evaluate its own clauses.",
        lambda matcher: matcher.points_unsure,
    ),
}
GAUGES: Mapping[str, tuple[str, Callable[[MatcherReport], float]]] = {
    "matcher_serving": (
        "1 while brokers ask this matcher; 0 while it joins or leaves.",
        lambda matcher: matcher.phase == "serving",
    ),
    "matcher_boxes": (
        "Boxes that this matcher holds, of all brokers and spaces.",
        lambda matcher: matcher.boxes,
    ),
    "matcher_points_waiting": (
        "Publications that wait for an answer.",
        lambda matcher: matcher.points_waiting,
    ),
    "matcher_busy_share": (
        "The share of the last second or so spent on matching and on the feed of boxes.",
        lambda matcher: matcher.busy_share,
    ),
}


PART_GAUGES: Mapping[str, tuple[str, Callable[[PartReport], float]]] = {
    "matcher_part_boxes": (
        "Boxes that this matcher holds along a dimension of a space.",
        lambda part: part.boxes,
    ),
    "matcher_part_points_waiting": (
        "Publications that wait for an answer along a dimension.",
        lambda part: part.queue,
    ),
    "matcher_part_arrival_rate": (
        "Publications per second that brokers ask this matcher about along a dimension.",
        lambda part: part.arrival_rate,
    ),
    "matcher_part_matching_rate": (
        "Publications per second that it can match there; 0 until it has matched one.",
        lambda part: part.matching_rate,
    ),
    "matcher_part_low": (
        "Where this matcher's segment of a dimension begins; NaN while it has none.",
        lambda part: _segment_end(part, lambda segment: segment.low, -math.inf),
    ),
    "matcher_part_high": (
        "Where this matcher's segment of a dimension ends; NaN while it has none.",
        lambda part: _segment_end(part, lambda segment: segment.high, math.inf),
    ),
}
"""Gauges per space and dimension, which are labels. The dimension is empty in the scheme `full`."""


def _segment_end(
    part: PartReport, read: Callable[[SegmentReport], float | None], infinity: float
) -> float:
    if part.segment is None:
        return math.nan
    end = read(part.segment)
    return infinity if end is None else end


class MatcherCollector(Collector):
    """Reads the current values at each scrape."""

    def __init__(self, views: MatcherViews) -> None:
        self._views = views

    def describe(self) -> list[Metric]:
        """Return nothing: the registry then accepts the names that `collect` yields."""
        return []

    def collect(self) -> Iterator[Metric]:
        matcher = self._views.report().matcher
        assert matcher is not None
        yield build_info()
        for name, (text, read) in COUNTERS.items():
            yield CounterMetricFamily(f"dovetail_{name}", text, value=read(matcher))
        for name, (text, read) in GAUGES.items():
            yield GaugeMetricFamily(f"dovetail_{name}", text, value=read(matcher))
        for name, (text, value) in PART_GAUGES.items():
            gauge = GaugeMetricFamily(f"dovetail_{name}", text, labels=["space", "dimension"])
            for part in matcher.parts:
                gauge.add_metric([part.space, part.dimension], value(part))
            yield gauge


def make_matcher_registry(views: MatcherViews) -> CollectorRegistry:
    return registry_of(MatcherCollector(views))


def make_matcher_application(views: MatcherViews) -> Starlette:
    async def index(_request: Request) -> Response:
        return PlainTextResponse(_INDEX)

    application = Starlette(
        routes=[
            Route("/", index),
            Route("/healthz", health_page(views.health)),
            Route("/metrics", metrics_page(make_matcher_registry(views))),
            Route("/cluster", cluster_page(views.cluster)),
        ]
    )
    application.router.redirect_slashes = False
    return application
