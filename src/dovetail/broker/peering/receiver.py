"""Delivers publications from other brokers. Pure.

Rules:

- A publication from a peer is delivered here and goes nowhere else, so nothing goes in circles.
  There is one exception: it came for a group (groups.py) that has no members here any more. Then it
  is passed on to a broker that has some, at most GROUP_HOPS_MAX times.
- An invalid publication is dropped, not refused: it would come again, and block those behind it.
- A run stays as it came, and goes on like those of clients (broker/run_dispatch.py).
"""

import logging
from collections.abc import Callable, Iterable

from dovetail.attributes.clauses import split_key
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.peering.control_messages import CONTROL_TOPIC, ControlMessage, unpack
from dovetail.broker.peering.forwarder import Forwarder
from dovetail.broker.peering.peer_messages import (
    DeliveryScope,
    ForwardedPublication,
    ForwardedRun,
    decoded,
    expires_at_of,
    scope_decoder,
    to_message,
)
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.route import GroupKey, Route
from dovetail.broker.router import Router
from dovetail.broker.run_dispatch import RunDispatch
from dovetail.broker.shared_state import SharedState
from dovetail.codec.kernels.scan import KIND, QOS_0, QOS_1
from dovetail.codec.run import Run
from dovetail.codec.scanner import Scanner
from dovetail.errors import ClientError, PeerError
from dovetail.messages import Message
from dovetail.topics.names import check_name, matches

log = logging.getLogger("dovetail.cluster")


class Receiver:
    """Takes publications of peers to this broker's dispatch."""

    def __init__(
        self,
        shared: SharedState,
        router: Router,
        dispatch: Dispatch,
        runs: RunDispatch,
        local: LocalDelivery,
        forwarding: Forwarder,
        stamps: Stamps,
        *,
        expire_retained: Callable[[Message], None],
        take_control: Callable[[str, ControlMessage], None],
    ) -> None:
        """`take_control` gets a peer's name and its control message."""
        self._shared = shared
        self._router = router
        self._dispatch = dispatch
        self._runs = runs
        self._local = local
        self._forwarding = forwarding
        self._stamps = stamps
        self._expire_retained = expire_retained
        self._take_control = take_control
        self._scan = Scanner()

    # Runs -----------------------------------------------------------------------------------------

    def take_run(self, name: str, forwarded: ForwardedRun) -> None:
        """Take the packets of one client. Those at QoS 1 were not taken before."""
        version, data = forwarded.version, forwarded.data
        kind = QOS_1 if forwarded.sequence else QOS_0
        self._shared.source = name
        try:
            while data:
                runs, at, _, _ = self._scan(data, version, len(data))
                if not runs:
                    raise PeerError("publications that are cut short")
                if any(run[KIND] != kind for run in runs):
                    raise PeerError("a packet among publications that is none")
                self._take_runs(data, version, runs, forwarded.origin)
                data = data[at:]
        finally:
            self._shared.source = ""

    def _take_runs(self, data: bytes, version: int, runs: list[list[int]], client_id: str) -> None:
        """Neighbouring runs of one route go on as one run."""
        route: Route | None = None
        first = last = packets = joined_kind = has_properties = 0
        for start, body, end, count, topic_end, kind, properties in runs:
            found = self._route(data[body + 2 : topic_end])
            if found is not None and found is route:
                last = end
                packets += count
                has_properties |= properties
                continue
            run = Run(data[first:last], version, joined_kind, packets, has_properties)
            self._take_run(route, run, client_id)
            route, first, last, packets, has_properties = found, start, end, count, properties
            joined_kind = kind
        run = Run(data[first:last], version, joined_kind, packets, has_properties)
        self._take_run(route, run, client_id)

    def _take_run(self, route: Route | None, run: Run, client_id: str) -> None:
        counters = self._shared.counters
        counters.publishes_from_peers += run.packets
        if route is not None:
            counters.publishes_in_vain += self._runs.deliver(route, run, client_id)

    def _route(self, topic: bytes) -> Route | None:
        """Return the route; None if the topic is invalid here. A peer's limits may differ."""
        route = self._router.cache.young.get(topic)
        if route is not None:
            return route
        try:
            check_name(topic)
        except ClientError as error:
            log.warning("dropped a publication of another broker: %s", error)
            self._shared.counters.publishes_dropped += 1
            return None
        return self._router.route(topic)

    # One at a time --------------------------------------------------------------------------------

    def take(self, name: str, publication: ForwardedPublication | ForwardedRun) -> None:
        """Take a publication, a run or a control message that was not taken before."""
        if isinstance(publication, ForwardedRun):
            self.take_run(name, publication)
            return
        shared = self._shared
        if publication.topic == CONTROL_TOPIC:
            expires_at = expires_at_of(publication, shared.now)
            self._take_control(name, unpack(publication.payload, expires_at))
            return
        shared.counters.publishes_from_peers += 1
        scope = decoded(scope_decoder, publication.scope) if publication.scope else None
        self._stamps.saw(publication.stamp)
        message = to_message(publication, shared.now)
        route = self._route(message.topic)
        if route is None:
            return
        if message.retain and publication.expiry_seconds == 0:
            # Retained all the same: it has to replace the earlier one here [MQTT-3.3.2-5].
            shared.counters.publishes_expired += 1
            self._dispatch.retain(message)
            self._expire_retained(message)
            return
        shared.source = name
        try:
            if scope is None or not scope.is_only:
                self._publish_here(name, route, message, scope)
            if scope is not None:
                for key in scope.groups:
                    self._serve(key, message, scope.hops)
        finally:
            shared.source = ""

    def _publish_here(
        self, name: str, route: Route, message: Message, scope: DeliveryScope | None
    ) -> None:
        archived = 0 if scope is None else scope.archived
        # A stream evaluates the clauses of what is archived for it.
        point = None if archived else self._dispatch.read(route, message).point
        is_wanted = self._dispatch.publish_here(route, message, point) is not None
        if archived:
            self._dispatch.note_delivered(route, message, name, archived)
        is_for_all = scope is None or not scope.groups
        if is_for_all and not (is_wanted or route.deliveries or message.retain):
            self._shared.counters.publishes_in_vain += 1
        if message.retain:
            self._expire_retained(message)

    def _serve(self, key: GroupKey, message: Message, hops: int) -> None:
        """Deliver to a group that we were picked for. Its members may have left meanwhile."""
        topic_filter, _ = split_key(key[1])
        if not matches(topic_filter, message.topic.decode()):
            raise PeerError("a publication for a group that does not get it")
        group = self._router.groups.get(key)
        if group is None or not self._local.share(group, message, []):
            self._forwarding.share(key, message, elsewhere=True, hops=hops + 1)

    def take_retained(self, publications: Iterable[ForwardedPublication]) -> None:
        """Take the retained messages of a page. Nobody waits for them."""
        for publication in publications:
            self._stamps.saw(publication.stamp)
            message = to_message(publication, self._shared.now)
            if self._route(message.topic) is not None:
                self._dispatch.retain(message)
                self._expire_retained(message)
