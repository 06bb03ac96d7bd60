"""The HTTP requests of a serving stream to the brokers of a cluster. No Spark.

Any node names the others. A broker stays known as long as the cluster lists it, even while it does
not answer: the stream keeps its deliveries for it (driver.py).
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dovetail.api.engine import ClauseChanges, ClauseQuery, DeliveryBatch, DeliveryReceipt
from dovetail.api.http_client import Login, NoAnswerError, RefusalError, fetch_as, post_msgpack
from dovetail.api.reports import ClusterReport, SpacesReport
from dovetail.attributes.space import Space
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import SERVE_ANSWER_SECONDS
from dovetail.pipeline.source.archives import broker_urls
from dovetail.pipeline.stream.cluster_spaces import spaces_reported

_NO_SUCH_SPACE = 404


class DeliveryTarget(NamedTuple):
    """The clauses of one space at one broker: a list to follow, and where its matches go."""

    space: str
    broker: str


class BrokerClient(Protocol):
    """Requests to brokers. A NoAnswerError means: ask again later."""

    def members(self) -> frozenset[str]:
        """Return the names of all brokers in the cluster, including those that do not answer."""

    def spaces(self, broker: str) -> tuple[Space, ...]: ...

    def clause_changes(self, broker: str, query: ClauseQuery) -> ClauseChanges | None:
        """Return what has changed in a list of clauses; None if the broker lacks the space."""

    def deliver(self, broker: str, batch: DeliveryBatch) -> DeliveryReceipt | None:
        """Hand over matches. None: the broker lacks the space."""


@dataclass
class HttpBrokerClient:
    """A `BrokerClient` over HTTP. `urls` are those of one node or more."""

    urls: tuple[str, ...]
    login: Login | None = field(default=None, repr=False)
    _known: dict[str, str] = field(default_factory=dict, compare=False)

    def members(self) -> frozenset[str]:
        failed: DovetailError | None = None
        # The node that the user named first may be down.
        for url in dict.fromkeys((*self.urls, *self._known.values())):
            try:
                report = fetch_as(self.login, url, "/cluster", ClusterReport)
            except NoAnswerError as error:
                failed = failed or error
                continue
            self._known |= broker_urls(url, report)
            return frozenset(one.name for one in report.nodes if one.role == "broker")
        assert failed is not None
        raise failed

    def _url(self, broker: str) -> str:
        if broker not in self._known:
            self.members()
        if broker not in self._known:
            raise NoAnswerError(f"{broker} does not say where its HTTP is.")
        return self._known[broker]

    def spaces(self, broker: str) -> tuple[Space, ...]:
        report = fetch_as(self.login, self._url(broker), "/spaces", SpacesReport)
        return spaces_reported(report)

    def clause_changes(self, broker: str, query: ClauseQuery) -> ClauseChanges | None:
        try:
            return post_msgpack(
                self._url(broker), "/engine/subscriptions", query, ClauseChanges, self.login
            )
        except RefusalError as error:
            if error.status == _NO_SUCH_SPACE:
                return None
            raise

    def deliver(self, broker: str, batch: DeliveryBatch) -> DeliveryReceipt | None:
        try:
            return post_msgpack(
                self._url(broker),
                "/engine/deliveries",
                batch,
                DeliveryReceipt,
                self.login,
                SERVE_ANSWER_SECONDS,
            )
        except RefusalError as error:
            if error.status == _NO_SUCH_SPACE:
                return None
            raise
