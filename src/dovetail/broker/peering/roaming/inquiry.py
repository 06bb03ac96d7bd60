"""Inquiries: a session arrived without its client, so its broker asks where the client is. Pure.

Rules:

- An inquiry is a claim for an earlier connection. A broker with a later connection of the client
  answers NEWER.
- The session goes there when it is settled there, if nobody has come for it before.
- A broker whose client has a later clean start says that the session is void. Then it ends.
"""

from collections.abc import Callable

from dovetail.broker.peering.peer_messages import CLAIM, ClaimReply, ClaimRequest, encode
from dovetail.broker.peering.roaming.claim import NEWER
from dovetail.broker.peering.roaming.handover_out import HandoverOut
from dovetail.broker.peering.roaming.limits import INQUIRE_AGAIN_SECONDS, INQUIRIES_MAX
from dovetail.broker.peering.roaming.redirect import Redirects
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState


class Inquiries:
    """This broker's inquiries."""

    def __init__(
        self,
        shared: SharedState,
        lifetimes: SessionLifetimes,
        redirects: Redirects,
        handover_out: HandoverOut,
        *,
        newest: Callable[[str, str | None], int],
        send: Callable[[str, int, bytes], bool],
    ) -> None:
        """`newest` returns a client's last stamp here."""
        self._shared = shared
        self._lifetimes = lifetimes
        self._redirects = redirects
        self._handover_out = handover_out
        self._newest = newest
        self._send = send
        self._again: dict[str, tuple[float, int]] = {}
        """By client identifier: when to ask again where the client is, and how often we have."""

    def inquire(self, session: Session) -> None:
        """Ask where the client of a session is that has arrived without it."""
        self._again.pop(session.client_id, None)
        self._inquire(session)

    def _inquire(self, session: Session) -> None:
        client_id = session.client_id
        newest = self._newest(client_id, session.user)
        body = encode(ClaimRequest(client_id, newest, session.user, is_clean=False))
        for name in self._redirects.members():
            self._send(name, CLAIM, body)

    def answered(self, name: str, answer: ClaimReply) -> None:
        """Take a peer's answer: the session follows the client if it is at that broker."""
        client_id = answer.client_id
        session = self._lifetimes.sessions.get(client_id)
        if (
            answer.verdict != NEWER
            or session is None
            or session.link is not None
            or self._newest(client_id, session.user) != answer.stamp
        ):
            return
        _, times = self._again.pop(client_id, (0.0, 0))
        if answer.is_void:
            self._lifetimes.end(session)
        elif not answer.is_settled and times < INQUIRIES_MAX:
            again_at = self._shared.now + INQUIRE_AGAIN_SECONDS
            self._again[client_id] = (again_at, times + 1)
        else:
            # What is published now reaches the client there already.
            self._handover_out.hand_over(session, name, answer.connection, sources=set())

    def tick(self, now: float) -> None:
        """Ask again for clients that have not been found."""
        for client_id, (again_at, times) in list(self._again.items()):
            session = self._lifetimes.sessions.get(client_id)
            if session is None or session.link is not None:
                del self._again[client_id]
            elif again_at <= now:
                self._again[client_id] = (now + INQUIRE_AGAIN_SECONDS, times)
                self._inquire(session)
