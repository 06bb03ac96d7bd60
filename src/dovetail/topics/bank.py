"""Peers' sketches side by side, bit-sliced: one search says which of them may match.

Peers whose sketches have one geometry share a slab of lanes; a slab widens from 8 to 64 lanes as
peers come, and past that another one starts. A sketch is put into its own lane bit by bit and a
delta touches only its pages, so nothing of the other peers is rebuilt.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.config import BANK_LANES, SEARCH_QUERIES_MAX
from dovetail.errors import SketchError
from dovetail.topics.columns import Column
from dovetail.topics.kernels import bank as kernels
from dovetail.topics.kernels.ledger import PAGE_WORDS
from dovetail.topics.kernels.lines import LINE_BITS
from dovetail.topics.sketches.base import Delta, Geometry, Sketch
from dovetail.topics.sketches.lines import LinesSketch

Peer = TypeVar("Peer", bound=Hashable)

_WIDTHS = (1, 2, 4, 8)


class SketchBank(Generic[Peer]):
    """What a broker asks before it forwards a publication."""

    def __init__(self, *, probes_max: int = SEARCH_QUERIES_MAX) -> None:
        self._probes_max = probes_max
        self._slabs: list[_Slab[Peer]] = []
        self._places: dict[Peer, _Slab[Peer]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, peer: object) -> bool:
        return peer in self._places

    @property
    def nbytes(self) -> int:
        return sum(slab.slices.nbytes for slab in self._slabs)

    def version_of(self, peer: Peer) -> int:
        return self.state_of(peer)[1]

    def state_of(self, peer: Peer) -> tuple[int, int]:
        """Lineage and version."""
        return self._place(peer).versions[peer]

    def put(self, peer: Peer, sketch: Sketch) -> None:
        """A peer's sketch, in place of the one it had, if any."""
        if not isinstance(sketch, LinesSketch):
            raise SketchError(f"a bank holds sketches in lines, and none of {sketch.geometry}")
        slab = self._places.get(peer)
        if slab is None or slab.geometry != sketch.geometry:
            # The new lane is filled before the old one goes: no search misses this peer.
            new = self._slab_for(sketch.geometry)
            new.put(peer, sketch)
            if slab is not None:
                self._leave(peer, slab)
            self._places[peer] = new
        else:
            slab.put(peer, sketch)

    def apply(self, peer: Peer, delta: Delta) -> None:
        """Bring a peer's lane to the delta's version, as `Sketch.apply` does."""
        self._place(peer).apply(peer, delta)

    def remove(self, peer: Peer) -> None:
        self._leave(peer, self._place(peer))
        del self._places[peer]

    def search(self, topic: str | bytes) -> list[Peer]:
        """The peers that may have a subscriber for this topic, in no particular order."""
        column = Column.of([topic])
        return [
            peer
            for slab in self._slabs
            for peer in slab.peers_in(int(slab.search(column, self._probes_max)[0]))
        ]

    def search_column(self, topics: Column) -> tuple[list[Peer], npt.NDArray[np.bool_]]:
        """All peers, and for each topic (row) and peer (column) whether it may match."""
        peers: list[Peer] = []
        answers: list[npt.NDArray[np.bool_]] = []
        for slab in self._slabs:
            lanes = slab.search(topics, self._probes_max)
            for peer, lane in slab.lanes.items():
                peers.append(peer)
                answers.append((lanes >> np.uint64(lane)) & np.uint64(1) != 0)
        return peers, np.array(answers, np.bool_).reshape(len(peers), len(topics)).T

    def _place(self, peer: Peer) -> "_Slab[Peer]":
        try:
            return self._places[peer]
        except KeyError:
            raise SketchError(f"no sketch of {peer} is known") from None

    def _slab_for(self, geometry: Geometry) -> "_Slab[Peer]":
        for slab in self._slabs:
            if slab.geometry == geometry and len(slab.lanes) < BANK_LANES:
                return slab
        slab = _Slab[Peer](geometry)
        self._slabs.append(slab)
        return slab

    def _leave(self, peer: Peer, slab: "_Slab[Peer]") -> None:
        slab.remove(peer)
        if not slab.lanes:
            self._slabs.remove(slab)


class _Slab(Generic[Peer]):
    """Up to 64 sketches of one geometry. Lane p of slices[b] is bit b of sketch p."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.width = _WIDTHS[0]
        self.slices = np.zeros(geometry.bits * self.width + kernels.PADDING, np.uint8)
        self.lanes: dict[Peer, int] = {}
        self.versions: dict[Peer, tuple[int, int]] = {}

    def put(self, peer: Peer, sketch: LinesSketch) -> None:
        lane = self.lanes.get(peer)
        if lane is None:
            lane = min(set(range(BANK_LANES)) - set(self.lanes.values()))
            self._widen_for(lane)
        kernels.put_words(self.slices, self.width, lane, 0, sketch.words)
        self.lanes[peer] = lane
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
        delta.check()
        lane = self.lanes[peer]
        for page, words in zip(delta.pages, delta.words.reshape(-1, PAGE_WORDS), strict=True):
            kernels.put_words(self.slices, self.width, lane, int(page) * PAGE_WORDS, words)
        self.versions[peer] = (lineage, delta.version)

    def remove(self, peer: Peer) -> None:
        # The lane's bits stay until somebody else takes it; searches ask only lanes in use.
        del self.lanes[peer]
        del self.versions[peer]

    def search(self, topics: Column, probes_max: int) -> npt.NDArray[np.uint64]:
        found = np.zeros(len(topics), np.uint64)
        used = sum(1 << lane for lane in self.lanes.values())
        kernels.search_bank(
            self.slices,
            np.uint64(self.width),
            np.uint64(self.geometry.bits // LINE_BITS),
            np.uint64(used),
            topics.data,
            topics.offsets,
            np.uint64(self.geometry.seed),
            probes_max,
            found,
        )
        return found

    def peers_in(self, lanes: int) -> list[Peer]:
        return [peer for peer, lane in self.lanes.items() if lanes >> lane & 1]

    def _widen_for(self, lane: int) -> None:
        width = min(width for width in _WIDTHS if lane < 8 * width)
        if width <= self.width:
            return
        wider = np.zeros(self.geometry.bits * width + kernels.PADDING, np.uint8)
        old = self.slices[: -kernels.PADDING].reshape(-1, self.width)
        wider[: -kernels.PADDING].reshape(-1, width)[:, : self.width] = old
        self.slices, self.width = wider, width
