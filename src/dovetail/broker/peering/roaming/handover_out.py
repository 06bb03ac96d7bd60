"""A client has connected to another broker: its session here ends and moves there. Pure.

    Header, Filters..., Entry (in flight)..., Ready, Entry (queued)...

Rules:

- The broker ends the client's connection here, with its will, as for a take-over at one broker. It
  does not publish a delayed will, because the client is back [MQTT-3.1.3-9].
- The whole session goes in one batch: from then on it is in the outbox to its new broker, or there.
- A clean start discards what the client had here. Another user's session stays, unless this user
  may end it (broker/auth/session_owner.py) and has connected later.
"""

from collections.abc import Collection, Iterator

from dovetail.broker.outgoing_message import ARRIVED_SEQUENCES, Outgoing
from dovetail.broker.outlet import Outlet
from dovetail.broker.peering.roaming.limits import FILTERS_ITEM_BYTES
from dovetail.broker.peering.roaming.redirect import Detours, entry_item
from dovetail.broker.peering.stream_messages import Filters, Header, Ready
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.errors import ReasonCode


class Departing:
    """Hands sessions of one broker over to others."""

    def __init__(self, name: str, lifetimes: Lifetimes, detours: Detours) -> None:
        self._name = name
        self._lifetimes = lifetimes
        self._detours = detours

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
        ownership = self._detours.shared.ownership
        session = self._lifetimes.sessions.get(client_id)
        if session is not None and not ownership.may_come(session.user, user):
            return False
        may_resume = session is not None and ownership.may_resume(session.user, user)
        if session is not None and not may_resume and session.stamp > stamp:
            return False  # two that meet after a cut would end each other
        if session is not None and session.link is not None:
            assert isinstance(session.link, Outlet)
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
        detours = self._detours
        client_id = session.client_id
        now = detours.shared.now
        detour = detours.begin(session)
        if sources is None:
            sources = {"", *detours.members()}
        header = Header(
            client_id,
            stamp,
            session.stamp,
            session.void_before,
            session.user,
            session.expiry_seconds,
            session.next_packet_id,
            sorted(session.incoming),
            sorted(source or self._name for source in sources),
            sorted(detour.holders - {owner}) if detour.guard else [],
            session.is_news,
        )
        detours.put(owner, header)
        for filters in _chunks(session):
            detours.put(owner, Filters(client_id, stamp, filters))
        for entry in session.inflight.values():
            detours.put(owner, entry_item(session, stamp, entry))
        detours.put(owner, Ready(client_id, stamp))
        held: list[Outgoing] = []
        for entry in session.queue:
            expires_at = entry.message.expires_at
            if detour.holds and entry.sequence >= ARRIVED_SEQUENCES:
                held.append(entry)
            elif expires_at is None or expires_at > now:
                detours.put(owner, entry_item(session, stamp, entry))
        self._leave_ghost(session, owner, stamp, sources, held)

    def stand_back(self, session: Session, owner: str, stamp: int) -> list[Outgoing]:
        """Make way for a later session that arrives from `owner`; return the queued messages.

        Messages that still come for the earlier session go through the owner, as if the client had
        gone there while this broker was up.
        """
        session.requeue()
        waited = list(session.queue)
        self._detours.begin(session).holds = False
        self._leave_ghost(session, owner, stamp, {"", *self._detours.members()}, [])
        return waited

    def _leave_ghost(
        self,
        session: Session,
        owner: str,
        stamp: int,
        sources: set[str],
        held: Collection[Outgoing],
    ) -> None:
        """Turn the session into a ghost that holds back the messages `held`."""
        detours = self._detours
        detour = detours.begin(session)
        # Notes that are about the way to here leave the way from here open.
        session.stamp = max(session.stamp, detour.guard_stamp)
        detour.since = detours.shared.now
        detour.owner = owner
        detour.moved_stamp = stamp
        detour.open = sources
        detour.has_ended = False
        detours.arriving.discard(session)
        if not detour.holds:
            detours.holding.discard(session)
        self._lifetimes.depart(session, held)
        session.save()
        detours.add_ghost(session)
        detours.changed(session)


def _chunks(session: Session) -> Iterator[list[tuple[str, int, int]]]:
    """Its subscriptions, some in each item."""
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
