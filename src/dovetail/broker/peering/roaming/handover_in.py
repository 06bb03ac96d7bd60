"""Hand-over in: a session arrives from another broker, in several control messages. Pure.

    HandoverHeader, HandoverFilters...,
    HandoverMessage..., HandoverReady    the broker may let the client in
    HandoverMessage...                   queued messages, and those that the ghost redirects
    RedirectEnd                          nothing more comes through the sender

Rules:

- Messages in flight at the client's last broker keep their packet identifiers. The client does not
  know what another broker had in flight; that is sent anew.
- Arriving messages go before direct ones. The broker holds direct ones back until the redirect
  ends, but not longer than HOLD_SECONDS_MAX.
- A session for which the client did not wait is late: only its messages count.
- A session here that is older than the arriving one becomes a ghost. The ghost redirects messages
  that are still on their way to here to the broker that the later session comes from.
- The broker drops messages that were promised to another user, and those from before a clean start.
- A pending message whose session has moved on follows it.
- Another broker may have accepted what our rules forbid. Only that message is dropped; those behind
  it must come.
"""

import logging
from collections.abc import Callable

from dovetail.attributes.clauses import check_key
from dovetail.broker.limits import HOLD_SECONDS_MAX, SUBACK_WAIT_SECONDS
from dovetail.broker.outgoing_message import ARRIVED_SEQUENCES, OutgoingMessage
from dovetail.broker.peering.control_messages import (
    HandoverFilters,
    HandoverHeader,
    HandoverMessage,
    HandoverReady,
    RedirectEnd,
)
from dovetail.broker.peering.roaming.claimant import Claimant
from dovetail.broker.peering.roaming.handover_out import HandoverOut
from dovetail.broker.peering.roaming.inquiry import Inquiries
from dovetail.broker.peering.roaming.limits import FRESH_SESSION_SECONDS
from dovetail.broker.peering.roaming.reconciliation import Reconciliation
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Redirect, Redirects, redirect_of
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState
from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import check_name

log = logging.getLogger("dovetail.cluster")


