"""Peers' sketches side by side: one search says which of them may match.

Sketches of one geometry share a shelf. A few of them lie there as rows, as they came, and are
searched one by one. More of them are bit-sliced, one bit position of all of them in a slice, and
searched together; slices are as many bytes wide as there are peers for. A delta touches only its
elements' bits. Peers who come and go move the others only when a shelf changes from rows to slices,
or is half empty. Past 64 peers another shelf begins.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.errors import SketchError
from dovetail.topics.kernels import bank as kernels
from dovetail.topics.kernels import ledger as ledger_kernels
from dovetail.topics.kernels import lines as lines_kernels
from dovetail.topics.kernels.lines import LINE_BITS
from dovetail.topics.limits import (
    BANK_FILL_BITS_MAX,
    BANK_LANES,
    BANK_PLAIN_MAX,
    SEARCH_QUERIES_MAX,
)
from dovetail.topics.sketches.base import Delta, Geometry, Sketch, aligned_words
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.topic_column import Column

Peer = TypeVar("Peer", bound=Hashable)
Words = npt.NDArray[np.uint64]
Answers = npt.NDArray[np.bool_]


class SketchBank(Generic[Peer]):
    """What a broker asks before it forwards a publication."""

    def __init__(self, *, probes_max: int = SEARCH_QUERIES_MAX) -> None:
        self._probes_max = probes_max
        self._shelves: list[_Shelf[Peer]] = []
        self._places: dict[Peer, _Shelf[Peer]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, peer: object) -> bool:
        return peer in self._places

    @property
    def nbytes(self) -> int:
        return sum(shelf.holding.nbytes for shelf in self._shelves)

    def version_of(self, peer: Peer) -> int:
        return self.state_of(peer)[1]

    def state_of(self, peer: Peer) -> tuple[int, int]:
        """Lineage and version."""
        return self._place(peer).versions[peer]

    def geometry_of(self, peer: Peer) -> Geometry:
        return self._place(peer).geometry

    def fill_of(self, peer: Peer) -> float:
        """The share of a peer's bits that are set; of a large sketch, among its first lines."""
        shelf = self._place(peer)
        bits = min(shelf.geometry.bits, BANK_FILL_BITS_MAX)
        words = shelf.holding.words(shelf.lanes[peer], bits // 64)
        return int(np.bitwise_count(words).sum()) / bits

    def put(self, peer: Peer, sketch: Sketch) -> None:
        """A peer's sketch, in place of the one it had, if any."""
        if not isinstance(sketch, LinesSketch):
            raise SketchError(f"a bank holds sketches in lines, and none of {sketch.geometry}")
        shelf = self._places.get(peer)
        if shelf is None or shelf.geometry != sketch.geometry:
            # The new one is there before the old one goes: no search misses this peer.
            new = self._shelf_for(sketch.geometry)
            new.put(peer, sketch)
            if shelf is not None:
                self._leave(peer, shelf)
            self._places[peer] = new
        else:
            shelf.put(peer, sketch)

    def apply(self, peer: Peer, delta: Delta) -> None:
        """Bring a peer's bits to the delta's version, as `Sketch.apply` does."""
        self._place(peer).apply(peer, delta)

    def remove(self, peer: Peer) -> None:
        self._leave(peer, self._place(peer))
        del self._places[peer]

    def search(self, topic: str | bytes) -> list[Peer]:
        """The peers that may have a subscriber for this topic, in no particular order."""
        peers, answers = self.search_column(Column.of([topic]))
        return [peer for peer, may_match in zip(peers, answers[0], strict=True) if may_match]

    def search_column(self, topics: Column) -> tuple[list[Peer], Answers]:
        """All peers, and for each topic (row) and peer (column) whether it may match."""
        peers: list[Peer] = []
        answers: list[Answers] = [np.zeros((0, len(topics)), np.bool_)]
        for shelf in self._shelves:
            found = shelf.holding.search(topics, self._probes_max, list(shelf.lanes.values()))
            peers += shelf.lanes
            answers.append(found)
        return peers, np.concatenate(answers).T

    def search_peer(self, peer: Peer, topics: Column) -> Answers:
        """For each topic whether this peer may match."""
        shelf = self._place(peer)
        answers: Answers = shelf.holding.search(topics, self._probes_max, [shelf.lanes[peer]])[0]
        return answers

    def _place(self, peer: Peer) -> "_Shelf[Peer]":
        try:
            return self._places[peer]
        except KeyError:
            raise SketchError(f"no sketch of {peer} is known") from None

    def _shelf_for(self, geometry: Geometry) -> "_Shelf[Peer]":
        for shelf in self._shelves:
            if shelf.geometry == geometry and len(shelf.lanes) < BANK_LANES:
                return shelf
        shelf = _Shelf[Peer](geometry)
        self._shelves.append(shelf)
        return shelf

    def _leave(self, peer: Peer, shelf: "_Shelf[Peer]") -> None:
        shelf.remove(peer)
        if not shelf.lanes:
            self._shelves.remove(shelf)


class _Shelf(Generic[Peer]):
    """Up to 64 sketches of one geometry, each in a lane of what holds them."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.lanes: dict[Peer, int] = {}
        self.versions: dict[Peer, tuple[int, int]] = {}
        self.holding: _Rows | _Slices = _Rows(geometry, 0)

    def put(self, peer: Peer, sketch: LinesSketch) -> None:
        if peer not in self.lanes:
            self._make_room()
            free = set(range(len(self.holding))) - set(self.lanes.values())
            self.lanes[peer] = min(free)
        self.holding.put(self.lanes[peer], sketch.words)
        self.versions[peer] = (sketch.lineage, sketch.version)

    def apply(self, peer: Peer, delta: Delta) -> None:
        lineage, version = self.versions[peer]
        if (
            delta.geometry != self.geometry
            or not lineage
            or delta.lineage != lineage
            or delta.since > version
        ):
            raise SketchError(
                f"the delta does not continue what is known of {peer} (version {version:,})",
                hint="Ask for the whole sketch.",
            )
        if delta.version <= version:
            return
        self.holding.follow(self.lanes[peer], delta)
        self.versions[peer] = (lineage, delta.version)

    def remove(self, peer: Peer) -> None:
        # The lane's bits stay until somebody else takes it; searches ask only lanes in use.
        del self.lanes[peer]
        del self.versions[peer]
        # At half, so that one who comes and goes does not move all the others each time.
        if len(self.lanes) <= len(self.holding) // 2:
            is_few = len(self.lanes) <= BANK_PLAIN_MAX // 2
            shape = _Rows if is_few or isinstance(self.holding, _Rows) else _Slices
            self._move(shape(self.geometry, len(self.lanes)))

    def _make_room(self) -> None:
        """For one more."""
        count = len(self.lanes) + 1
        if count <= len(self.holding):
            return
        if isinstance(self.holding, _Slices):
            self.holding = self.holding.widened()
        else:
            shape = _Rows if count <= BANK_PLAIN_MAX else _Slices
            self._move(shape(self.geometry, count))

    def _move(self, holding: "_Rows | _Slices") -> None:
        """All of them to another place. Lanes are numbered anew."""
        for lane, (peer, old) in enumerate(self.lanes.items()):
            holding.put(lane, self.holding.words(old, self.geometry.bits // 64))
            self.lanes[peer] = lane
        self.holding = holding


class _Rows:
    """A few sketches as they are."""

    def __init__(self, geometry: Geometry, count: int) -> None:
        self._geometry = geometry
        words = geometry.bits // 64
        self._rows = aligned_words(count * words).reshape(count, words)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def put(self, lane: int, words: Words) -> None:
        self._rows[lane] = words

    def words(self, lane: int, count: int) -> Words:
        """The first so many of a sketch."""
        words: Words = self._rows[lane, :count]
        return words

    def follow(self, lane: int, delta: Delta) -> None:
        ledger_kernels.follow(
            self._rows[lane],
            np.uint64(self._geometry.bits),
            self._geometry.hashes,
            delta.present,
            delta.gone,
            delta.cleared,
        )

    def search(self, topics: Column, probes_max: int, lanes: list[int]) -> Answers:
        rows = self._rows[lanes[0] : lanes[0] + 1] if len(lanes) == 1 else self._rows
        found = np.zeros((len(rows), len(topics)), np.bool_)
        lines_kernels.search_rows(
            rows,
            np.uint64(self._geometry.bits // LINE_BITS),
            topics.data,
            topics.offsets,
            np.uint64(self._geometry.seed),
            probes_max,
            found,
            np.zeros(len(topics), np.int64),
        )
        return found if len(lanes) == 1 else found[lanes]


class _Slices:
    """Many of them, bit-sliced. Lane p of slices[b] is bit b of sketch p."""

    def __init__(self, geometry: Geometry, count: int) -> None:
        self._geometry = geometry
        self._width = -(-count // 8)
        self._slices = np.zeros(geometry.bits * self._width + kernels.PADDING, np.uint8)

    def __len__(self) -> int:
        return 8 * self._width

    @property
    def nbytes(self) -> int:
        return self._slices.nbytes

    def widened(self) -> "_Slices":
        """The same lanes, and room for eight more."""
        wider = _Slices(self._geometry, len(self) + 8)
        old = self._slices[: -kernels.PADDING].reshape(-1, self._width)
        wider._slices[: -kernels.PADDING].reshape(-1, wider._width)[:, : self._width] = old
        return wider

    def put(self, lane: int, words: Words) -> None:
        kernels.put_words(self._slices, self._width, lane, words)

    def words(self, lane: int, count: int) -> Words:
        """The first so many of a sketch."""
        words = aligned_words(count)
        kernels.take_words(self._slices, self._width, lane, words)
        return words

    def follow(self, lane: int, delta: Delta) -> None:
        kernels.follow_lane(
            self._slices,
            self._width,
            lane,
            np.uint64(self._geometry.bits // LINE_BITS),
            delta.present,
            delta.gone,
            delta.cleared,
        )

    def search(self, topics: Column, probes_max: int, lanes: list[int]) -> Answers:
        found = np.zeros(len(topics), np.uint64)
        kernels.search_bank(
            self._slices,
            np.uint64(self._width),
            np.uint64(self._geometry.bits // LINE_BITS),
            np.uint64(sum(1 << lane for lane in lanes)),
            topics.data,
            topics.offsets,
            np.uint64(self._geometry.seed),
            probes_max,
            found,
        )
        shifts = np.array(lanes, np.uint64)[:, None]
        answers: Answers = (found >> shifts & np.uint64(1)) != 0
        return answers
