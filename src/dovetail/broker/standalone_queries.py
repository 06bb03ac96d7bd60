"""The answers of a broker without a cluster to questions about the cluster.

`peering/admin_queries.py` has the same methods for a broker that has peers.
"""

from collections.abc import Mapping

from dovetail.api.reports import (
    ClusterReport,
    DrainReport,
    NodeEntry,
    PeerReport,
    PlanReport,
    PlanRequest,
    RouteReport,
)
from dovetail.broker.explanation import explain_attributes
from dovetail.broker.reporter import Reporter
from dovetail.matcher.plan_assignment import no_matchers
from dovetail.topics.names import check_name


class StandaloneQueries:
    """Answers for the one broker that there is."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def sketch(self) -> None:
        """Return None: there is nobody to send a sketch to."""

    def peers(self) -> tuple[PeerReport, ...]:
        return ()

    async def cluster(self) -> ClusterReport:
        name = self._reporter.name
        return ClusterReport("", name, (NodeEntry(name, "", "alive", self._reporter.node()),))

    async def route(self, topic: str, given: Mapping[str, str] | None = None) -> RouteReport:
        """Raise ClientError for an invalid topic name or attribute."""
        name = check_name(topic)
        router = self._reporter.broker.router
        attributes = explain_attributes(router, name, given, None) if given else None
        here = self._reporter.matches(name, given)
        is_archived = self._reporter.is_archived(name)
        return RouteReport(
            topic, self._reporter.name, here, attributes=attributes, is_archived=is_archived
        )

    async def drain(self, name: str) -> DrainReport:
        return DrainReport(name, "broker" if name == self._reporter.name else "unknown", ())

    async def move(self, _planned: PlanRequest) -> PlanReport:
        raise no_matchers()