class HandoverIn:
    """Takes the sessions that arrive at this broker."""

    def __init__(
        self,
        name: str,
        shared: SharedState,
        router: Router,
        lifetimes: SessionLifetimes,
        redirects: Redirects,
        handover_out: HandoverOut,
        reconciliation: Reconciliation,
        claimant: Claimant,
        inquiries: Inquiries,
        when_known: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._name = name
        self._shared = shared
        self._router = router
        self._lifetimes = lifetimes
        self._redirects = redirects
        self._handover_out = handover_out
        self._reconciliation = reconciliation
        self._claimant = claimant
        self._inquiries = inquiries
        self._when_known = when_known

    def take_header(self, name: str, header: HandoverHeader) -> None:
        session = self._lifetimes.sessions.get(header.client_id)
        if self._is_late(header, session):
            return
        if session is not None and session.link is not None:
            # Its client has been elsewhere since: this connection is not its last one.
            session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            session = self._lifetimes.sessions.get(header.client_id)
        waited: list[OutgoingMessage] = []
        if session is not None and self._is_earlier(session, header):
            waited = self._handover_out.stand_back(session, name, header.stamp_before)
            session = None
        if session is None:
            session = self._lifetimes.begin_handed_over(
                header.client_id, header.user, header.expiry_seconds
            )
            session.stamp = NEVER_BEGUN
        session.next_sequence = max(session.next_sequence, ARRIVED_SEQUENCES)
        redirect = self._redirects.begin(session)
        if header.stamp_before > session.stamp:
            # The client remembers what was in flight at its last broker.
            session.requeue()
            session.next_packet_id = header.next_packet_id
            for packet_id in header.incoming:
                session.hold_incoming(packet_id)
            session.stamp = header.stamp_before
            session.is_loss_unconfirmed = header.is_loss_unconfirmed
            redirect.last_holder = name
            redirect.last_stamp = header.stamp_before
        session.void_before = max(session.void_before, header.void_before)
        redirect.unready.add(name)
        redirect.guard |= {"" if source == self._name else source for source in header.sources}
        redirect.guard_stamp = header.stamp
        redirect.holders |= {name, *self._redirects.known(header.behind)}
        redirect.ending.add(name)
        redirect.holds = True
        self._redirects.holding[session] = None
        redirect.requested_at = self._shared.now
        redirect.hold_until = self._shared.now + HOLD_SECONDS_MAX
        self._redirects.arriving[session] = None
        session.save()
        for entry in waited:
            session.offer_late(entry.message, entry.qos, entry.retain, entry.identifiers)

    def _is_earlier(self, session: Session, header: HandoverHeader) -> bool:
        """Return whether the session here is of an earlier connection."""
        return (
            NEVER_BEGUN < session.stamp < header.stamp_before
            and self._redirects.arriving_with(header.client_id, header.stamp) is None
        )

    def _is_late(self, header: HandoverHeader, session: Session | None) -> bool:
        if self._claimant.begins_anew(header.client_id, header.user):
            return True
        if session is None:
            return False
        is_fresh = session.redirect is not None and redirect_of(session).is_fresh
        return (
            is_fresh
            or session.user != header.user
            or session.stamp > header.stamp_before
            or session.stamp >= header.stamp
        )

    def take_filters(self, filters: HandoverFilters) -> None:
        session = self._redirects.arriving_with(filters.client_id, filters.stamp)
        if session is None:
            ghost = self._redirects.ghost_with(filters.client_id, filters.stamp)
            if ghost is not None:
                moved = redirect_of(ghost)
                further = HandoverFilters(filters.client_id, moved.moved_stamp, filters.filters)
                self._redirects.put(moved.owner, further)
            return
        for key, options, identifier in filters.filters:
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

    def take_message(self, name: str, pending: HandoverMessage) -> None:
        try:
            check_name(pending.topic)
        except ClientError as error:
            log.warning("dropped a message of another broker's client: %s", error)
            self._shared.counters.publishes_dropped += 1
            return
        session = self._lifetimes.sessions.get(pending.client_id)
        # A client may be back here. Its messages follow it all the way, in order.
        to = self._redirects.following(pending.client_id, pending.stamp)
        if to is None:
            is_own = session is not None and session.user == pending.user
            ghost = self._redirects.ghost_after(pending.client_id, pending.user, pending.stamp)
            to = session if is_own else ghost
        if to is None and session is None and not self._has_ended(pending):
            self._adopt(pending)
        elif to is None or to.user != pending.user or pending.stamp < to.void_before:
            self._shared.counters.publishes_dropped += 1
        elif to is session:
            self._add_message(name, to, pending)
        elif not pending.released:
            entry = OutgoingMessage(
                pending.message(), pending.qos, pending.retain, pending.identifiers, 0
            )
            self._redirects.hand_on(to, entry)

    def _has_ended(self, pending: HandoverMessage) -> bool:
        last_end = self._redirects.last_end(pending.client_id, pending.user)
        return NEVER_BEGUN < pending.stamp <= last_end

    def _adopt(self, pending: HandoverMessage) -> None:
        """Keep a message whose session has moved on, and look for the session."""
        if pending.released:
            return
        session = self._lifetimes.begin_handed_over(
            pending.client_id, pending.user, FRESH_SESSION_SECONDS
        )
        session.next_sequence = ARRIVED_SEQUENCES
        session.stamp = NEVER_BEGUN
        session.save()
        session.offer_late(pending.message(), pending.qos, pending.retain, pending.identifiers)
        self._inquiries.inquire(session)

    def _add_message(self, name: str, session: Session, pending: HandoverMessage) -> None:
        message = pending.message()
        redirect = session.redirect
        if (
            isinstance(redirect, Redirect)
            and redirect.guard_stamp == pending.stamp
            and (redirect.holds or name in redirect.unready)
        ):
            packet_id = 0
            if name == redirect.last_holder and session.stamp == redirect.last_stamp:
                packet_id = 0 if pending.packet_id in session.inflight else pending.packet_id
            if packet_id or not pending.released:
                session.add_handed_over(
                    message,
                    pending.qos,
                    pending.retain,
                    pending.identifiers,
                    packet_id=packet_id,
                    released=pending.released,
                    sequence=redirect.next_arrival,
                )
                redirect.next_arrival += 1
        elif not pending.released:
            # Sent anew: the client does not know what was in flight there.
            session.offer_late(message, pending.qos, pending.retain, pending.identifiers)

    def take_ready(self, name: str, ready: HandoverReady) -> None:
        session = self._redirects.arriving_with(ready.client_id, ready.stamp)
        if session is not None:
            arrived = session
            redirect_of(session).unready.discard(name)
            session.save()
            # Others route by our sketch as it is now, soon.
            self._when_known(
                self._shared.now + SUBACK_WAIT_SECONDS,
                lambda: self._reconciliation.request_reroute(arrived),
            )
        is_awaited = self._claimant.session_arrived(ready.client_id, name, session)
        if session is not None and not is_awaited:
            self._inquiries.inquire(session)

    def take_end(self, name: str, end: RedirectEnd) -> None:
        session = self._redirects.following(end.client_id, end.stamp)
        if session is not None:
            redirect = redirect_of(session)
            redirect.ending.discard(name)
            if redirect.holds and not redirect.ending:
                self._redirects.release(session)

    # Time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        for session in list(self._redirects.holding):
            if session.redirect is None or self._redirects.has_ended(session):
                self._redirects.holding.pop(session, None)
            elif redirect_of(session).hold_until <= now:
                self._redirects.release(session)
