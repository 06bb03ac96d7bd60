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
from functools import cache
from typing import NamedTuple

from dovetail.cluster.replicated_state import NOTHING, ReplicatedState
from dovetail.matcher.feed import Send
from dovetail.matcher.matcher_messages import (
    BOXES,
    BoxesBody,
    BoxesKnownBody,
    BoxesRow,
    boxes_decoder,
    boxes_known_decoder,
    decoded,
    encode,
)


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


class Announcing:
    """One broker's own boxes."""

    def __init__(self, life: int, send: Send) -> None:
        self.life = life
        self._send = send
        self._number = 0
        self._rows: dict[str, BoxesRow] = {}
        self._replicas = ReplicatedState()

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
        self._replicas.restart()

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """When every live peer knows what there is now; or at the deadline."""
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
        """BOXES_KNOWN. A life that ours has to outlive, if it knows one."""
        known = decoded(boxes_known_decoder, body)
        if name not in self._replicas:
            return None
        is_current = known.life == self.life
        self._replicas.answered(name, min(known.number, self._number) if is_current else NOTHING)
        return known.life if known.life > self.life else None

    # Time -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        body = cache(lambda: encode(self.body()))
        self._replicas.send(self._number, lambda name, _: self._send(name, BOXES, body()))

    def tick(self, now: float) -> int:
        """How many gave up waiting."""
        return self._replicas.tick(now)
