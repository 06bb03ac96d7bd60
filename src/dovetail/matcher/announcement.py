"""Announces the version and kinds of a broker's boxes to all brokers, before SUBACK. Pure.

    broker                                     broker
      | -- ANNOUNCEMENT: versions and kinds -->  |   when a connection opens, and when boxes
      | <- ANNOUNCEMENT_ACK: number -----------  |   change; one at a time

Rules:

- A box counts as known when every live peer has acknowledged it. SUBACK waits for that, until a
  deadline.
- From then on every broker asks matchers for a version that has the box, and for its kind. A
  matcher that does not have that version yet answers "unsure".
- A peer's announcement stays while the peer may come back: messages are spooled for it by that.
- Without an announcement, matchers are not asked about a broker. It gets all publications that its
  sketch matches.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from dovetail.cluster.replicated_state import NOTHING, ReplicatedState
from dovetail.matcher.feed import Send
from dovetail.matcher.matcher_messages import (
    ANNOUNCEMENT,
    Announcement,
    AnnouncementAck,
    SpaceAnnouncement,
    announcement_ack_decoder,
    announcement_decoder,
    decoded,
    encode,
)


class AnnouncedBoxes(NamedTuple):
    """The last announcement of one broker for one space."""

    life: int
    version: int
    kinds: frozenset[int]

    @property
    def is_wide(self) -> bool:
        """Has the broker boxes that no matcher answers for?"""
        return 0 in self.kinds


class BoxDirectory:
    """The announced boxes of all brokers, including our own."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[int, int]] = {}
        self._known: dict[str, dict[str, AnnouncedBoxes]] = {}

    def receive(self, broker: str, body: bytes) -> AnnouncementAck:
        """Handle ANNOUNCEMENT. Return the newest number known, maybe of a later life."""
        news = decoded(announcement_decoder, body)
        self.put(broker, news)
        return AnnouncementAck(*self._numbers[broker])

    def put(self, broker: str, news: Announcement) -> None:
        if (news.life, news.number) >= self._numbers.get(broker, (0, 0)):
            self._numbers[broker] = (news.life, news.number)
            self._known[broker] = {
                row.space: AnnouncedBoxes(news.life, row.version, frozenset(row.kinds))
                for row in news.rows
            }

    def forget(self, broker: str) -> None:
        self._numbers.pop(broker, None)
        self._known.pop(broker, None)

    def of(self, broker: str, space: str) -> AnnouncedBoxes | None:
        return self._known.get(broker, {}).get(space)


class BoxAnnouncer:
    """Announces one broker's own boxes to its peers."""

    def __init__(self, life: int, send: Send) -> None:
        self.life = life
        self._send = send
        self._number = 0
        self._rows: dict[str, SpaceAnnouncement] = {}
        self._replicas = ReplicatedState()

    # Our boxes ------------------------------------------------------------------------------------

    def set(self, rows: Mapping[str, tuple[int, Iterable[int]]]) -> None:
        """Set versions and kinds by space. `flush` sends them."""
        for space, (version, kinds) in rows.items():
            known = self._rows.get(space)
            if known is None or known.version != version:
                self._rows[space] = SpaceAnnouncement(space, version, sorted(kinds))
                self._number += 1

    def body(self) -> Announcement:
        return Announcement(self.life, self._number, list(self._rows.values()))

    def outlive(self, life: int) -> None:
        """Continue as `life`, since others know a later life of ours."""
        self.life = life
        self._replicas.restart()

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Call `act` when every live peer knows our boxes as they are, or at the deadline."""
        self._replicas.wait(self._number, deadline, act)

    # Peers ----------------------------------------------------------------------------------------

    def peer_is_up(self, name: str) -> None:
        self._replicas.peer_is_up(name, True)

    def peer_is_down(self, name: str) -> None:
        self._replicas.peer_is_up(name, False)

    def peer_is_live(self, name: str, is_live: bool) -> None:
        self._replicas.peer_is_live(name, is_live)

    def forget(self, name: str) -> None:
        self._replicas.forget(name)

    def answered(self, name: str, body: bytes) -> int | None:
        """Handle ANNOUNCEMENT_ACK. Return the life that the peer knows if it is later than ours."""
        known = decoded(announcement_ack_decoder, body)
        if name not in self._replicas:
            return None
        is_current = known.life == self.life
        self._replicas.answered(name, min(known.number, self._number) if is_current else NOTHING)
        return known.life if known.life > self.life else None

    # Time -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        if self._replicas.is_sent(self._number):
            return
        body = cache(lambda: encode(self.body()))
        self._replicas.send(self._number, lambda name, _: self._send(name, ANNOUNCEMENT, body()))

    def tick(self, now: float) -> int:
        """Release late waiters. Return how many reached their deadline."""
        return self._replicas.tick(now)
