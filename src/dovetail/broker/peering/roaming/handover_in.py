"""A session arrives from another broker, item by item. Pure.

    Header, Filters..., Entry..., Ready     the broker may let the client in
    Entry...                                queued messages, and those that the ghost redirects
    End                                     nothing more comes through the sender

Rules:

- Messages in flight at the client's last broker keep their packet identifiers. The client does not
  know what another broker had in flight; that is sent anew.
- Arriving messages go before direct ones. The broker holds direct ones back until End, but not
  longer than HOLD_SECONDS_MAX.
- A session for which the client did not wait is late: only its messages count.
- A session here that is older than the arriving one becomes a ghost. The ghost redirects messages
  that are still on their way to here to the broker that the later session comes from.
- The broker drops messages that were promised to another user, and those from before a clean start.
- An Entry whose session has moved on follows it.
- Another broker may have accepted what our rules forbid. Only that item is dropped; what is behind
  it must come.
"""

import logging
from collections.abc import Callable

from dovetail.attributes.clauses import check_key
from dovetail.broker.limits import HOLD_SECONDS_MAX, SUBACK_WAIT_SECONDS
from dovetail.broker.outgoing_message import ARRIVED_SEQUENCES, Outgoing
from dovetail.broker.outlet import Outlet
from dovetail.broker.peering.roaming.claim import Claims
from dovetail.broker.peering.roaming.handover_out import Departing
from dovetail.broker.peering.roaming.limits import FRESH_SESSION_SECONDS
from dovetail.broker.peering.roaming.reconcile import Settling
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Detour, Detours, detour_of
from dovetail.broker.peering.stream_messages import End, Entry, Filters, Header, Ready
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.broker.shared_state import Shared
from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import check_name

log = logging.getLogger("dovetail.cluster")


