"""Publications change their way: to the broker that has a client's session now. Pure.

    B == Settle ==> C          route by this version of my sketch
    C == Note ====> A and B    my publications go to B from here on

Rules:

- A Note stands between two publications in C's streams to A and to B. Publications before it reach
  the client through A, those behind it directly: each of them once.
- C writes its Notes when it routes by the sketch that Settle names, and not before.
- A broker that waits for Notes asks again: C may have been killed while it waited for the sketch.
  It asks only brokers that accept what they are sent. For the others the question still waits.
- A Note names the broker to which publications go from there on. One about the way to here leaves
  the way from here open: a ghost closes at Notes of later connections only.
- A Note may be about a later connection than all that we know. Then we were down or cut off, and
  the Note says where the client is now. We hand over what we have.
- After a cut two brokers may both have a session of a client. The later one is the client's.
  Nothing has to change its way then: publications go to both of them.
"""

from collections.abc import Callable, Iterable, Iterator

from dovetail.broker.peering.roaming.directory import Traces
from dovetail.broker.peering.roaming.handover_out import Departing
from dovetail.broker.peering.roaming.limits import SETTLE_AGAIN_SECONDS, SETTLES_WAITING_MAX
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Detour, Detours, detour_of
from dovetail.broker.peering.sketch_exchange import Exchange
from dovetail.broker.peering.stream_messages import Note, Settle
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.limits import FORGET_SECONDS


class Settling:
    """One broker's part in reconciling the ways of publications."""

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
        """`newest` returns a client's last stamp here; `is_up`, whether a peer accepts items."""
        self._name = name
        self._lifetimes = lifetimes
        self._exchange = exchange
        self._detours = detours
        self._departing = departing
        self._newest = newest
        self._is_up = is_up
        self._waiting: dict[tuple[str, str, int, bool], Settle] = {}
        """Settles that wait for the owner's sketch, by sender, client, stamp and lateness."""

    # The session is here --------------------------------------------------------------------------

    def settle(self, session: Session, *, is_again: bool = False) -> None:
        """Take this broker's publications from now on, and ask the others for their Notes."""
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
        """Return the Settle that says that the client is here."""
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
        """Tell a peer, step by step, of each client of which both of us have a session.

        Yields True after each step.
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
        """Keep a Settle until the owner's sketch is here. Without room, its sender asks again."""
        key = (name, item.client_id, item.stamp, item.is_late)
        if key in self._waiting or len(self._waiting) < SETTLES_WAITING_MAX:
            self._waiting[key] = item

    def heed(self, source: str, note: Note) -> None:
        """Heed a Note: the source's publications go directly to the client's new broker."""
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
            if detour.owner and session.stamp < note.stamp and not self._is_way_here(note, detour):
                detour.open.discard(source)
            if detour.guard_stamp <= note.stamp:
                detour.guard.discard(source)
            detours.changed(session)

    def _is_way_here(self, note: Note, ghost: Detour) -> bool:
        """Return whether a Note is about a connection here from before the session moved on.

        Its client may have connected here, and gone on before we let it in. The source's
        publications come here then, and only the ghost takes them to the client.
        """
        return note.owner == self._name and note.stamp < ghost.moved_stamp

    # Peers and time -------------------------------------------------------------------------------

    def tick(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (name, *_), item in waiting.items():
            self.take_settle(name, item)

    def look(self, session: Session, now: float) -> None:
        """Ask again for missing Notes; called from time to time."""
        self._settle_again(session, now)
        if session.detour is not None and detour_of(session).owner:
            self._ask_for_notes(session, detour_of(session), now)

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
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
        """Ask the others ourselves: the owner may not know that we had the session."""
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
