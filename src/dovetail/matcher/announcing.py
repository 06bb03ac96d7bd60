"""How far our boxes have come, told to all brokers before SUBACK; and theirs, told to us. Pure.

    broker                                     broker
      | -- BOXES: versions and kinds --------->  |   when a connection comes about, and as boxes
      | <- BOXES_KNOWN: number --------------->  |   change; one at a time

Rules:

- A box counts as known when every live peer has said so. Who waits for that (SUBACK does) waits for
  so long and no longer.
- From then on every broker asks matchers for a version that has the box, and for its kind. A
  matcher that has not got it yet is unsure.
- What a peer has told stays while the peer may come back: what is owed to it is found by it.
- A broker of whose boxes nothing is known is never narrowed: it gets what its topics say.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dovetail.matcher.bodies import (
    BOXES,
    BoxesBody,
    BoxesKnownBody,
    BoxesRow,
    boxes_decoder,
    boxes_known_decoder,
    decoded,
    encode,
)
from dovetail.matcher.feeding import Send

_NOTHING = -1


class Known(NamedTuple):
    """Of a broker's boxes in one space."""

    life: int
    version: int
    kinds: frozenset[int]

    @property
    def is_wide(self) -> bool:
        """It has boxes that no matcher answers for."""
        return 0 in self.kinds


class KnownBoxes:
    """What one broker knows of the boxes of all brokers, itself among them."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[int, int]] = {}
        self._known: dict[str, dict[str, Known]] = {}

    def told(self, broker: str, body: bytes) -> BoxesKnownBody:
        """BOXES. The answer is what is known now, which may be news from a later life."""
        news = decoded(boxes_decoder, body)
        self.put(broker, news)
        return BoxesKnownBody(*self._numbers[broker])

    def put(self, broker: str, news: BoxesBody) -> None:
        if (news.life, news.number) >= self._numbers.get(broker, (0, 0)):
            self._numbers[broker] = (news.life, news.number)
            self._known[broker] = {
                row.space: Known(news.life, row.version, frozenset(row.kinds)) for row in news.rows
            }

    def forget(self, broker: str) -> None:
        self._numbers.pop(broker, None)
        self._known.pop(broker, None)

    def of(self, broker: str, space: str) -> Known | None:
        return self._known.get(broker, {}).get(space)


class _Peer:
    __slots__ = ("is_live", "is_up", "is_waiting", "known")

    def __init__(self) -> None:
        self.is_up = False  # there is a connection to it
        self.is_live = False  # the cluster counts it in
        self.is_waiting = False  # something is on its way to it
        self.known = _NOTHING


class _Waiter(NamedTuple):
    number: int
    deadline: float
    act: Callable[[], None]


class Announcing:
    """One broker's own boxes."""

    def __init__(self, life: int, send: Send) -> None:
        self.life = life
        self._send = send
        self._number = 0
        self._rows: dict[str, BoxesRow] = {}
        self._peers: dict[str, _Peer] = {}
        self._waiters: list[_Waiter] = []

    # Our boxes ------------------------------------------------------------------------------------

    def set(self, rows: Mapping[str, tuple[int, Iterable[int]]]) -> None:
        """Versions and kinds by space. They go out with `flush`."""
        for space, (version, kinds) in rows.items():
            known = self._rows.get(space)
            if known is None or known.version != version:
                self._rows[space] = BoxesRow(space, version, sorted(kinds))
                self._number += 1

    def body(self) -> BoxesBody:
        return BoxesBody(self.life, self._number, list(self._rows.values()))

    def outlive(self, life: int) -> None:
        """Others know a later life of ours."""
        self.life = life
        for peer in self._peers.values():
            peer.known = _NOTHING
            peer.is_waiting = False

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """When every live peer knows what there is now; or at the deadline."""
        self._waiters.append(_Waiter(self._number, deadline, act))
        self._wake()

    # Peers ----------------------------------------------------------------------------------------

    def peer_is_up(self, name: str) -> None:
        peer = self._peers.setdefault(name, _Peer())
        peer.is_up = True
        peer.is_waiting = False
        peer.known = _NOTHING

    def peer_is_down(self, name: str) -> None:
        if name in self._peers:
            self._peers[name].is_up = False

    def peer_is_live(self, name: str, is_live: bool) -> None:
        self._peers.setdefault(name, _Peer()).is_live = is_live
        self._wake()

    def forget(self, name: str) -> None:
        self._peers.pop(name, None)
        self._wake()

    def answered(self, name: str, body: bytes) -> int | None:
        """BOXES_KNOWN. A life that ours has to outlive, if it knows one."""
        known = decoded(boxes_known_decoder, body)
        peer = self._peers.get(name)
        if peer is None:
            return None
        if known.life > self.life:
            return known.life
        if known.life == self.life:
            peer.is_waiting = False
            peer.known = max(peer.known, min(known.number, self._number))
            self._wake()
        return None

    # Time -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        body = b""
        for name, peer in self._peers.items():
            if peer.is_up and not peer.is_waiting and peer.known < self._number:
                body = body or encode(self.body())
                peer.is_waiting = self._send(name, BOXES, body)

    def tick(self, now: float) -> int:
        """How many gave up waiting."""
        late = [waiter for waiter in self._waiters if waiter.deadline <= now]
        self._waiters = [waiter for waiter in self._waiters if waiter.deadline > now]
        for waiter in late:
            waiter.act()
        return len(late)

    def _wake(self) -> None:
        if not self._waiters:
            return
        known = min((peer.known for peer in self._peers.values() if peer.is_live), default=None)
        due = [waiter for waiter in self._waiters if known is None or waiter.number <= known]
        self._waiters = [waiter for waiter in self._waiters if waiter not in due]
        for waiter in due:
            waiter.act()
