"""What all sketches are: bits that stand for a set of filters, and a search never falsely no.

An owner's sketch counts: filters come and go (`add`, `discard`), and the bits follow. What peers
hold is the bits alone, made by `from_bytes`, `merge` or `copy`; it searches, and takes deltas from
the owner. The version rises whenever a bit changes; `lineage` names the sketch whose versions they
are, so that a delta can not be applied to the bits of another.

Pure: no clock, no sockets, no randomness. The seed of the hashes is an argument, the same for all
sketches of a cluster.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dovetail.config import (
    SEARCH_QUERIES_MAX,
    SKETCH_BITS_MAX,
    SKETCH_HASHES_MAX,
)
from dovetail.errors import SketchError
from dovetail.topics.columns import Column
from dovetail.topics.kernels import elements as element_kernels
from dovetail.topics.kernels import ledger as ledger_kernels
from dovetail.topics.kernels.ledger import BitCounts, Counts

Words = npt.NDArray[np.uint64]

_CACHE_LINE_BYTES = 64
_TABLE_SLOTS_MIN = 64
_TABLE_LOAD_MAX = 0.7


class Geometry(NamedTuple):
    """How the bits are laid out. Only sketches of one geometry can be merged or compared."""

    method: str
    bits: int
    hashes: int
    seed: int

    def __str__(self) -> str:
        layout = f"{self.hashes} hashes" if self.hashes else "in lines"
        return f"{self.method}, {self.bits:,} bits {layout}, seed {self.seed}"


class Search(NamedTuple):
    """Whether a filter may match, and what it cost: queries, or lines probed."""

    found: bool
    queries: int


class Delta(NamedTuple):
    """The pages that changed between two versions of one sketch.

    Pages are overwritten, not toggled, so a delta that comes twice does no harm.
    """

    geometry: Geometry
    lineage: int
    since: int
    version: int
    elements: int
    pages: Words
    words: Words  # PAGE_WORDS for each page; the last page may be short
    extra: bytes


class Sketch(ABC):
    """Bits, and maybe the counts behind them."""

    method: ClassVar[str]
    element_method: ClassVar[int]

    def __init__(
        self,
        bits: int,
        hashes: int,
        *,
        seed: int = 0,
        lineage: int = 0,
        queries_max: int = SEARCH_QUERIES_MAX,
        counting: bool = True,
    ) -> None:
        if not 1 <= bits <= SKETCH_BITS_MAX:
            raise SketchError(f"a sketch has 1 to {SKETCH_BITS_MAX:,} bits, not {bits:,}")
        if not 0 <= hashes <= SKETCH_HASHES_MAX:
            raise SketchError(f"a sketch has at most {SKETCH_HASHES_MAX} hashes, not {hashes}")
        self.geometry = Geometry(self.method, bits, hashes, seed)
        self.lineage = lineage
        self.version = 0
        self.elements = 0
        self.queries_max = queries_max
        self.words = aligned_words((bits + 63) // 64)
        self._ledger = _Ledger(self.geometry, len(self.words)) if counting else None

    @classmethod
    @abstractmethod
    def sized_for(
        cls,
        elements: int,
        false_positive_rate: float,
        *,
        seed: int = 0,
        lineage: int = 0,
        queries_max: int = SEARCH_QUERIES_MAX,
    ) -> Self:
        """An empty sketch that has this rate, per query, once it holds so many elements."""

    @property
    def bits(self) -> int:
        return self.geometry.bits

    @property
    def counting(self) -> bool:
        """Can filters be added and discarded, or is this a peer's copy?"""
        return self._ledger is not None

    # Filters come and go ------------------------------------------------------------

    def add(self, topic_filter: str | bytes) -> None:
        """Put a valid filter in. The same filter twice has to be discarded twice."""
        self.add_column(Column.of([topic_filter]))

    def add_column(self, filters: Column) -> None:
        ledger = self._owned("added to")
        keys = self.elements_of(filters, self.geometry.seed)
        fresh, changed = ledger.add(keys, self.words, self.version + 1)
        self.elements += fresh
        self.version += self._count_extra(filters, 1) or changed > 0

    def discard(self, topic_filter: str | bytes) -> None:
        """Take a filter out that was put in; one that was not is refused, and nothing changes."""
        ledger = self._owned("discarded from")
        filters = Column.of([topic_filter])
        keys = self.elements_of(filters, self.geometry.seed)
        if not ledger.holds(keys):
            raise SketchError(f"the filter {filters[0].decode()!r} is not in this sketch")
        gone, changed = ledger.discard(keys, self.words, self.version + 1)
        self.elements -= gone
        self.version += self._count_extra(filters, -1) or changed > 0

    @classmethod
    def elements_of(cls, filters: Column, seed: int) -> Words:
        """The keys that filters put into a sketch, repeated as often as they occur."""
        keys: Words = element_kernels.column_elements(
            cls.element_method, filters.data, filters.offsets, np.uint64(seed)
        )
        return keys

    def resized(self, bits: int, hashes: int) -> Self:
        """The same elements in another number of bits, for an owner that outgrew its plan."""
        ledger = self._owned("resized from")
        grown = type(self)(
            bits,
            hashes,
            seed=self.geometry.seed,
            lineage=self.lineage,
            queries_max=self.queries_max,
        )
        grown.version = self.version + 1
        grown.elements = self.elements
        grown._ledger = ledger.rebuilt(grown.geometry, grown.words, grown.version)  # noqa: SLF001
        grown.set_extra(self.extra())
        return grown

    # Search -------------------------------------------------------------------------

    def search(self, topic: str | bytes) -> Search:
        """May a filter in here match this (valid) topic name?"""
        found, queries = self.search_column(Column.of([topic]))
        return Search(bool(found[0]), int(queries[0]))

    def search_column(self, topics: Column) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """The same for each topic of a column."""
        found = np.zeros(len(topics), np.bool_)
        queries = np.zeros(len(topics), np.int64)
        self._search(topics, found, queries)
        return found, queries

    @abstractmethod
    def _search(
        self, topics: Column, found: npt.NDArray[np.bool_], queries: npt.NDArray[np.int64]
    ) -> None: ...

    # Measure ------------------------------------------------------------------------

    @property
    def fill(self) -> float:
        """The share of bits that are set."""
        return int(np.bitwise_count(self.words).sum()) / self.bits

    @property
    @abstractmethod
    def false_positive_rate(self) -> float:
        """The chance that a query for what is not there is answered yes, as the bits are now."""

    # Exchange -----------------------------------------------------------------------

    def copy(self) -> Self:
        """What a peer holds: these bits, without the counts."""
        return self._peer_copy(self.words)

    def merge(self, other: Self) -> Self:
        """The bits of both: finds what either finds. A union has no counts, and no lineage."""
        self._check_geometry(other.geometry)
        union = self._peer_copy(self.words | other.words)
        union.lineage = 0
        union.version = 0
        union.elements = self.elements + other.elements
        union.merge_extra(other)
        return union

    def delta(self, since: int) -> Delta:
        """What changed after version `since` (0: everything that was ever set)."""
        ledger = self._owned("asked for a delta of")
        if not 0 <= since <= self.version:
            raise SketchError(
                f"no delta from version {since:,}: this sketch is at {self.version:,}"
            )
        pages = np.flatnonzero(ledger.changed_at > since).astype(np.uint64)
        words = _page_words(self.words, pages)
        return Delta(
            self.geometry,
            self.lineage,
            since,
            self.version,
            self.elements,
            pages,
            words,
            self.extra(),
        )

    def apply(self, delta: Delta) -> None:
        """Bring a peer's copy from `delta.since`, or anything later, to `delta.version`."""
        if self._ledger is not None:
            raise SketchError("a delta is for a peer's copy; this sketch counts its own filters")
        self._check_geometry(delta.geometry)
        if delta.lineage != self.lineage:
            raise SketchError(
                f"the delta is of sketch {delta.lineage}, and these bits are of {self.lineage}"
            )
        if not delta.since <= self.version:
            raise SketchError(
                f"the delta begins at version {delta.since:,}; these bits are at {self.version:,}"
            )
        if delta.version <= self.version:
            return  # older than what is here, or the same again
        _put_page_words(self.words, delta.pages, delta.words)
        self.version = delta.version
        self.elements = delta.elements
        self.set_extra(delta.extra)

    # For BFP, which keeps patterns beside its bits ----------------------------------

    def _count_extra(self, filters: Column, step: int) -> bool:  # noqa: ARG002
        """Filters came (step 1) or went (-1): did that change what lies beside the bits?"""
        return False

    def merge_extra(self, other: Self) -> None:  # noqa: B027
        """Take in what lies beside another sketch's bits."""

    def extra(self) -> bytes:
        """What lies beside the bits, as it travels."""
        return b""

    def set_extra(self, extra: bytes) -> None:
        if extra:
            raise SketchError(f"a sketch of the {self.method} method holds nothing beside its bits")

    # ----------------------------------------------------------------------------------

    def _owned(self, doing: str) -> "_Ledger":
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
        peer.words[:] = words
        peer.version = self.version
        peer.elements = self.elements
        peer.set_extra(self.extra())
        return peer


