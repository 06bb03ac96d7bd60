"""A client's session follows it from broker to broker, with all that it is owed. Pure.

A client of broker A connects to broker B:

    B -- CLAIM: client, stamp ------------------> all that are there
    B <- CLAIMED: nothing here / it moves / there is a newer one
    A == Header, Filters, Entry..., Ready ======> B     the session; B lets the client in
    A == Entry... ==============================> B     what waited, and what still comes to A
    B == Settle ================================> all   when all route by B's new sketch
    C == Note ==================================> A, B  from here on C's publications go to B
    A == End ===================================> B     A has a Note of everybody who is there

`==` are items: numbered, on disk, in one order with publications (items.py).

Rules:

- The session with the highest stamp is the client's. Whoever has another hands it over, whole and
  in one batch: from then on it is in the outbox to its new broker, or there.
- What a broker C publishes before its Note reaches the client by way of A, where the session lives
  on as a ghost: subscriptions without a client, which hand on what they get. B takes nothing for
  the client straight from C until then. So each publication comes once, and in order.
- A group that picks the ghost gets to the client, too: the ghost is a member until all know those
  of B. What picks the session at B is for it, wherever it came from.
- B sends what it has straight from others when End has come, or A does not answer.
- A broker that is down may have a session (its sketch tells). Then the client begins anew, and is
  let in when all who are there have written their Note behind what they owe that broker. When it is
  back it hands over what waited there from before, and nothing else: no publication comes twice.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint

from dovetail.broker.lifetimes import Lifetimes
from dovetail.broker.peering.arriving import Arriving
from dovetail.broker.peering.bodies import ClaimBody, ClaimedBody
from dovetail.broker.peering.claims import Act, Claims
from dovetail.broker.peering.departing import Departing
from dovetail.broker.peering.detours import Detours, Post
from dovetail.broker.peering.exchange import Exchange
from dovetail.broker.peering.items import Entry, Filters, Header, Move, Note, Ready, Settle
from dovetail.broker.peering.settling import Settling
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.traces import Traces
from dovetail.broker.routing import Router
from dovetail.broker.session import Session
from dovetail.broker.state import Shared
from dovetail.config import ROUND_SECONDS, ROUND_SESSIONS


class Moving:
    """One broker's part in it."""

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
        """Sessions that have moved on, by client identifier; the latest last."""
        return self._detours.ghosts

    def restore(self, session: Session, row: bytes) -> bool:
        """From disk; True for one that has moved on."""
        return self._detours.restore(session, row)

    def restored(self) -> None:
        """With all that was on its way."""
        self._detours.restored()

    # Clients --------------------------------------------------------------------------------------

    def claim(
        self, client_id: str, user: str | None, is_clean: bool, act: Act, *, begins: bool = True
    ) -> None:
        """A client connects here: get its session from wherever it is, then act."""
        self._claims.claim(client_id, user, is_clean, act, begins=begins)

    def claimed(self, name: str, body: ClaimBody, answer: Callable[[ClaimedBody], None]) -> None:
        """It connects at a peer."""
        self._claims.claimed(name, body, answer)

    def answered(self, name: str, answer: ClaimedBody) -> None:
        """What a peer says to our claim."""
        self._claims.answered(name, answer)

    # Items ----------------------------------------------------------------------------------------

    def take(self, name: str, item: Move) -> None:
        """From a peer's stream."""
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
        """A peer's sketch has come: does it have sessions of our clients? Found out in turns."""
        self._comparing[name] = self._settling.compare(name, self._traces)

    def peer_is_up(self, name: str) -> None:
        self._claims.peer_is_up(name)

    def liveness_changed(self) -> None:
        """Others are there than before."""
        self._detours.liveness_changed()

    def peer_is_down(self, name: str) -> None:
        self._comparing.pop(name, None)
        self._claims.peer_is_down(name)

    @property
    def has_ghosts(self) -> bool:
        """Are there sessions here that have moved on, and are not done with?"""
        return bool(self._detours.ghosts)

    def forget(self, name: str) -> None:
        """It will not come back."""
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
        """At sessions on their way, some in each turn: round after round, but not without rest."""
        if self._round_again_at <= now and not length_hint(self._round):
            self._round = iter([*self._detours.arriving, *self._detours.all_ghosts()])
            self._round_again_at = now + ROUND_SECONDS
        for session in islice(self._round, ROUND_SESSIONS):
            self._settling.look(session, now)
            self._detours.look(session, now)
