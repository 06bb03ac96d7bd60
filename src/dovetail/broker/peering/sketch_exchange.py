"""Sketches travel: ours to all peers as it changes, theirs into the bank that routes are found in.

    owner                                     peer
      | -- WHOLE: bits, at version v --------> |   when a connection comes about, bits were laid
      | <- MORE: from this place on ---------- |   out anew or too much has changed; part by part
      | <- KNOWN: lineage, version ----------- |
      | -- DELTA: what changed since v ------> |   at once, but one at a time: what changes while
      | <- KNOWN, or LOST: I lack what it      |   one is on its way goes with the next
      |    builds on ------------------------- |

Rules:

- Our sketch covers every filter of ours from before anybody waits for it until after it is out of
  the table of subscriptions. A sketch that grows is replaced whole at the peer's, so there is no
  moment when a subscription that was known is not.
- A subscription counts as known when every live peer has said KNOWN of a version that has it. Who
  waits for that (SUBACK does) waits for so long and no longer: a peer that hangs holds nobody up.
- What comes late, over a connection that is no more, is told by its lineage and version, which
  rise. An owner whose peers know a higher lineage of it goes beyond that.
- A peer's sketch stays while the peer may come back: what is owed to it is found by it. Of a peer
  that is known and whose sketch is not, as after a start, everything is owed.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from dovetail.broker.peering.limits import (
    SKETCH_ELEMENTS_START,
    SKETCH_GROWTH,
    SKETCH_PART_BYTES,
    SKETCH_PEER_RATE,
    SKETCH_SHRINK,
)
from dovetail.broker.peering.peer_messages import (
    DELTA,
    KNOWN,
    LOST,
    MORE,
    WHOLE,
    Known,
    Part,
    decoded,
    encode,
    known_decoder,
    part_decoder,
    place_decoder,
)
from dovetail.cluster.replicated_state import NOTHING, ReplicatedState
from dovetail.errors import PeerError, SketchError, SketchFormatError
from dovetail.topics.bank import SketchBank
from dovetail.topics.limits import SKETCH_BYTES_MAX
from dovetail.topics.sketches.delta_wire import delta_from_bytes, delta_to_bytes
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.sketches.wire import sketch_from_bytes, sketch_to_bytes
from dovetail.topics.topic_column import Column

Send = Callable[[str, int, bytes], bool]
"""To a peer, a frame of this kind; False if it cannot go now."""


def _room(steps: int) -> int:
    """Elements that a sketch is planned for, so many times grown."""
    return int(SKETCH_ELEMENTS_START * SKETCH_GROWTH**steps)


class Exchange:
    """One broker's side of it."""

    def __init__(
        self,
        *,
        seed: int,
        lineage: int,
        send: Send,
        changed: Callable[[str | None], None],
    ) -> None:
        """`seed` is the cluster's, `lineage` this life's.

        `changed`: routes may be others now; because of this peer, if it is one that was known.
        """
        self._send = send
        self._changed = changed
        self._steps = 0
        self._sketch = LinesSketch.sized_for(
            _room(self._steps), SKETCH_PEER_RATE, seed=seed, lineage=lineage
        )
        self._added: list[str] = []
        self.bank: SketchBank[str] = SketchBank()
        self._replicas = ReplicatedState()
        self._unknown: tuple[str, ...] = ()
        self._departing: dict[str, bytes] = {}  # sketches that peers get part by part
        self._arriving: dict[str, bytearray] = {}

    # Our filters ----------------------------------------------------------------------------------

    @property
    def sketch(self) -> LinesSketch:
        """Of our filters. Those that came since somebody last looked go in together."""
        if self._added:
            filters = Column.of(self._added)
            self._added.clear()
            # Room is made once for many, as after a start. Prefixes that are known count twice.
            keys = LinesSketch.elements_of(filters, self._sketch.geometry.seed)
            wanted = self._sketch.elements + len(np.unique(keys))
            steps = self._steps
            while wanted > _room(steps):
                steps += 1
            self._resize(steps)
            self._sketch.add_column(filters)
        return self._sketch

    def add(self, topic_filter: str) -> None:
        """It will be subscribed to here, and was not."""
        self._added.append(topic_filter)

    def discard(self, topic_filter: str) -> None:
        """Nobody subscribes to it here any more."""
        self.sketch.discard(topic_filter)
        if self._steps and self._sketch.elements < SKETCH_SHRINK * _room(self._steps):
            steps = self._steps
            # To where there is room again: a sketch does not follow every wave.
            while steps and self._sketch.elements * SKETCH_GROWTH < _room(steps - 1):
                steps -= 1
            self._resize(steps)

    def _resize(self, steps: int) -> None:
        if steps != self._steps:
            self._steps = steps
            layout = LinesSketch.plan(_room(steps), SKETCH_PEER_RATE)
            self._sketch = self._sketch.resized(*layout)

    def filter_changed(self, topic_filter: str, is_there: bool) -> None:
        if is_there:
            self.add(topic_filter)
        else:
            self.discard(topic_filter)

    # To the peers ---------------------------------------------------------------------------------

    def peer_is_live(self, name: str, is_live: bool) -> None:
        self._replicas.peer_is_live(name, is_live)

    def is_live(self, name: str) -> bool:
        return self._replicas.is_live(name)

    def peer_is_up(self, name: str, is_up: bool) -> None:
        self._replicas.peer_is_up(name, is_up)
        self._departing.pop(name, None)
        if is_up:
            self.flush()

    def expect(self, name: str) -> None:
        """A peer is known. Until its sketch is, it may have subscribed to anything."""
        if name not in self.bank and name not in self._unknown:
            self._unknown = (*self._unknown, name)
            self._changed(None)

    @property
    def is_synchronous(self) -> bool:
        """We have all live peers' sketches, as far as they had come when they first knew of us.

        What was subscribed to there since then was not acknowledged before we knew.
        """
        return self._replicas.has_peers_states(self.state_of)

    def state_of(self, name: str) -> tuple[int, int]:
        """Lineage and version of what we have of the peer's sketch."""
        return self.bank.state_of(name) if name in self.bank else (0, 0)

    def routes_by(self, name: str, state: tuple[int, int]) -> bool:
        """Does the peer get all that this state of its sketch asks for?"""
        return name not in self.bank or self.bank.state_of(name) >= state

    def forget(self, name: str) -> None:
        """It will not come back."""
        self._departing.pop(name, None)
        self._arriving.pop(name, None)
        self._unknown = tuple(other for other in self._unknown if other != name)
        if name in self.bank:
            self.bank.remove(name)
        self._changed(None)
        self._replicas.forget(name)

    def flush(self) -> None:
        """Tell the peers what changed. For the end of a turn: many changes, one delta."""
        sketch = self.sketch
        delta_since = cache(lambda version: self._delta(sketch, version))
        whole = cache(lambda: sketch_to_bytes(sketch))

        def send(name: str, version: int) -> bool:
            delta = delta_since(version)
            if delta:
                return self._send(name, DELTA, delta)
            self._departing[name] = whole()
            return self._send_part(name, 0)

        self._replicas.send(sketch.version, send)

    @staticmethod
    def _delta(sketch: LinesSketch, version: int) -> bytes:
        """Nothing if a peer that has this version needs the whole."""
        if version == NOTHING:
            return b""
        try:
            delta = delta_to_bytes(sketch.delta(version))
        except SketchError:  # laid out anew since, or too long ago
            return b""
        return delta if len(delta) < sketch.words.nbytes else b""

    def _send_part(self, name: str, place: int) -> bool:
        whole = self._departing[name]
        part = Part(place, len(whole), whole[place : place + SKETCH_PART_BYTES])
        return self._send(name, WHOLE, encode(part))

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """KNOWN, LOST or MORE came from a peer."""
        if name not in self._replicas:
            return
        if (
            kind == MORE
            and name in self._departing
            and self._send_part(name, decoded(place_decoder, body))
        ):
            return
        self._departing.pop(name, None)
        version, own_state = NOTHING, (0, 0)
        if kind == KNOWN:
            known = decoded(known_decoder, body)
            self._outlive(known)
            if known.lineage == self.sketch.lineage:
                version, own_state = known.version, known.own_state
        self._replicas.answered(name, version, own_state)
        self.flush()

    def _outlive(self, known: Known) -> None:
        sketch = self.sketch
        lineage = known.outlived(sketch.lineage, sketch.version)
        if lineage != sketch.lineage:
            sketch.lineage = lineage
            self._replicas.restart()

    # Who waits ------------------------------------------------------------------------------------

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know our filters as they are now, or it is this late."""
        self._replicas.wait(self.sketch.version, deadline, act)

    def tick(self, now: float) -> int:
        """How many had to go without."""
        return self._replicas.tick(now)

    # From the peers -------------------------------------------------------------------------------

    def receive(self, name: str, kind: int, body: bytes) -> tuple[int, bytes]:
        """WHOLE or DELTA came from a peer; the answer to it."""
        try:
            if kind == WHOLE:
                whole = self._assemble(name, decoded(part_decoder, body))
                if not isinstance(whole, bytes):
                    return whole
                self._take_whole(name, whole)
                self._unknown = tuple(other for other in self._unknown if other != name)
            else:
                self._take_delta(name, body)
        except SketchError as error:
            if kind == DELTA and not isinstance(error, SketchFormatError):
                return LOST, b""  # it does not continue what we have
            raise PeerError(f"a sketch that cannot be used: {error.message}") from error
        self._changed(name)
        state = self.bank.state_of(name)
        return KNOWN, encode(Known(*state, self.sketch.lineage, self.sketch.version))

    def _assemble(self, name: str, part: Part) -> bytes | tuple[int, bytes]:
        """The whole, if this was its last part; else the answer."""
        if part.bytes_in_all > SKETCH_BYTES_MAX:
            raise PeerError(f"a sketch of {part.bytes_in_all:,} bytes")
        if not part.place:
            self._arriving[name] = bytearray()
        arriving = self._arriving.get(name)
        if arriving is None or part.place != len(arriving) or not part.data:
            self._arriving.pop(name, None)
            return LOST, b""
        arriving += part.data
        if len(arriving) < part.bytes_in_all:
            return MORE, encode(len(arriving))
        return bytes(self._arriving.pop(name))

    def _take_whole(self, name: str, whole: bytes) -> None:
        sketch = sketch_from_bytes(whole)
        if sketch.geometry.seed != self.sketch.geometry.seed:
            raise PeerError("a sketch with another cluster's seed")
        # One that comes late, over a connection that is no more, is older.
        newest = self.bank.state_of(name) if name in self.bank else (0, 0)
        if (sketch.lineage, sketch.version) >= newest:
            self.bank.put(name, sketch)

    def _take_delta(self, name: str, body: bytes) -> None:
        geometry = self.bank.geometry_of(name) if name in self.bank else self.sketch.geometry
        self.bank.apply(name, delta_from_bytes(body, geometry))

    def search(self, topics: Sequence[bytes]) -> list[tuple[str, ...]]:
        """For each topic the peers that may have a subscriber."""
        if not len(self.bank):
            return [self._unknown] * len(topics)
        peers, answers = self.bank.search_column(Column.of(topics))
        found: dict[bytes, tuple[str, ...]] = {}
        routes = []
        for row in answers:
            key = row.tobytes()
            names = found.get(key)
            if names is None:
                names = found[key] = (
                    *(peer for peer, may_match in zip(peers, row, strict=True) if may_match),
                    *self._unknown,
                )
            routes.append(names)
        return routes

    def search_peer(self, name: str, topics: Sequence[bytes]) -> list[bool]:
        """For each topic whether this peer, whose sketch is known, may have a subscriber."""
        answers: list[bool] = self.bank.search_peer(name, Column.of(topics)).tolist()
        return answers


def load_kernels() -> None:
    """Compiled at set-up: loaded by a call of each rather than when the first peer comes."""
    frames: list[tuple[int, bytes]] = []

    def send(_name: str, kind: int, body: bytes) -> bool:
        frames.append((kind, body))
        return True

    owner = Exchange(seed=0, lineage=1, send=send, changed=lambda _: None)
    other = Exchange(seed=0, lineage=2, send=send, changed=lambda _: None)
    owner.peer_is_up("other", True)
    owner.add("a/+")
    owner.answered("other", *other.receive("owner", *frames.pop()))
    owner.discard("a/+")
    owner.answered("other", *other.receive("owner", *frames.pop()))
    other.search([b"a/b"])
    owner.sketch.resized(*LinesSketch.plan(_room(1), SKETCH_PEER_RATE))
