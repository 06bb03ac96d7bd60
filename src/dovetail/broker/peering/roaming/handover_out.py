"""Hand-over out: a client has connected to another broker, so its session moves there. Pure.

    HandoverHeader, HandoverFilters..., HandoverMessage (in flight)..., HandoverReady,
    HandoverMessage (queued)...

Rules:

- The broker ends the client's connection here, with its will, as for a take-over at one broker. It
  does not publish a delayed will, because the client is back [MQTT-3.1.3-9].
- The whole session goes in one batch: from then on it is in the outbox to its new broker, or there.
- A session that never began holds messages and no subscriptions. It leaves no redirect behind: its
  markers would close those of the client's real session.
- A clean start discards what the client had here. Another user's session stays, unless this user
  may end it (broker/auth/session_owner.py) and has connected later.
"""

from collections.abc import Collection, Iterator

from dovetail.broker.outgoing_message import ARRIVED_SEQUENCES, OutgoingMessage
from dovetail.broker.peering.control_messages import HandoverFilters, HandoverHeader, HandoverReady
from dovetail.broker.peering.roaming.limits import FILTERS_ITEM_BYTES
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Redirects, handover_message
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.errors import ReasonCode


class HandoverOut:
    """Hands sessions of this broker over to others."""

    def __init__(self, name: str, lifetimes: SessionLifetimes, redirects: Redirects) -> None:
        self._name = name
        self._lifetimes = lifetimes
        self._redirects = redirects

    def give_way(
        self,
        client_id: str,
        user: str | None,
        owner: str,
        stamp: int,
        *,
        is_clean: bool,
        sources: set[str] | None = None,
    ) -> bool:
        """End what the client has here; return True if there was a session to hand over.

        `stamp` is that of its connection at `owner`. `sources` names the brokers whose publications
        do not go there yet; None stands for all.
        """
        ownership = self._redirects.shared.ownership
        session = self._lifetimes.sessions.get(client_id)
        if session is not None and not ownership.may_connect(session.user, user):
            return False
        may_resume = session is not None and ownership.may_resume(session.user, user)
        if session is not None and not may_resume and session.stamp > stamp:
            return False  # two that meet after a cut would end each other
        if session is not None and session.link is not None:
            session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            session = self._lifetimes.sessions.get(client_id)
        if session is None:
            return False
        if is_clean or not may_resume:
            self._lifetimes.end(session)
            return False
        session.user = user
        self.hand_over(session, owner, stamp, sources)
        return True

    def hand_over(
        self, session: Session, owner: str, stamp: int, sources: set[str] | None = None
    ) -> None:
        """Put the whole session into the owner's outbox in one batch, and leave a ghost."""
        redirects = self._redirects
        client_id = session.client_id
        now = redirects.shared.now
        redirect = redirects.begin(session)
        redirect.has_messages_only = session.stamp == NEVER_BEGUN
        if redirect.has_messages_only:
            sources = set()  # it has no subscriptions: nothing that is published comes to it
        elif sources is None:
            sources = {"", *redirects.members()}
        header = HandoverHeader(
            client_id,
            stamp,
            session.stamp,
            session.void_before,
            session.user,
            session.expiry_seconds,
            session.next_packet_id,
            sorted(session.incoming),
            sorted(source or self._name for source in sources),
            sorted(redirect.holders - {owner}) if redirect.guard else [],
            session.is_loss_unconfirmed,
        )
        redirects.put(owner, header)
        for filters in _chunks(session):
            redirects.put(owner, HandoverFilters(client_id, stamp, filters))
        for entry in session.inflight.values():
            redirects.put(owner, handover_message(session, stamp, entry))
        redirects.put(owner, HandoverReady(client_id, stamp))
        held: list[OutgoingMessage] = []
        for entry in session.queue.messages():
            expires_at = entry.message.expires_at
            if redirect.holds and entry.sequence >= ARRIVED_SEQUENCES:
                held.append(entry)
            elif expires_at is None or expires_at > now:
                redirects.put(owner, handover_message(session, stamp, entry))
        self._leave_ghost(session, owner, stamp, sources, held)

    def stand_back(self, session: Session, owner: str, stamp: int) -> list[OutgoingMessage]:
        """Make way for a later session that arrives from `owner`; return the queued messages.

        Messages that still come for the earlier session go through the owner, as if the client had
        gone there while this broker was up.
        """
        session.requeue()
        waited = list(session.queue.messages())
        self._redirects.begin(session).holds = False
        self._leave_ghost(session, owner, stamp, {"", *self._redirects.members()}, [])
        return waited

    def _leave_ghost(
        self,
        session: Session,
        owner: str,
        stamp: int,
        sources: set[str],
        held: Collection[OutgoingMessage],
    ) -> None:
        """Turn the session into a ghost that holds back the messages `held`."""
        redirects = self._redirects
        redirect = redirects.begin(session)
        # Markers about the way to here leave the way from here open.
        session.stamp = max(session.stamp, redirect.guard_stamp)
        redirect.since = redirects.shared.now
        redirect.owner = owner
        redirect.moved_stamp = stamp
        redirect.open = sources
        redirect.has_ended = False
        redirects.arriving.pop(session, None)
        if not redirect.holds:
            redirects.holding.pop(session, None)
        self._lifetimes.hand_over(session, held)
        session.save()
        redirects.add_ghost(session)
        redirects.changed(session)


def _chunks(session: Session) -> Iterator[list[tuple[str, int, int]]]:
    """Return its subscriptions in chunks, one for each control message."""
    chunk: list[tuple[str, int, int]] = []
    size = 0
    for topic_filter, subscription in session.subscriptions.items():
        chunk.append((topic_filter, subscription.options, subscription.identifier))
        size += len(topic_filter)
        if size >= FILTERS_ITEM_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
