"""The three sketches of the wildcard paper, on one plain Bloom filter.

`BfSketch` asks for every pattern that a topic could match, `BfpSketch` for those that occur, and
`PrefixSketch` walks the tree of prefixes. The first two are for comparison only. BFP is under a
patent (US 9,886,513) and must never serve live traffic.
"""

import math
import struct
from collections import Counter
from typing import Self

import numpy as np
import numpy.typing as npt

from dovetail.errors import SketchError, SketchFormatError
from dovetail.topics.kernels import bloom as kernels
from dovetail.topics.kernels import elements as element_kernels
from dovetail.topics.limits import SKETCH_BITS_MAX, SKETCH_BITS_MIN, SKETCH_PATTERNS_MAX
from dovetail.topics.sketches.base import Sketch
from dovetail.topics.topic_column import TopicColumn

Arrays = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]
Pattern = tuple[tuple[int, ...], int]
"""Levels where '+' stands, ascending, and the level where '#' stands (-1: nowhere)."""

_NO_WILDCARDS: Pattern = ((), -1)


def bloom_size(elements: int, false_positive_rate: float) -> tuple[int, int]:
    """Return bits and hashes for this rate with so many elements (wildcard paper II-B)."""
    check_plan(elements, false_positive_rate)
    bits = math.ceil(-math.log(false_positive_rate) / math.log(2) ** 2 * elements)
    bits = max(bits, SKETCH_BITS_MIN)
    if bits > SKETCH_BITS_MAX:
        raise SketchError(
            f"{elements:,} elements need {bits:,} bits of at most {SKETCH_BITS_MAX:,}"
        )
    return bits, max(1, round(-math.log2(false_positive_rate)))


def check_plan(elements: int, false_positive_rate: float) -> None:
    if elements < 1:
        raise SketchError(f"a sketch is planned for at least 1 element, not {elements:,}")
    if not 1e-12 <= false_positive_rate < 1:
        raise SketchError(
            f"a false-positive rate is from 1e-12 to below 1, not {false_positive_rate}"
        )


class _BloomSketch(Sketch):
    @classmethod
    def plan(cls, elements: int, false_positive_rate: float) -> tuple[int, int]:
        return bloom_size(elements, false_positive_rate)

    @classmethod
    def check_layout(cls, bits: int, hashes: int) -> None:  # noqa: ARG003
        if hashes < 1:
            raise SketchError(f"a Bloom filter has at least 1 hash, not {hashes}")

    @property
    def false_positive_rate(self) -> float:
        return float(self.fill**self.geometry.hashes)

    @property
    def _filter(self) -> tuple[npt.NDArray[np.uint64], np.uint64, int]:
        return self.words, np.uint64(self.geometry.bits), self.geometry.hashes


class BfSketch(_BloomSketch):
    """BF in the paper: stores whole filters, asks for all 2^(levels + 1) - 1 patterns."""

    method = "bf"
    element_method = element_kernels.BF

    def _search(
        self, topics: TopicColumn, found: npt.NDArray[np.bool_], queries: npt.NDArray[np.int64]
    ) -> None:
        kernels.search_bf(
            *self._filter,
            topics.data,
            topics.offsets,
            np.uint64(self.geometry.seed),
            self.queries_max,
            found,
            queries,
        )


class PrefixSketch(_BloomSketch):
    """The paper's own method: stores all prefixes, and searches them like a tree."""

    method = "prefix"
    element_method = element_kernels.PREFIX

    def _search(
        self, topics: TopicColumn, found: npt.NDArray[np.bool_], queries: npt.NDArray[np.int64]
    ) -> None:
        kernels.search_prefix(
            *self._filter,
            topics.data,
            topics.offsets,
            np.uint64(self.geometry.seed),
            self.queries_max,
            found,
            queries,
        )


class BfpSketch(_BloomSketch):
    """BFP in the paper: stores whole filters, and beside them the patterns that occur."""

    method = "bfp"
    element_method = element_kernels.BFP
    marks_parents = False

    _patterns: Counter[Pattern]
    _arrays: Arrays | None

    @property
    def patterns(self) -> frozenset[Pattern]:
        return frozenset(self._patterns)

    def _search(
        self, topics: TopicColumn, found: npt.NDArray[np.bool_], queries: npt.NDArray[np.int64]
    ) -> None:
        if self._arrays is None:
            self._arrays = _pattern_arrays(self.patterns)
        kernels.search_bfp(
            *self._filter,
            *self._arrays,
            topics.data,
            topics.offsets,
            np.uint64(self.geometry.seed),
            self.queries_max,
            found,
            queries,
        )

    def extra(self) -> bytes:
        parts = [struct.pack("<I", len(self._patterns))]
        for plus, ends in sorted(self._patterns):
            parts.append(struct.pack(f"<iI{len(plus)}I", ends, len(plus), *plus))
        return b"".join(parts)

    def set_extra(self, extra: bytes) -> None:
        self._patterns = Counter(_unpack_patterns(extra))
        self._arrays = None

    def _count_extra(self, filters: TopicColumn, step: int) -> bool:
        wildcards = False
        for topic_filter in filters:
            pattern = _pattern_of(topic_filter)
            if pattern == _NO_WILDCARDS:
                continue
            if pattern not in self._patterns and len(self._patterns) >= SKETCH_PATTERNS_MAX:
                raise SketchError(f"a sketch holds at most {SKETCH_PATTERNS_MAX:,} patterns")
            wildcards = True
            self._patterns[pattern] += step
            if not self._patterns[pattern]:
                del self._patterns[pattern]
        self._arrays = None
        return wildcards

    def _inherit_extra(self, other: Self) -> None:
        self._patterns = Counter(other._patterns)
        self._arrays = None

    def _merge_extra(self, other: Self) -> None:
        self._patterns |= Counter(other.patterns)
        self._arrays = None


def _pattern_of(topic_filter: bytes) -> Pattern:
    levels = topic_filter.split(b"/")
    ends = len(levels) - 1 if levels[-1] == b"#" else -1
    return tuple(i for i, level in enumerate(levels) if level == b"+"), ends


def _pattern_arrays(patterns: frozenset[Pattern]) -> Arrays:
    """Return patterns for the kernel, those that match most topics first: '#' early, many '+'."""

    def generality(pattern: Pattern) -> tuple[bool, int, int, tuple[int, ...]]:
        plus, ends = pattern
        return ends < 0, ends, -len(plus), plus

    ordered = sorted(patterns, key=generality)
    starts = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum([len(plus) for plus, _ in ordered], out=starts[1:])
    levels = np.array([level for plus, _ in ordered for level in plus], np.int64)
    return starts, levels, np.array([ends for _, ends in ordered], np.int64)


def _unpack_patterns(extra: bytes) -> list[Pattern]:
    if not extra:
        return []
    try:
        (count,) = struct.unpack_from("<I", extra)
        if count > SKETCH_PATTERNS_MAX:
            raise SketchFormatError(f"{count:,} patterns, of at most {SKETCH_PATTERNS_MAX:,}")
        patterns: list[Pattern] = []
        at = 4
        for _ in range(count):
            ends, plus_count = struct.unpack_from("<iI", extra, at)
            if plus_count > len(extra):
                raise SketchFormatError("a pattern longer than the patterns' bytes")
            plus = struct.unpack_from(f"<{plus_count}I", extra, at + 8)
            patterns.append((plus, ends))
            at += 8 + 4 * plus_count
    except struct.error:
        raise SketchFormatError("the patterns are cut short") from None
    if at != len(extra):
        raise SketchFormatError(f"{len(extra) - at} bytes behind the patterns")
    return patterns
