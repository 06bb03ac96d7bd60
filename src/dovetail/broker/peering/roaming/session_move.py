"""One broker's part in session moves: the other modules put together. Pure.

The package's docstring draws the protocol. Rules that hold for all of it:

- The session with the highest stamp belongs to the client. A broker with another one hands it over,
  whole and in one batch. From then on it is in the outbox to its new broker, or at that broker.
- Broker C's publications before its Note reach the client through A, the last broker. A keeps a
  ghost: the subscriptions without a client, which redirect what they get. B, the new broker, takes
  nothing for the client directly from C until then. So each publication arrives once and in order.
- A shared subscription may pick the ghost; the client gets that message, too. The ghost stays a
  member until all brokers know the members at B. B keeps a message that picks the session at B,
  whatever its origin.
- B sends messages that came directly when A has said End, or when A does not answer.
- A broker that is down may have a session; its sketch says so. Then the client begins anew. B lets
  it in when all live brokers have written their Note behind what they owe that broker. When the
  broker returns it hands over the messages from before, and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint

from dovetail.broker.peering.peer_messages import ClaimBody, ClaimedBody
from dovetail.broker.peering.roaming.claim import Act, Claims
from dovetail.broker.peering.roaming.directory import Traces
from dovetail.broker.peering.roaming.handover_in import Arriving
from dovetail.broker.peering.roaming.handover_out import Departing
from dovetail.broker.peering.roaming.limits import ROUND_SECONDS, ROUND_SESSIONS
from dovetail.broker.peering.roaming.reconcile import Settling
from dovetail.broker.peering.roaming.redirect import Detours, Post
from dovetail.broker.peering.sketch_exchange import Exchange
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.stream_messages import (
    Entry,
    Filters,
    Header,
    Move,
    Note,
    Ready,
    Settle,
)
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.broker.shared_state import Shared


class Moving:
    """Session moves of one broker."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        router: Router,
        lifetimes: Lifetimes,
        exchange: Exchange,
        stamps: Stamps,
        *,
        send: Callable[[str, int, bytes], bool],
        post: Post,
        when_known: Callable[[float, Callable[[], None]], None],
        members: Callable[[], Iterable[str]],
        is_up: Callable[[str], bool],
    ) -> None:
        self._stamps = stamps
        self._comparing: dict[str, Iterator[bool]] = {}
        self._round: Iterator[Session] = iter(())
        self._round_again_at = 0.0
        self._traces = Traces(exchange)
        self._detours = Detours(
            name,
            shared,
            lifetimes,
            post=post,
            members=members,
            is_live=exchange.is_live,
            trace=self._traces.keep,
        )
        departing = Departing(name, lifetimes, self._detours)
        self._settling = Settling(
            name,
            lifetimes,
            exchange,
            self._detours,
            departing,
            newest=self._newest,
            is_up=is_up,
        )
        self._claims = Claims(
            name,
            shared,
            lifetimes,
            stamps,
            self._traces,
            self._detours,
            departing,
            self._settling,
            send=send,
            post=post,
            is_up=is_up,
        )
        self._arriving = Arriving(
            name,
            shared,
            router,
            lifetimes,
            self._detours,
            departing,
            self._settling,
            self._claims,
            when_known,
        )

    def _newest(self, client_id: str, user: str | None) -> int:
        return self._claims.newest(client_id, user)

    @property
    def ghosts(self) -> dict[str, list[Session]]:
        """Sessions that have moved on, by client identifier, the latest last."""
        return self._detours.ghosts

    def restore(self, session: Session, row: bytes) -> bool:
        """Restore a session's redirect from disk; return True if the session has moved on."""
        return self._detours.restore(session, row)

    def restored(self) -> None:
        """Continue after a start, when all messages are restored."""
        self._detours.restored()

    # Clients --------------------------------------------------------------------------------------

    def claim(
        self, client_id: str, user: str | None, is_clean: bool, act: Act, *, begins: bool = True
    ) -> None:
        """Get the session of a client that connects here from wherever it is, then act."""
        self._claims.claim(client_id, user, is_clean, act, begins=begins)

    def claimed(self, name: str, body: ClaimBody, answer: Callable[[ClaimedBody], None]) -> None:
        """Answer a peer to which a client has connected."""
        self._claims.claimed(name, body, answer)

    def answered(self, name: str, answer: ClaimedBody) -> None:
        """Heed a peer's answer to our claim."""
        self._claims.answered(name, answer)

    # Items ----------------------------------------------------------------------------------------

    def take(self, name: str, item: Move) -> None:
        """Take an item from a peer's stream."""
        self._stamps.saw(item.stamp)
        if isinstance(item, Settle):
            self._settling.take_settle(name, item)
        elif isinstance(item, Note):
            self._settling.heed(name, item)
        elif isinstance(item, Header):
            self._arriving.take_header(name, item)
        elif isinstance(item, Filters):
            self._arriving.take_filters(item)
        elif isinstance(item, Entry):
            self._arriving.take_entry(name, item)
        elif isinstance(item, Ready):
            self._arriving.take_ready(name, item)
        else:
            self._arriving.take_end(name, item)

    # Peers and time -------------------------------------------------------------------------------

    def compare(self, name: str) -> None:
        """Begin to look, turn by turn, for sessions of our clients in a peer's new sketch."""
        self._comparing[name] = self._settling.compare(name, self._traces)

    def peer_is_up(self, name: str) -> None:
        self._claims.peer_is_up(name)

    def liveness_changed(self) -> None:
        """Check ghosts when a broker has become live or dead."""
        self._detours.liveness_changed()

    def peer_is_down(self, name: str) -> None:
        self._comparing.pop(name, None)
        self._claims.peer_is_down(name)

    @property
    def has_ghosts(self) -> bool:
        """Are there sessions that have moved on and still redirect messages?"""
        return bool(self._detours.ghosts)

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
        self._comparing.pop(name, None)
        self._claims.forget(name)
        self._settling.forget(name)
        self._detours.forget(name)

    def tick(self, now: float) -> None:
        self._claims.tick(now)
        self._arriving.tick(now)
        self._settling.tick()
        self._look(now)
        for name, comparison in list(self._comparing.items()):
            if next(comparison, None) is None:
                del self._comparing[name]

    def _look(self, now: float) -> None:
        """Check some moving sessions in each turn, with a pause between rounds."""
        if self._round_again_at <= now and not length_hint(self._round):
            self._round = iter([*self._detours.arriving, *self._detours.all_ghosts()])
            self._round_again_at = now + ROUND_SECONDS
        for session in islice(self._round, ROUND_SESSIONS):
            self._settling.look(session, now)
            self._detours.look(session, now)
