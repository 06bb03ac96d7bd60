"""The brokers of a cluster, as a stream that serves their spaces asks them over HTTP. No Spark.

Any node names the others. One that was named stays known while the cluster knows it, also when it
does not answer: its clients are owed their messages (driver.py).
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dovetail.api.engine import Handover, Listed, Question, Taken
from dovetail.api.http_client import Login, NoAnswerError, RefusalError, fetch_as, post_packed
from dovetail.api.reports import ClusterReport, SpacesReport
from dovetail.attributes.space import Space
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import SERVE_ANSWER_SECONDS
from dovetail.pipeline.source.archives import brokers_of
from dovetail.pipeline.stream.cluster_spaces import spaces_reported

_NO_SUCH_SPACE = 404


class Target(NamedTuple):
    """Clauses of one space at one broker."""

    space: str
    broker: str


class Brokers(Protocol):
    """What is asked of them. A NoAnswerError: ask again later."""

    def members(self) -> frozenset[str]:
        """All that the cluster knows, also those that do not answer now."""

    def spaces(self, broker: str) -> tuple[Space, ...]: ...

    def tell(self, broker: str, question: Question) -> Listed | None:
        """None: it has no such space."""

    def take(self, broker: str, handover: Handover) -> Taken | None: ...


@dataclass
class HttpBrokers:
    """See the module."""

    urls: tuple[str, ...]
    login: Login | None = field(default=None, repr=False)
    _known: dict[str, str] = field(default_factory=dict, compare=False)

    def members(self) -> frozenset[str]:
        failed: DovetailError | None = None
        # Who was named first may be the one that is away.
        for url in dict.fromkeys((*self.urls, *self._known.values())):
            try:
                report = fetch_as(self.login, url, "/cluster", ClusterReport)
            except NoAnswerError as error:
                failed = failed or error
                continue
            self._known |= brokers_of(url, report)
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

    def tell(self, broker: str, question: Question) -> Listed | None:
        try:
            return post_packed(
                self._url(broker), "/engine/subscriptions", question, Listed, self.login
            )
        except RefusalError as error:
            if error.status == _NO_SUCH_SPACE:
                return None
            raise

    def take(self, broker: str, handover: Handover) -> Taken | None:
        try:
            return post_packed(
                self._url(broker),
                "/engine/deliveries",
                handover,
                Taken,
                self.login,
                SERVE_ANSWER_SECONDS,
            )
        except RefusalError as error:
            if error.status == _NO_SUCH_SPACE:
                return None
            raise