class Arriving:
    """Takes sessions that arrive at one broker."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        router: Router,
        lifetimes: Lifetimes,
        detours: Detours,
        departing: Departing,
        settling: Settling,
        claims: Claims,
        when_known: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._name = name
        self._shared = shared
        self._router = router
        self._lifetimes = lifetimes
        self._detours = detours
        self._departing = departing
        self._settling = settling
        self._claims = claims
        self._when_known = when_known

    def take_header(self, name: str, item: Header) -> None:
        session = self._lifetimes.sessions.get(item.client_id)
        if self._is_late(item, session):
            return
        if session is not None and session.link is not None:
            # Its client has been elsewhere since: this connection is not its last one.
            assert isinstance(session.link, Outlet)
            session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            session = self._lifetimes.sessions.get(item.client_id)
        waited: list[Outgoing] = []
        if session is not None and self._is_earlier(session, item):
            waited = self._departing.stand_back(session, name, item.stamp_before)
            session = None
        if session is None:
            session = self._lifetimes.arrive(item.client_id, item.user, item.expiry_seconds)
            session.stamp = NEVER_BEGUN
        session.next_sequence = max(session.next_sequence, ARRIVED_SEQUENCES)
        detour = self._detours.begin(session)
        if item.stamp_before > session.stamp:
            # What was under way at the client's last broker is what the client remembers.
            session.requeue()
            session.next_packet_id = item.next_packet_id
            for packet_id in item.incoming:
                session.hold_incoming(packet_id)
            session.stamp = item.stamp_before
            session.is_news = item.is_news
            detour.last_holder = name
            detour.last_stamp = item.stamp_before
        session.void_before = max(session.void_before, item.void_before)
        detour.unready.add(name)
        detour.guard |= {"" if source == self._name else source for source in item.sources}
        detour.guard_stamp = item.stamp
        detour.holders |= {name, *self._detours.known(item.behind)}
        detour.ending.add(name)
        detour.holds = True
        self._detours.holding.add(session)
        detour.settled_at = self._shared.now
        detour.hold_until = self._shared.now + HOLD_SECONDS_MAX
        self._detours.arriving.add(session)
        session.save()
        for entry in waited:
            session.arrive_late(entry.message, entry.qos, entry.retain, entry.identifiers)

    def _is_earlier(self, session: Session, item: Header) -> bool:
        """Return whether the session here is of an earlier connection."""
        return (
            NEVER_BEGUN < session.stamp < item.stamp_before
            and self._detours.arriving_with(item.client_id, item.stamp) is None
        )

    def _is_late(self, item: Header, session: Session | None) -> bool:
        if self._claims.is_settling(item.client_id, item.user):
            return True
        if session is None:
            return False
        is_fresh = session.detour is not None and detour_of(session).is_fresh
        return (
            is_fresh
            or session.user != item.user
            or session.stamp > item.stamp_before
            or session.stamp >= item.stamp
        )

    def take_filters(self, item: Filters) -> None:
        session = self._detours.arriving_with(item.client_id, item.stamp)
        if session is None:
            ghost = self._detours.ghost_with(item.client_id, item.stamp)
            if ghost is not None:
                moved = detour_of(ghost)
                further = Filters(item.client_id, moved.moved_stamp, item.filters)
                self._detours.put(moved.owner, further)
            return
        for key, options, identifier in item.filters:
            subscription = session.subscriptions.get(key)
            if subscription is None:
                try:
                    check_key(key)
                except ClientError as error:
                    log.warning("dropped a subscription of another broker's client: %s", error)
                    continue
                subscription = self._router.subscribe(session, key, options, identifier)
            if session.persistent:
                self._shared.journal.save_subscription(session.number, key, subscription.row())

    def take_entry(self, name: str, item: Entry) -> None:
        try:
            check_name(item.topic)
        except ClientError as error:
            log.warning("dropped a message of another broker's client: %s", error)
            self._shared.counters.publishes_dropped += 1
            return
        session = self._lifetimes.sessions.get(item.client_id)
        # A client may be back here, and what it is owed go round after it, in order.
        to = self._detours.following(item.client_id, item.stamp)
        if to is None:
            is_own = session is not None and session.user == item.user
            ghost = self._detours.ghost_after(item.client_id, item.user, item.stamp)
            to = session if is_own else ghost
        if to is None and session is None and not self._has_ended(item):
            self._adopt(item)
        elif to is None or to.user != item.user or item.stamp < to.void_before:
            self._shared.counters.publishes_dropped += 1
        elif to is session:
            self._take_entry(name, to, item)
        elif not item.released:
            entry = Outgoing(item.message(), item.qos, item.retain, item.identifiers, 0)
            self._detours.hand_on(to, entry)

    def _has_ended(self, item: Entry) -> bool:
        return item.stamp <= self._detours.last_end(item.client_id, item.user)

    def _adopt(self, item: Entry) -> None:
        """Keep a message whose session has moved on, and look for the session."""
        if item.released:
            return
        session = self._lifetimes.arrive(item.client_id, item.user, FRESH_SESSION_SECONDS)
        session.next_sequence = ARRIVED_SEQUENCES
        session.stamp = NEVER_BEGUN
        session.save()
        session.arrive_late(item.message(), item.qos, item.retain, item.identifiers)
        self._claims.inquire(session)

    def _take_entry(self, name: str, session: Session, item: Entry) -> None:
        message = item.message()
        detour = session.detour
        if (
            isinstance(detour, Detour)
            and detour.guard_stamp == item.stamp
            and (detour.holds or name in detour.unready)
        ):
            packet_id = 0
            if name == detour.last_holder and session.stamp == detour.last_stamp:
                packet_id = 0 if item.packet_id in session.inflight else item.packet_id
            if packet_id or not item.released:
                session.arrive(
                    message,
                    item.qos,
                    item.retain,
                    item.identifiers,
                    packet_id=packet_id,
                    released=item.released,
                    sequence=detour.next_arrival,
                )
                detour.next_arrival += 1
        elif not item.released:
            # The client does not know of what was under way: it is sent anew, or it has it.
            session.arrive_late(message, item.qos, item.retain, item.identifiers)

    def take_ready(self, name: str, item: Ready) -> None:
        session = self._detours.arriving_with(item.client_id, item.stamp)
        if session is not None:
            arrived = session
            detour_of(session).unready.discard(name)
            session.save()
            # Others route by our sketch as it is now, soon.
            self._when_known(
                self._shared.now + SUBACK_WAIT_SECONDS, lambda: self._settling.settle(arrived)
            )
        is_awaited = self._claims.ready(item.client_id, name, session)
        if session is not None and not is_awaited:
            self._claims.inquire(session)

    def take_end(self, name: str, item: End) -> None:
        session = self._detours.following(item.client_id, item.stamp)
        if session is not None:
            detour = detour_of(session)
            detour.ending.discard(name)
            if detour.holds and not detour.ending:
                self._detours.release(session)

    # Time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        for session in list(self._detours.holding):
            if session.detour is None or self._detours.has_ended(session):
                self._detours.holding.discard(session)
            elif detour_of(session).hold_until <= now:
                self._detours.release(session)
