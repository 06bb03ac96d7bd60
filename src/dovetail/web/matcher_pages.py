"""The pages of a matcher: how it is, for people and for Prometheus."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dovetail import __version__
from dovetail.reports import MatcherReport
from dovetail.web.metrics import build_info, registry_of
from dovetail.web.pages import cluster_page, health_page, metrics_page
from dovetail.web.views import MatcherViews

_INDEX = f"""Dovetail {__version__}, a matcher

/healthz  200 when all is well, 503 with the reason when not
/metrics  counters and gauges for Prometheus
/cluster  all nodes of the cluster, as JSON
"""

COUNTED: Mapping[str, tuple[str, Callable[[MatcherReport], float]]] = {
    "matcher_points": (
        "Publications that this matcher was asked about and has answered for.",
        lambda matcher: matcher.points_answered,
    ),
    "matcher_points_unsure": (
        "Of these, the ones that some broker had to look for in its own clauses.",
        lambda matcher: matcher.points_unsure,
    ),
}
STANDING: Mapping[str, tuple[str, Callable[[MatcherReport], float]]] = {
    "matcher_serving": (
        "1 while this matcher is asked, else 0: it joins, or leaves.",
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
        "The share of the last second or so that went into matching.",
        lambda matcher: matcher.busy_share,
    ),
}


class MatcherCollector(Collector):
    """Asks at each scrape."""

    def __init__(self, views: MatcherViews) -> None:
        self._views = views

    def describe(self) -> list[Metric]:
        """Nothing: a registry that asks takes our names as they come."""
        return []

    def collect(self) -> Iterator[Metric]:
        matcher = self._views.report().matcher
        assert matcher is not None
        yield build_info()
        for name, (text, read) in COUNTED.items():
            yield CounterMetricFamily(f"dovetail_{name}", text, value=read(matcher))
        for name, (text, read) in STANDING.items():
            yield GaugeMetricFamily(f"dovetail_{name}", text, value=read(matcher))


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
