"""The interface of all sketches: bits for a set of filters, and a search without false negatives.

An owner's sketch counts its filters (`add`, `discard`) and keeps the bits up to date. A peer's copy
has the bits alone, from `sketch_from_bytes`, `merge` or `copy`. It can be searched, and takes
deltas from the owner. The version rises whenever elements come or go. `lineage` names the sketch
that counts these versions, so that a delta cannot be applied to the bits of another. A sketch
without a lineage (0) has no deltas. An owner that restarts takes a new lineage.

A call is whole before another thread's begins (kernels keep the interpreter's lock). Nothing more
is promised: a copy made while another thread adds may lie between two versions.

Pure: no clock, no sockets, no randomness. The seed of the hashes is an argument, the same for all
sketches of a cluster.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dovetail.errors import SketchError
from dovetail.topics.kernels import elements as element_kernels
from dovetail.topics.kernels import ledger as ledger_kernels
from dovetail.topics.limits import SEARCH_QUERIES_MAX, SKETCH_BITS_MAX, SKETCH_HASHES_MAX
from dovetail.topics.sketches.ledger import Ledger
from dovetail.topics.topic_column import TopicColumn

Words = npt.NDArray[np.uint64]

_CACHE_LINE_BYTES = 64
_NUMBER_MAX = 2**64 - 1


class Geometry(NamedTuple):
    """The layout of the bits. Only sketches of one geometry can be merged or compared."""

    method: str
    bits: int
    hashes: int
    seed: int

    def __str__(self) -> str:
        layout = f"{self.hashes} hashes" if self.hashes else "in lines"
        return f"{self.method}, {self.bits:,} bits {layout}, seed {self.seed}"


class SearchResult(NamedTuple):
    """Whether a filter may match, and the cost of the search: queries, or lines probed."""

    found: bool
    queries: int


class SketchDelta(NamedTuple):
    """The elements that came or went between two versions of one sketch.

    All bits of `present` are set. Bits of `gone` that no other element needs are cleared: bit i of
    `cleared` is for an element's bit number i (kernels/ledger.py). A delta that comes twice, or
    begins before the receiver's version, does no harm.
    """

    geometry: Geometry
    lineage: int
    since: int
    version: int
    elements: int
    present: Words
    gone: Words
    cleared: Words
    extra: bytes


class Sketch(ABC):
    """Bits, and for the owner the counts behind them."""

    method: ClassVar[str]
    element_method: ClassVar[int]
    marks_parents: ClassVar[bool] = True
    """Does `p/#` mark `p` as an end, too (kernels/elements.py)?"""

    def __init__(
        self,
        bits: int,
        hashes: int = ledger_kernels.IN_LINES,
        *,
        seed: int = 0,
        lineage: int = 0,
        queries_max: int = SEARCH_QUERIES_MAX,
        counting: bool = True,
    ) -> None:
        self.check_layout(bits, hashes)
        if not 1 <= bits <= SKETCH_BITS_MAX:
            raise SketchError(f"a sketch has 1 to {SKETCH_BITS_MAX:,} bits, not {bits:,}")
        if not 0 <= hashes <= SKETCH_HASHES_MAX:
            raise SketchError(f"a sketch has at most {SKETCH_HASHES_MAX} hashes, not {hashes}")
        if queries_max < 1:
            raise SketchError(f"a search may ask at least 1 query, not {queries_max:,}")
        if not (0 <= seed <= _NUMBER_MAX and 0 <= lineage <= _NUMBER_MAX):
            raise SketchError("a seed and a lineage are from 0 to 2^64 - 1")
        self.geometry = Geometry(self.method, bits, hashes, seed)
        self.lineage = lineage
        self.version = 0
        self.queries_max = queries_max
        self.words = aligned_words((bits + 63) // 64)
        self._elements = 0
        self._ledger = Ledger(bits, hashes) if counting else None
        self.set_extra(b"")

    @classmethod
    @abstractmethod
    def plan(cls, elements: int, false_positive_rate: float) -> tuple[int, int]:
        """Return bits and hashes for this rate per query with so many elements."""

    @classmethod
    @abstractmethod
    def check_layout(cls, bits: int, hashes: int) -> None:
        """Raise a SketchError if this method cannot have these bits and hashes."""

    @classmethod
    def sized_for(
        cls,
        elements: int,
        false_positive_rate: float,
        *,
        seed: int = 0,
        lineage: int = 0,
        queries_max: int = SEARCH_QUERIES_MAX,
    ) -> Self:
        """Return an empty sketch with room for so many elements at this rate."""
        bits, hashes = cls.plan(elements, false_positive_rate)
        return cls(bits, hashes, seed=seed, lineage=lineage, queries_max=queries_max)

    @property
    def bits(self) -> int:
        return self.geometry.bits

    @property
    def elements(self) -> int:
        """Return the number of distinct elements; for a union, an upper bound."""
        return self._elements if self._ledger is None else self._ledger.elements

    @property
    def counting_bytes(self) -> int:
        """Return the bytes of an owner's counts."""
        return 0 if self._ledger is None else self._ledger.nbytes

    @property
    def counting(self) -> bool:
        """Can filters be added and discarded, or is this a peer's copy?"""
        return self._ledger is not None

    # Filters come and go ------------------------------------------------------------

    def add(self, topic_filter: str | bytes) -> None:
        """Add a valid filter. A filter that is added twice must be discarded twice."""
        self.add_column(TopicColumn.of([topic_filter]))

    def add_column(self, filters: TopicColumn) -> None:
        ledger = self._owned("added to")
        beside = self._count_extra(filters, 1)
        keys = self.elements_of(filters, self.geometry.seed)
        self.version += ledger.add(keys, self.words, self.version + 1) or beside

    def discard(self, topic_filter: str | bytes) -> None:
        """Remove a filter. A SketchError if it is not in; then nothing changes."""
        ledger = self._owned("discarded from")
        filters = TopicColumn.of([topic_filter])
        keys = self.elements_of(filters, self.geometry.seed)
        if not self._holds(ledger, filters[0], keys):
            raise SketchError(f"the filter {filters[0].decode()!r} is not in this sketch")
        beside = self._count_extra(filters, -1)
        self.version += ledger.discard(keys, self.words, self.version + 1) or beside

    def _holds(self, ledger: Ledger, topic_filter: bytes, keys: Words) -> bool:
        count = ledger.count(keys[-1])
        if count in {0, ledger_kernels.COUNT_TOP} or not self.marks_parents:
            return count > 0
        if topic_filter.endswith(b"#"):
            return True
        # The counted ends of p, minus those that p/# added.
        below = TopicColumn.of([topic_filter + b"/#"])
        return count > ledger.count(self.elements_of(below, self.geometry.seed)[-1])

    @classmethod
    def elements_of(cls, filters: TopicColumn, seed: int) -> Words:
        """Return the keys that filters add to a sketch, repeated as often as they occur."""
        keys: Words = element_kernels.column_elements(
            cls.element_method, filters.data, filters.offsets, np.uint64(seed)
        )
        return keys

    def resized(self, bits: int, hashes: int) -> Self:
        """Return the same elements in another number of bits, for an owner that needs more."""
        ledger = self._owned("resized from")
        grown = type(self)(
            bits,
            hashes,
            seed=self.geometry.seed,
            lineage=self.lineage,
            queries_max=self.queries_max,
        )
        grown.version = self.version + 1
        grown._ledger = ledger.rebuilt(bits, hashes, grown.words, grown.version)  # noqa: SLF001
        grown._inherit_extra(self)  # noqa: SLF001
        return grown

    # Search -------------------------------------------------------------------------

    def search(self, topic: str | bytes) -> SearchResult:
        """May a filter in here match this (valid) topic name?"""
        found, queries = self.search_column(TopicColumn.of([topic]))
        return SearchResult(bool(found[0]), int(queries[0]))

    def search_column(
        self, topics: TopicColumn
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return for each topic of a column whether a filter may match, and the queries."""
        found = np.zeros(len(topics), np.bool_)
        queries = np.zeros(len(topics), np.int64)
        self._search(topics, found, queries)
        return found, queries

    @abstractmethod
    def _search(
        self, topics: TopicColumn, found: npt.NDArray[np.bool_], queries: npt.NDArray[np.int64]
    ) -> None: ...

    # Measure ------------------------------------------------------------------------

    @property
    def fill(self) -> float:
        """Return the share of bits that are set."""
        return int(np.bitwise_count(self.words).sum()) / self.bits

    @property
    @abstractmethod
    def false_positive_rate(self) -> float:
        """Return the chance that a query for a missing element answers yes, as the bits are now."""

    # Exchange -----------------------------------------------------------------------

    def copy(self) -> Self:
        """Return a peer's copy: these bits without the counts."""
        return self._peer_copy(self.words)

    def merge(self, other: Self) -> Self:
        """Return the union, which finds what either finds. It has no counts and no lineage."""
        self._check_geometry(other.geometry)
        union = self._peer_copy(self.words | other.words)
        union.lineage = 0
        union.version = 0
        union._elements = self.elements + other.elements  # noqa: SLF001
        union._merge_extra(other)  # noqa: SLF001
        return union

    def delta(self, since: int) -> SketchDelta:
        """Return the changes after version `since`. A SketchError if they are forgotten."""
        ledger = self._owned("asked for a delta")
        if not self.lineage:
            raise SketchError("a sketch without a lineage has no deltas")
        if not 0 <= since <= self.version:
            raise SketchError(
                f"no delta from version {since:,}: this sketch is at {self.version:,}"
            )
        changes = ledger.changes(self.words, since)
        if changes is None:
            raise SketchError(
                f"the changes since version {since:,} are no longer known",
                hint="Send the whole sketch.",
            )
        return SketchDelta(
            self.geometry,
            self.lineage,
            since,
            self.version,
            self.elements,
            *changes,
            self.extra(),
        )

    def apply(self, delta: SketchDelta) -> None:
        """Bring a peer's copy from `delta.since`, or a later version, to `delta.version`."""
        if self._ledger is not None:
            raise SketchError("a delta is for a peer's copy; this sketch counts its own filters")
        self._check_geometry(delta.geometry)
        if not self.lineage or delta.lineage != self.lineage:
            raise SketchError(
                f"the delta is of sketch {delta.lineage}, and these bits are of {self.lineage}"
            )
        if not delta.since <= self.version:
            raise SketchError(
                f"the delta begins at version {delta.since:,}; these bits are at {self.version:,}"
            )
        if delta.version <= self.version:
            return  # old, or a repetition
        self.set_extra(delta.extra)
        ledger_kernels.apply_delta(
            self.words,
            np.uint64(self.geometry.bits),
            self.geometry.hashes,
            delta.present,
            delta.gone,
            delta.cleared,
        )
        self.version = delta.version
        self._elements = delta.elements

    def restore(self, words: Words, version: int, elements: int, extra: bytes) -> None:
        """Fill a peer's copy with a sketch that arrived."""
        self.set_extra(extra)
        self.words[:] = words
        self.version = version
        self._elements = elements

    # Data of a method beside its bits: BFP has patterns, the others nothing -----------

    def extra(self) -> bytes:
        """Return the extra data as bytes."""
        return b""

    def set_extra(self, extra: bytes) -> None:
        """Replace the extra data. A SketchError if it is invalid; then nothing changes."""
        if extra:
            raise SketchError(f"a sketch of the {self.method} method holds nothing beside its bits")

    def _count_extra(self, filters: TopicColumn, step: int) -> bool:  # noqa: ARG002
        """Count filters in (step 1) or out (-1). Return whether the extra data may have changed."""
        return False

    def _inherit_extra(self, other: Self) -> None:  # noqa: B027
        """Copy an owner's extra data, with its counts."""

    def _merge_extra(self, other: Self) -> None:  # noqa: B027
        """Add the extra data of another sketch."""

    # ----------------------------------------------------------------------------------

    def _owned(self, doing: str) -> Ledger:
        if self._ledger is None:
            raise SketchError(f"a peer's copy of a sketch has no counts and cannot be {doing}")
        return self._ledger

    def _check_geometry(self, geometry: Geometry) -> None:
        if geometry != self.geometry:
            raise SketchError(f"sketches differ: {self.geometry} here, {geometry} there")

    def _peer_copy(self, words: Words) -> Self:
        peer = type(self)(
            self.geometry.bits,
            self.geometry.hashes,
            seed=self.geometry.seed,
            lineage=self.lineage,
            queries_max=self.queries_max,
            counting=False,
        )
        peer.restore(words, self.version, self.elements, self.extra())
        return peer


def aligned_words(count: int) -> Words:
    """Return zeros that begin at a cache line, so that no line of a sketch is split in two."""
    per_line = _CACHE_LINE_BYTES // 8
    padded = -(-count // per_line) * per_line
    words = np.zeros(padded + per_line, np.uint64)
    start = -(words.ctypes.data // 8) % per_line
    return words[start : start + count]
