"""The sketches of all peers in one bank: one search says which peers may match.

Sketches of one geometry share a group of up to 64. A small group stores sketches as rows, as they
came, and searches them one by one. A larger one is bit-sliced: a slice has one bit position of all
its sketches, and one search covers all of them. Slices are as many bytes wide as the peers need. A
delta changes only the bits of its elements. A peer that joins or leaves moves the others only when
the group changes from rows to slices, or is half empty.
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
from dovetail.topics.sketches.base import Geometry, Sketch, SketchDelta, aligned_words
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.topic_column import TopicColumn

Peer = TypeVar("Peer", bound=Hashable)
Words = npt.NDArray[np.uint64]
Answers = npt.NDArray[np.bool_]


class SketchBank(Generic[Peer]):
    """The sketches that a broker searches before it forwards a publication."""

    def __init__(self, *, probes_max: int = SEARCH_QUERIES_MAX) -> None:
        self._probes_max = probes_max
        self._groups: list[_SketchGroup[Peer]] = []
        self._group_by_peer: dict[Peer, _SketchGroup[Peer]] = {}

    def __len__(self) -> int:
        return len(self._group_by_peer)

    def __contains__(self, peer: object) -> bool:
        return peer in self._group_by_peer

    @property
    def nbytes(self) -> int:
        return sum(group.storage.nbytes for group in self._groups)

    def version_of(self, peer: Peer) -> int:
        return self.state_of(peer)[1]

    def state_of(self, peer: Peer) -> tuple[int, int]:
        """Return lineage and version."""
        return self._group_of(peer).versions[peer]

    def geometry_of(self, peer: Peer) -> Geometry:
        return self._group_of(peer).geometry

    def fill_of(self, peer: Peer) -> float:
        """Return the share of a peer's bits that are set; of a large sketch, in its first lines."""
        group = self._group_of(peer)
        bits = min(group.geometry.bits, BANK_FILL_BITS_MAX)
        words = group.storage.words(group.lanes[peer], bits // 64)
        return int(np.bitwise_count(words).sum()) / bits

    def put(self, peer: Peer, sketch: Sketch) -> None:
        """Add a peer's sketch, or replace the one it has."""
        if not isinstance(sketch, LinesSketch):
            raise SketchError(f"a bank holds sketches in lines, not {sketch.geometry}")
        group = self._group_by_peer.get(peer)
        if group is None or group.geometry != sketch.geometry:
            # Add the new one before the old one goes: no search misses this peer.
            new = self._group_for(sketch.geometry)
            new.put(peer, sketch)
            if group is not None:
                self._remove_from(peer, group)
            self._group_by_peer[peer] = new
        else:
            group.put(peer, sketch)

    def apply(self, peer: Peer, delta: SketchDelta) -> None:
        """Bring a peer's bits to the delta's version, as `Sketch.apply` does."""
        self._group_of(peer).apply(peer, delta)

    def remove(self, peer: Peer) -> None:
        self._remove_from(peer, self._group_of(peer))
        del self._group_by_peer[peer]

    def search(self, topic: str | bytes) -> list[Peer]:
        """Return the peers that may have a subscriber for this topic, in no particular order."""
        peers, answers = self.search_column(TopicColumn.of([topic]))
        return [peer for peer, may_match in zip(peers, answers[0], strict=True) if may_match]

    def search_column(self, topics: TopicColumn) -> tuple[list[Peer], Answers]:
        """Return all peers, and for each topic (row) and peer (column) whether it may match."""
        peers: list[Peer] = []
        answers: list[Answers] = [np.zeros((0, len(topics)), np.bool_)]
        for group in self._groups:
            found = group.storage.search(topics, self._probes_max, list(group.lanes.values()))
            peers += group.lanes
            answers.append(found)
        return peers, np.concatenate(answers).T

    def search_peer(self, peer: Peer, topics: TopicColumn) -> Answers:
        """Return for each topic whether this peer may match."""
        group = self._group_of(peer)
        answers: Answers = group.storage.search(topics, self._probes_max, [group.lanes[peer]])[0]
        return answers

    def _group_of(self, peer: Peer) -> "_SketchGroup[Peer]":
        try:
            return self._group_by_peer[peer]
        except KeyError:
            raise SketchError(f"no sketch of {peer} is known") from None

    def _group_for(self, geometry: Geometry) -> "_SketchGroup[Peer]":
        for group in self._groups:
            if group.geometry == geometry and len(group.lanes) < BANK_LANES:
                return group
        group = _SketchGroup[Peer](geometry)
        self._groups.append(group)
        return group

    def _remove_from(self, peer: Peer, group: "_SketchGroup[Peer]") -> None:
        group.remove(peer)
        if not group.lanes:
            self._groups.remove(group)


class _SketchGroup(Generic[Peer]):
    """Up to 64 sketches of one geometry, each in a lane of the storage."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.lanes: dict[Peer, int] = {}
        self.versions: dict[Peer, tuple[int, int]] = {}
        self.storage: _RowStorage | _SlicedStorage = _RowStorage(geometry, 0)

    def put(self, peer: Peer, sketch: LinesSketch) -> None:
        if peer not in self.lanes:
            self._make_room()
            free = set(range(len(self.storage))) - set(self.lanes.values())
            self.lanes[peer] = min(free)
        self.storage.put(self.lanes[peer], sketch.words)
        self.versions[peer] = (sketch.lineage, sketch.version)

    def apply(self, peer: Peer, delta: SketchDelta) -> None:
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
        self.storage.apply(self.lanes[peer], delta)
        self.versions[peer] = (lineage, delta.version)

    def remove(self, peer: Peer) -> None:
        # The lane's bits stay until another peer takes it; searches read only lanes in use.
        del self.lanes[peer]
        del self.versions[peer]
        # At half, so that a peer that joins and leaves does not move all the others each time.
        if len(self.lanes) <= len(self.storage) // 2:
            is_few = len(self.lanes) <= BANK_PLAIN_MAX // 2
            storage_class = (
                _RowStorage if is_few or isinstance(self.storage, _RowStorage) else _SlicedStorage
            )
            self._move_to(storage_class(self.geometry, len(self.lanes)))

    def _make_room(self) -> None:
        """Make room for one more sketch."""
        count = len(self.lanes) + 1
        if count <= len(self.storage):
            return
        if isinstance(self.storage, _SlicedStorage):
            self.storage = self.storage.widened()
        else:
            storage_class = _RowStorage if count <= BANK_PLAIN_MAX else _SlicedStorage
            self._move_to(storage_class(self.geometry, count))

    def _move_to(self, storage: "_RowStorage | _SlicedStorage") -> None:
        """Move all sketches to another storage. Lanes get new numbers."""
        for lane, (peer, old) in enumerate(self.lanes.items()):
            storage.put(lane, self.storage.words(old, self.geometry.bits // 64))
            self.lanes[peer] = lane
        self.storage = storage


class _RowStorage:
    """A few sketches, unchanged, one a row."""

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
        """Return the first `count` words of a sketch."""
        words: Words = self._rows[lane, :count]
        return words

    def apply(self, lane: int, delta: SketchDelta) -> None:
        ledger_kernels.apply_delta(
            self._rows[lane],
            np.uint64(self._geometry.bits),
            self._geometry.hashes,
            delta.present,
            delta.gone,
            delta.cleared,
        )

    def search(self, topics: TopicColumn, probes_max: int, lanes: list[int]) -> Answers:
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


class _SlicedStorage:
    """Many sketches, bit-sliced. Lane p of slices[b] is bit b of sketch p."""

    def __init__(self, geometry: Geometry, count: int) -> None:
        self._geometry = geometry
        self._width = -(-count // 8)
        self._slices = np.zeros(geometry.bits * self._width + kernels.PADDING, np.uint8)

    def __len__(self) -> int:
        return 8 * self._width

    @property
    def nbytes(self) -> int:
        return self._slices.nbytes

    def widened(self) -> "_SlicedStorage":
        """Return a storage with the same lanes and room for eight more."""
        wider = _SlicedStorage(self._geometry, len(self) + 8)
        old = self._slices[: -kernels.PADDING].reshape(-1, self._width)
        wider._slices[: -kernels.PADDING].reshape(-1, wider._width)[:, : self._width] = old
        return wider

    def put(self, lane: int, words: Words) -> None:
        kernels.put_words(self._slices, self._width, lane, words)

    def words(self, lane: int, count: int) -> Words:
        """Return the first `count` words of a sketch."""
        words = aligned_words(count)
        kernels.take_words(self._slices, self._width, lane, words)
        return words

    def apply(self, lane: int, delta: SketchDelta) -> None:
        kernels.apply_lane_delta(
            self._slices,
            self._width,
            lane,
            np.uint64(self._geometry.bits // LINE_BITS),
            delta.present,
            delta.gone,
            delta.cleared,
        )

    def search(self, topics: TopicColumn, probes_max: int, lanes: list[int]) -> Answers:
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
