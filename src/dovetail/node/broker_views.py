"""The `Views` of a running broker, from which `web/` makes its pages."""

import logging
from collections.abc import Mapping, Sequence

from dovetail.api.engine import EngineService
from dovetail.api.handles import HandleService
from dovetail.api.reports import (
    ClusterReport,
    DrainReport,
    PeerReport,
    PlanReport,
    PlanRequest,
    RouteReport,
    SketchReport,
    SpacesReport,
)
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.peering.admin_queries import AdminQueries
from dovetail.broker.reporter import Reporter
from dovetail.broker.standalone_queries import StandaloneQueries
from dovetail.process.logs import about
from dovetail.stats import Counters, Gauges
from dovetail.web import AccessView, ArchiveView

log = logging.getLogger("dovetail.node")


class BrokerViews:
    """Reads the broker when a page asks."""

    def __init__(
        self,
        server: BrokerServer,
        reporter: Reporter,
        queries: AdminQueries | StandaloneQueries,
        *,
        access: AccessView,
        handles: HandleService,
        engine: EngineService,
        archive: ArchiveView | None,
    ) -> None:
        self.access = access
        self.handles = handles
        self.engine = engine
        self.archive = archive
        self._server = server
        self._reporter = reporter
        self._queries = queries

    def stats(self) -> tuple[Counters, Gauges]:
        return self._server.shared.counters, self._server.shared.gauges

    def health(self) -> tuple[bool, str]:
        if self._server.shared.journal.refuses_more:
            return False, "the data folder does not take what has to be written"
        return True, "ok"

    def sketch(self) -> SketchReport | None:
        return self._queries.sketch()

    def peers(self) -> Sequence[PeerReport]:
        return self._queries.peers()

    def spaces(self) -> SpacesReport:
        return self._reporter.spaces()

    async def cluster(self) -> ClusterReport:
        self._server.update_clock()
        return await self._queries.cluster()

    async def route(self, topic: str, attributes: Mapping[str, str]) -> RouteReport:
        self._server.update_clock()
        return await self._queries.route(topic, attributes)

    async def drain(self, name: str) -> DrainReport:
        report = await self._queries.drain(name)
        if report.verdict == "leaves":
            log.info("%s hands over and leaves: drained over HTTP", name, extra=about(name))
        return report

    async def plan(self, order: PlanRequest) -> PlanReport:
        report = await self._queries.move(order)
        log.info("matchers move by plan %d, ordered over HTTP", report.number)
        return report