class _Ledger:
    """The owner's counts, around the kernels in `kernels.ledger`."""

    def __init__(self, geometry: Geometry, words: int) -> None:
        self._geometry = (np.uint64(geometry.bits), geometry.hashes)
        self._keys = np.zeros(_TABLE_SLOTS_MIN, np.uint64)
        self._counts = np.zeros(_TABLE_SLOTS_MIN, np.uint32)
        self._used = 0
        self._bit_counts = np.zeros(geometry.bits, np.uint8)
        self.changed_at = np.zeros(-(-words // ledger_kernels.PAGE_WORDS), np.uint64)

    def add(self, elements: Words, words: Words, version: int) -> tuple[int, int]:
        self._make_room(len(elements))
        fresh, changed = ledger_kernels.add_elements(
            elements, *self._arrays(words, version), *self._geometry
        )
        self._used += fresh
        return fresh, changed

    def holds(self, elements: Words) -> bool:
        return bool(ledger_kernels.holds_all(elements, self._keys, self._counts))

    def discard(self, elements: Words, words: Words, version: int) -> tuple[int, int]:
        gone, changed = ledger_kernels.discard_elements(
            elements, *self._arrays(words, version), *self._geometry
        )
        self._used -= gone
        return gone, changed

    def rebuilt(self, geometry: Geometry, words: Words, version: int) -> "_Ledger":
        grown = _Ledger(geometry, len(words))
        grown._keys = self._keys.copy()
        grown._counts = self._counts.copy()
        grown._used = self._used
        ledger_kernels.rebuild_bits(*grown._arrays(words, version), *grown._geometry)
        return grown

    def _arrays(
        self, words: Words, version: int
    ) -> tuple[Words, Counts, Words, BitCounts, Words, np.uint64]:
        return (
            self._keys,
            self._counts,
            words,
            self._bit_counts,
            self.changed_at,
            np.uint64(version),
        )

    def _make_room(self, elements: int) -> None:
        wanted = self._used + elements
        if wanted <= _TABLE_LOAD_MAX * len(self._keys):
            return
        slots = max(int(wanted / _TABLE_LOAD_MAX) + 1, len(self._keys) * 3 // 2)
        keys = np.zeros(slots, np.uint64)
        counts = np.zeros(slots, np.uint32)
        ledger_kernels.move_table(self._keys, self._counts, keys, counts)
        self._keys, self._counts = keys, counts


def aligned_words(count: int) -> Words:
    """Zeros that begin at a cache line, in whole lines, so that no line is split in two."""
    per_line = _CACHE_LINE_BYTES // 8
    padded = -(-count // per_line) * per_line
    words = np.zeros(padded + per_line, np.uint64)
    start = -(words.ctypes.data // 8) % per_line
    return words[start : start + count]


def _page_words(words: Words, pages: Words) -> Words:
    return words[_word_numbers(len(words), pages)]


def _put_page_words(words: Words, pages: Words, values: Words) -> None:
    if len(pages) and int(pages.max()) * ledger_kernels.PAGE_WORDS >= len(words):
        raise SketchError("the delta has pages beyond the sketch's end")
    numbers = _word_numbers(len(words), pages)
    if len(numbers) != len(values):
        raise SketchError(f"the delta has {len(values)} words for {len(numbers)} places")
    words[numbers] = values


def _word_numbers(words: int, pages: Words) -> npt.NDArray[np.int64]:
    per_page = ledger_kernels.PAGE_WORDS
    numbers = pages.astype(np.int64)[:, None] * per_page + np.arange(per_page)
    return numbers.ravel()[numbers.ravel() < words]
