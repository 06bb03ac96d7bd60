"""Publications change their way: to the broker that has a client's session now. Pure.

    B == Settle ==> C          B's sketch is this far: route by it
    C == Note ====> A and B    what C publishes from here on goes to B

Rules:

- A Note stands between two publications in the streams of C to A and to B. What is before it
  reaches the client by way of A, what is behind it straight: each of them once.
- C writes its Notes when it routes by the sketch that Settle names, and not before.
- Who waits for Notes asks again for them: C may have been killed while it waited for the sketch.
  Only those are asked again who take what they are sent. Others have the question before them.
- A Note of a connection that is later than all that we know of tells a broker that was down, or cut
  off, where its client is now. It hands over what it has.
- When brokers meet that both have a session of a client, as after a cut, the later one is the
  client's. Nothing has to change its way then: publications go to both of them.
"""

from collections.abc import Callable, Iterable, Iterator

from dovetail.broker.lifetimes import Lifetimes
from dovetail.broker.peering.departing import Departing
from dovetail.broker.peering.detours import NEVER_BEGUN, Detour, Detours, detour_of
from dovetail.broker.peering.exchange import Exchange
from dovetail.broker.peering.items import Note, Settle
from dovetail.broker.peering.traces import Traces
from dovetail.broker.session import Session
from dovetail.config import FORGET_SECONDS, SETTLE_AGAIN_SECONDS, SETTLES_WAITING_MAX


class Settling:
    """One broker's part in it."""

    def __init__(
        self,
        name: str,
        lifetimes: Lifetimes,
        exchange: Exchange,
        detours: Detours,
        departing: Departing,
        *,
        newest: Callable[[str, str | None], int],
        is_up: Callable[[str], bool],
    ) -> None:
        """`newest`: of a client's connections here. `is_up`: does a peer take what it is sent?"""
        self._name = name
        self._lifetimes = lifetimes
        self._exchange = exchange
        self._detours = detours
        self._departing = departing
        self._newest = newest
        self._is_up = is_up
        self._waiting: dict[tuple[str, str, int, bool], Settle] = {}
        """Those whose sketch we do not have yet, by who asks and what for."""

    # The session is here --------------------------------------------------------------------------

    def settle(self, session: Session, *, is_again: bool = False) -> None:
        """From now on it takes what is published here, and soon what is published elsewhere."""
        if session.detour is None:
            return
        detour = detour_of(session)
        if not detour.guard or self._detours.has_ended(session):
            return
        detour.settled_at = self._detours.shared.now
        if "" in detour.guard:
            note = Note(session.client_id, detour.guard_stamp, self._name, False, session.user)
            self._detours.tell(detour.holders, note)
            self.heed("", note)
            if self._detours.has_ended(session):
                return
        self._detours.tell(
            self._who_are_up(detour.guard) if is_again else detour.guard,
            self.item(session.client_id, detour.guard_stamp, detour.holders, user=session.user),
        )
        self._detours.changed(session)

    def item(
        self,
        client_id: str,
        stamp: int,
        holders: Iterable[str],
        *,
        user: str | None,
        is_clean: bool = False,
        is_late: bool = False,
    ) -> Settle:
        """The client is here."""
        sketch = self._exchange.sketch
        return Settle(
            client_id,
            stamp,
            self._name,
            sorted(holders),
            is_clean,
            user,
            is_late,
            sketch.lineage,
            sketch.version,
        )

    def compare(self, name: str, traces: Traces) -> Iterator[bool]:
        """A peer's sketch has come: does it have sessions of clients whose sessions we have?

        Step by step: True after each.
        """
        for client_ids in traces.both_with(name):
            for client_id in client_ids:
                session = self._lifetimes.sessions.get(client_id)
                if session is not None and session.stamp != NEVER_BEGUN:
                    item = self.item(
                        client_id, session.stamp, (name,), user=session.user, is_late=True
                    )
                    self._detours.put(name, item)
            yield True

    # It is elsewhere ------------------------------------------------------------------------------

    def take_settle(self, name: str, item: Settle) -> None:
        owner = item.owner
        note = Note(item.client_id, item.stamp, owner, item.is_clean, item.user)
        if owner == self._name:
            # We did not know that the sender was one of the last.
            self._detours.put(name, note)
        elif not self._exchange.routes_by(owner, (item.lineage, item.version)):
            self._wait(name, item)
        elif item.is_late:
            if self._newest(item.client_id, item.user) < item.stamp:
                self._departing.give_way(
                    item.client_id, item.user, owner, item.stamp, is_clean=False, sources=set()
                )
        else:
            self._detours.tell({*item.holders, owner} - {self._name}, note)
            self.heed("", note)

    def _wait(self, name: str, item: Settle) -> None:
        """For the owner's sketch. What finds no room is asked for again."""
        key = (name, item.client_id, item.stamp, item.is_late)
        if key in self._waiting or len(self._waiting) < SETTLES_WAITING_MAX:
            self._waiting[key] = item

    def heed(self, source: str, note: Note) -> None:
        """What is published by this source goes straight to the client's new broker."""
        detours = self._detours
        client_id = note.client_id
        if self._newest(client_id, note.user) < note.stamp and note.owner != self._name:
            # We were down, or cut off, when the client connected there.
            self._departing.give_way(
                client_id, note.user, note.owner, note.stamp, is_clean=note.is_clean
            )
        if note.is_clean:
            detours.void(client_id, note.user, note.stamp)
        for session in detours.of_client(client_id, note.user):
            detour = detour_of(session)
            if detour.owner and session.stamp < note.stamp:
                detour.open.discard(source)
            if detour.guard_stamp <= note.stamp:
                detour.guard.discard(source)
            detours.changed(session)

    # Peers and time -------------------------------------------------------------------------------

    def tick(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (name, *_), item in waiting.items():
            self.take_settle(name, item)

    def look(self, session: Session, now: float) -> None:
        """From time to time."""
        self._settle_again(session, now)
        if session.detour is not None and detour_of(session).owner:
            self._ask_for_notes(session, detour_of(session), now)

    def forget(self, name: str) -> None:
        """It will not come back."""
        self._waiting = {
            key: item
            for key, item in self._waiting.items()
            if key[0] != name and item.owner != name
        }

    def _settle_again(self, session: Session, now: float) -> None:
        if session.detour is None:
            return
        detour = detour_of(session)
        if not detour.guard or detour.settled_at + SETTLE_AGAIN_SECONDS > now:
            return
        if detour.since + FORGET_SECONDS <= now:
            detour.guard &= {"", *self._detours.members()}  # others were never heard of here
            self._detours.changed(session)
        self.settle(session, is_again=True)

    def _who_are_up(self, names: Iterable[str]) -> list[str]:
        return [name for name in self._detours.known(names) if self._is_up(name)]

    def _ask_for_notes(self, ghost: Session, detour: Detour, now: float) -> None:
        """The new owner may not have known that we were one of the last."""
        if not detour.open or max(detour.asked_at, detour.since) + SETTLE_AGAIN_SECONDS > now:
            return
        detour.asked_at = now
        lineage, version = self._exchange.state_of(detour.owner)
        item = Settle(
            ghost.client_id,
            detour.moved_stamp,
            detour.owner,
            [self._name],
            is_clean=False,
            user=ghost.user,
            is_late=False,
            lineage=lineage,
            version=version,
        )
        self._detours.tell(self._who_are_up(detour.open), item)
        if "" in detour.open:
            note = Note(ghost.client_id, detour.moved_stamp, detour.owner, False, ghost.user)
            self._detours.put(detour.owner, note)
            detour.open.discard("")
            self._detours.changed(ghost)
