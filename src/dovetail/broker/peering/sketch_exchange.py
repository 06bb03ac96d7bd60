"""Sends our sketch to all peers as it changes, and puts theirs into the bank. Routes search it.

    owner                                     peer
      | -- WHOLE: bits, at version v --------> |   part by part: when a connection opens, the sketch
      | <- MORE: from this place on ---------- |   was resized, or too much has changed
      | <- KNOWN: lineage, version ----------- |
      | -- DELTA: changes since v -----------> |   at once, but one at a time: later changes go with
      | <- KNOWN, or LOST:                     |   the next
      |    I do not have version v ----------- |

Rules:

- A filter enters our sketch before its SUBACK begins to wait, and leaves it after the subscription
  has ended. A peer replaces a resized sketch whole, so a known subscription stays known.
- A subscription counts as known when every live peer has said KNOWN for a version that has it. A
  SUBACK waits for that, but not beyond a deadline: a peer that hangs delays no client for long.
- Lineage and version rise, so a late frame of an earlier connection is recognized. An owner whose
  peers know a higher lineage of it continues above that.
- A peer's sketch stays while the peer may return: it decides what is spooled for the peer. A known
  peer without a sketch, as after a start, gets everything.
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
    ReplicaVersions,
    SketchPart,
    decoded,
    encode,
    place_decoder,
    sketch_part_decoder,
    versions_decoder,
)
from dovetail.cluster.replicated_state import NOTHING, ReplicatedState
from dovetail.errors import PeerError, SketchError, SketchFormatError
from dovetail.topics.bank import SketchBank
from dovetail.topics.limits import SKETCH_BYTES_MAX
from dovetail.topics.sketches.delta_wire import delta_from_bytes, delta_to_bytes
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.sketches.wire import sketch_from_bytes, sketch_to_bytes
from dovetail.topics.topic_column import TopicColumn

Send = Callable[[str, int, bytes], bool]
"""Sends a frame of this kind to a peer; returns False if it cannot go now."""


def _room(steps: int) -> int:
    """Return the elements that a sketch has room for after so many growth steps."""
    return int(SKETCH_ELEMENTS_START * SKETCH_GROWTH**steps)


class SketchExchange:
    """One broker's side of the exchange."""

    def __init__(
        self,
        *,
        seed: int,
        lineage: int,
        send: Send,
        changed: Callable[[str | None], None],
    ) -> None:
        """`seed` belongs to the cluster, `lineage` to this life.

        `changed` is called when routes may have changed: with the peer, or None for all routes.
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
        self._outgoing_parts: dict[str, bytes] = {}  # sketches that peers get part by part
        self._incoming_parts: dict[str, bytearray] = {}

    # Our filters ----------------------------------------------------------------------------------

    @property
    def sketch(self) -> LinesSketch:
        """The sketch of our filters. New filters are added together, when it is read."""
        if self._added:
            filters = TopicColumn.of(self._added)
            self._added.clear()
            # It grows once for many filters, as after a start. Known prefixes count twice.
            keys = LinesSketch.elements_of(filters, self._sketch.geometry.seed)
            wanted = self._sketch.elements + len(np.unique(keys))
            steps = self._steps
            while wanted > _room(steps):
                steps += 1
            self._resize(steps)
            self._sketch.add_column(filters)
        return self._sketch

    def add(self, topic_filter: str) -> None:
        """Add a filter that gets its first subscription here."""
        self._added.append(topic_filter)

    def discard(self, topic_filter: str) -> None:
        """Remove a filter that has no subscription here any more."""
        self.sketch.discard(topic_filter)
        if self._steps and self._sketch.elements < SKETCH_SHRINK * _room(self._steps):
            steps = self._steps
            # To a size with room to spare: a sketch does not follow every wave.
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
        self._outgoing_parts.pop(name, None)
        if is_up:
            self.flush()

    def expect(self, name: str) -> None:
        """Note a known peer. Until we have its sketch, it may have subscribed to anything."""
        if name not in self.bank and name not in self._unknown:
            self._unknown = (*self._unknown, name)
            self._changed(None)

    @property
    def is_synchronous(self) -> bool:
        """Do we have all live peers' sketches, of the versions when they first knew of us?

        Their later subscriptions are not acknowledged before we know them.
        """
        return self._replicas.has_peers_states(self.state_of)

    def state_of(self, name: str) -> tuple[int, int]:
        """Return lineage and version of the sketch that we have of the peer."""
        return self.bank.state_of(name) if name in self.bank else (0, 0)

    def routes_by(self, name: str, state: tuple[int, int]) -> bool:
        """Return whether we route by this state of the peer's sketch, or a later one."""
        return name not in self.bank or self.bank.state_of(name) >= state

    def forget(self, name: str) -> None:
        """Forget a peer that will not return."""
        self._outgoing_parts.pop(name, None)
        self._incoming_parts.pop(name, None)
        self._unknown = tuple(other for other in self._unknown if other != name)
        if name in self.bank:
            self.bank.remove(name)
        self._changed(None)
        self._replicas.forget(name)

    def flush(self) -> None:
        """Send changes to the peers. At the end of a turn, so that many changes share a delta."""
        sketch = self.sketch
        if self._replicas.is_sent(sketch.version):
            return
        delta_since = cache(lambda version: self._delta(sketch, version))
        whole = cache(lambda: sketch_to_bytes(sketch))

        def send(name: str, version: int) -> bool:
            delta = delta_since(version)
            if delta:
                return self._send(name, DELTA, delta)
            self._outgoing_parts[name] = whole()
            return self._send_part(name, 0)

        self._replicas.send(sketch.version, send)

    @staticmethod
    def _delta(sketch: LinesSketch, version: int) -> bytes:
        """Return the delta since a version; empty if a peer with it needs the whole sketch."""
        if version == NOTHING:
            return b""
        try:
            delta = delta_to_bytes(sketch.delta(version))
        except SketchError:  # resized since, or too old
            return b""
        return delta if len(delta) < sketch.words.nbytes else b""

    def _send_part(self, name: str, place: int) -> bool:
        whole = self._outgoing_parts[name]
        part = SketchPart(place, len(whole), whole[place : place + SKETCH_PART_BYTES])
        return self._send(name, WHOLE, encode(part))

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """Take KNOWN, LOST or MORE from a peer."""
        if name not in self._replicas:
            return
        if (
            kind == MORE
            and name in self._outgoing_parts
            and self._send_part(name, decoded(place_decoder, body))
        ):
            return
        self._outgoing_parts.pop(name, None)
        version, own_state = NOTHING, (0, 0)
        if kind == KNOWN:
            known = decoded(versions_decoder, body)
            self._outlive(known)
            if known.lineage == self.sketch.lineage:
                version, own_state = known.version, known.own_state
        self._replicas.answered(name, version, own_state)
        self.flush()

    def _outlive(self, known: ReplicaVersions) -> None:
        sketch = self.sketch
        lineage = known.outlived(sketch.lineage, sketch.version)
        if lineage != sketch.lineage:
            sketch.lineage = lineage
            self._replicas.restart()

    # Waiting for the peers ------------------------------------------------------------------------

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know our filters as they are now, or at the deadline."""
        self._replicas.wait(self.sketch.version, deadline, act)

    def tick(self, now: float) -> int:
        """Return how many acted at their deadline only."""
        return self._replicas.tick(now)

    # From the peers -------------------------------------------------------------------------------

    def receive(self, name: str, kind: int, body: bytes) -> tuple[int, bytes]:
        """Take WHOLE or DELTA from a peer; return the answer."""
        try:
            if kind == WHOLE:
                whole = self._assemble(name, decoded(sketch_part_decoder, body))
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
        return KNOWN, encode(ReplicaVersions(*state, self.sketch.lineage, self.sketch.version))

    def _assemble(self, name: str, part: SketchPart) -> bytes | tuple[int, bytes]:
        """Return the whole sketch after its last part, otherwise the answer."""
        if part.bytes_in_all > SKETCH_BYTES_MAX:
            raise PeerError(f"a sketch of {part.bytes_in_all:,} bytes")
        if not part.place:
            self._incoming_parts[name] = bytearray()
        arriving = self._incoming_parts.get(name)
        if arriving is None or part.place != len(arriving) or not part.data:
            self._incoming_parts.pop(name, None)
            return LOST, b""
        arriving += part.data
        if len(arriving) < part.bytes_in_all:
            return MORE, encode(len(arriving))
        return bytes(self._incoming_parts.pop(name))

    def _take_whole(self, name: str, whole: bytes) -> None:
        sketch = sketch_from_bytes(whole)
        if sketch.geometry.seed != self.sketch.geometry.seed:
            raise PeerError("a sketch with another cluster's seed")
        # A late one, from an earlier connection, is older.
        newest = self.bank.state_of(name) if name in self.bank else (0, 0)
        if (sketch.lineage, sketch.version) >= newest:
            self.bank.put(name, sketch)

    def _take_delta(self, name: str, body: bytes) -> None:
        geometry = self.bank.geometry_of(name) if name in self.bank else self.sketch.geometry
        self.bank.apply(name, delta_from_bytes(body, geometry))

    def search(self, topics: Sequence[bytes]) -> list[tuple[str, ...]]:
        """Return for each topic the peers that may have a subscriber."""
        if not len(self.bank):
            return [self._unknown] * len(topics)
        peers, answers = self.bank.search_column(TopicColumn.of(topics))
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
        """Return for each topic whether this peer, of known sketch, may have a subscriber."""
        answers: list[bool] = self.bank.search_peer(name, TopicColumn.of(topics)).tolist()
        return answers


def load_kernels() -> None:
    """Load the compiled kernels, by a call of each, before the first peer comes."""
    frames: list[tuple[int, bytes]] = []

    def send(_name: str, kind: int, body: bytes) -> bool:
        frames.append((kind, body))
        return True

    owner = SketchExchange(seed=0, lineage=1, send=send, changed=lambda _: None)
    other = SketchExchange(seed=0, lineage=2, send=send, changed=lambda _: None)
    owner.peer_is_up("other", True)
    owner.add("a/+")
    owner.answered("other", *other.receive("owner", *frames.pop()))
    owner.discard("a/+")
    owner.answered("other", *other.receive("owner", *frames.pop()))
    other.search([b"a/b"])
    owner.sketch.resized(*LinesSketch.plan(_room(1), SKETCH_PEER_RATE))
