"""Our sketch: a node of the prefix tree is one cache line (kernels/lines.py explains it)."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dovetail.errors import SketchError
from dovetail.topics.kernels import elements as element_kernels
from dovetail.topics.kernels import lines as kernels
from dovetail.topics.kernels.ledger import IN_LINES
from dovetail.topics.kernels.lines import LINE_BITS, LINE_WORDS
from dovetail.topics.limits import SKETCH_BITS_MAX, SKETCH_BITS_MIN
from dovetail.topics.sketches.base import Sketch
from dovetail.topics.sketches.bloom import check_plan
from dovetail.topics.topic_column import TopicColumn


class LinesSketch(Sketch):
    """The lines method. A query is one line probed: one cache line."""

    method = "lines"
    element_method = element_kernels.LINES

    @classmethod
    def plan(cls, elements: int, false_positive_rate: float) -> tuple[int, int]:
        return lines_size(elements, false_positive_rate), IN_LINES

    @classmethod
    def check_layout(cls, bits: int, hashes: int) -> None:
        if hashes != IN_LINES or bits % LINE_BITS:
            raise SketchError(f"a lines sketch has lines of {LINE_BITS} bits; {bits:,} is not that")

    @property
    def lines(self) -> int:
        return self.bits // LINE_BITS

    @property
    def false_positive_rate(self) -> float:
        ones = np.bitwise_count(self.words).reshape(-1, LINE_WORDS)
        return float(np.prod(ones / 64, axis=1).mean())

    def _search(
        self, topics: TopicColumn, found: npt.NDArray[np.bool_], queries: npt.NDArray[np.int64]
    ) -> None:
        kernels.search_lines(
            self.words,
            np.uint64(self.lines),
            topics.data,
            topics.offsets,
            np.uint64(self.geometry.seed),
            self.queries_max,
            found,
            queries,
        )


def lines_size(elements: int, false_positive_rate: float) -> int:
    """Return the bits for this rate with so many elements, in whole lines."""
    check_plan(elements, false_positive_rate)
    lines = math.ceil(elements / _line_load(false_positive_rate))
    lines = max(lines, SKETCH_BITS_MIN // LINE_BITS)
    if lines * LINE_BITS > SKETCH_BITS_MAX:
        raise SketchError(
            f"{elements:,} elements need {lines * LINE_BITS:,} bits of at most {SKETCH_BITS_MAX:,}"
        )
    return lines * LINE_BITS


@lru_cache(maxsize=64)
def _line_load(false_positive_rate: float) -> float:
    """Return the elements a line, on average, at which eight bits are all set with this chance."""
    low, high = 1e-6, 1e4
    for _ in range(100):
        middle = math.sqrt(low * high)
        if _rate_at(middle) > false_positive_rate:
            high = middle
        else:
            low = middle
    return low


def _rate_at(load: float) -> float:
    """Return the rate for a Poisson number of elements a line, each one bit of 64 in each word."""
    rate = 0.0
    top = int(load + 12 * math.sqrt(load) + 40)
    for count in range(top + 1):
        chance = math.exp(count * math.log(load) - load - math.lgamma(count + 1))
        rate += chance * (1 - (63 / 64) ** count) ** LINE_WORDS
    return rate
