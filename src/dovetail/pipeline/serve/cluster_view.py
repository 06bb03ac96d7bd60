"""The driver's view of a cluster: its brokers, its spaces and the clauses of each broker.

Rules:

- Brokers are asked in parallel. A broker that has not answered in time counts as away. The driver
  keeps asking it, but does not wait for it until it has answered.
- A late answer counts when it arrives: a broker never has two requests at once.
- Spaces are those of the first broker that answers. If a clause does not fit them, the driver
  asks for the spaces again, for a limited time: brokers reload their settings one after the other.
"""

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass

from dovetail.api.engine import ClauseChanges, ClauseQuery
from dovetail.api.http_client import NoAnswerError
from dovetail.pipeline.limits import SERVE_SPACES_SECONDS
from dovetail.pipeline.match.boxes import SubscriptionRefusedError
from dovetail.pipeline.serve.broker_client import BrokerClient, DeliveryTarget
from dovetail.pipeline.serve.clause_shipment import ClauseShipment, ClusterClauses

log = logging.getLogger("dovetail.stream")

_AGAIN_SECONDS = 0.2
_ANSWERS_AT_ONCE = 16

Answers = list[tuple[DeliveryTarget, ClauseChanges | None]]


@dataclass(frozen=True)
class Timing:
    """How long to wait for a broker, and by which clock."""

    wait_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class ClusterView:
    """The brokers of a cluster and their clauses, refreshed on demand."""

    def __init__(self, brokers: BrokerClient, timing: Timing) -> None:
        self._brokers = brokers
        self._timing = timing
        self._clauses = ClusterClauses()
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-follow")
        self._requests: dict[str, Future[Answers]] = {}
        self._spaces_at: float | None = None
        self._is_alone = False
        """No node answered the last request for members."""
        self.members: frozenset[str] = frozenset()
        self.away: set[str] = set()
        """The members that do not answer."""
        self.served_before: dict[DeliveryTarget, int] = {}
        """By list: the broker's first report of the offset that an engine has served."""

    @property
    def clauses(self) -> ClusterClauses:
        return self._clauses

    # Members --------------------------------------------------------------------------------------

    def refresh_members(self) -> frozenset[str]:
        """Ask for the members. Return those that the cluster has forgotten since the last time."""
        try:
            members = self._brokers.members()
        except NoAnswerError as error:
            if not self.members:
                raise
            if not self._is_alone:
                log.warning("no node names the brokers of the cluster: %s", error.message)
            self._is_alone = True
            return frozenset()
        self._is_alone = False
        forgotten = self.members - members
        for name in forgotten:
            self._clauses.forget(name)
            self._requests.pop(name, None)
            self.away.discard(name)
        self.members = members
        return forgotten

    def mark_away(self, name: str, why: str) -> None:
        if name not in self.away:
            self.away.add(name)
            log.warning("%s is away; its deliveries wait until it is back: %s", name, why)

    # Spaces ---------------------------------------------------------------------------------------

    def refresh_spaces(self, *, now: bool = True) -> None:
        """Ask for the spaces. Unless `now`, do so only if the last answer is old."""
        clock = self._timing.clock()
        if not now and clock - (self._spaces_at or 0.0) < SERVE_SPACES_SECONDS:
            return
        failed: NoAnswerError | None = None
        for name in sorted(self.members - self.away):
            try:
                self._clauses.change_spaces(self._brokers.spaces(name))
            except NoAnswerError as error:
                failed = failed or error
                continue
            self._spaces_at = clock
            return
        if failed is not None and self._spaces_at is None:
            raise failed

    # Lists ----------------------------------------------------------------------------------------

    def refresh_clauses(
        self, spaces: Collection[str], served: Callable[[str], int], *, waits: bool
    ) -> None:
        """Refresh all lists of these spaces.

        `served` returns the offset up to which a broker's rows have been delivered; the request
        tells the broker. `waits`: wait until each broker that is not away has answered; those that
        have not answered in time are away from then on.
        """
        timing = self._timing
        until = timing.clock() + timing.wait_seconds
        outstanding = {*self.members}
        while True:
            for name in outstanding - self._requests.keys():
                queries = [
                    self._clauses.query(DeliveryTarget(space, name), served(name))
                    for space in sorted(spaces)
                ]
                self._requests[name] = self._threads.submit(self._answers, name, queries)
            awaited = outstanding - self.away
            left = until - timing.clock() if waits else 1.0
            wait_for([self._requests[name] for name in awaited], max(left, 0))
            outstanding = {name for name in outstanding if not self._receive(name)}
            awaited = outstanding - self.away
            if not awaited or not waits:
                break
            if timing.clock() >= until:
                for name in awaited:
                    self.mark_away(name, "it has not answered")
                break
            timing.sleep(_AGAIN_SECONDS)
        self._clauses.set_away(self.away)

    def _answers(self, broker: str, queries: list[ClauseQuery]) -> Answers:
        """Ask one broker for the changes of its lists; runs in a thread."""
        found: Answers = []
        for query in queries:
            target = DeliveryTarget(query.space, broker)
            while True:
                listed = self._brokers.clause_changes(broker, query)
                found.append((target, listed))
                if listed is None or not listed.has_more:
                    break
                query = ClauseQuery(target.space, listed.life, listed.version)  # noqa: PLW2901
        return found

    def _receive(self, name: str) -> bool:
        request = self._requests[name]
        if not request.done():
            return False
        del self._requests[name]
        try:
            answers = request.result()
        except NoAnswerError:
            return False
        for target, listed in answers:
            self._clauses.apply(target, listed)
            if listed is not None:
                self.served_before.setdefault(target, listed.served)
        if name in self.away:
            self.away.remove(name)
            log.warning("%s answers again", name)
        return True

    def shipment(self) -> ClauseShipment:
        """Return all known clauses. A SubscriptionRefusedError names one that cannot be parsed."""
        until = self._timing.clock() + self._timing.wait_seconds
        while True:
            try:
                return self._clauses.shipment()
            except SubscriptionRefusedError:
                if self._timing.clock() >= until:
                    raise
                self._timing.sleep(_AGAIN_SECONDS)
                self.refresh_spaces()

    def changed_since(
        self, target: DeliveryTarget, life: int, version: int
    ) -> tuple[set[int], set[int]]:
        """Return the ids that were added to a list since this version, and those that were removed.

        Both are empty if the broker does not answer or does not know.
        """
        put: set[int] = set()
        gone: set[int] = set()
        query = ClauseQuery(target.space, life, version)
        while True:
            try:
                listed = self._brokers.clause_changes(target.broker, query)
            except NoAnswerError:
                break
            if listed is None or listed.is_whole:
                break
            put |= {one.id for one in listed.put}
            gone |= {*listed.gone}
            if not listed.has_more:
                break
            query = ClauseQuery(target.space, listed.life, listed.version)
        return put, gone
