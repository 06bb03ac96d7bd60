"""Points that a broker asks about together, and the answers so far. Pure.

A point is done when each of its questions was answered or given up. Its verdict names the brokers
that get the publication: those with matching boxes, by all answers together, and those that no
matcher answered for. Where boxes are listed, the verdict has their numbers, too.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.matcher.announcement import AnnouncedBoxes
from dovetail.matcher.candidate_choice import Rows
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Floats
from dovetail.matcher.matcher_messages import BrokerVersion, MatcherAnswer, numbers_of

Tag = TypeVar("Tag")
"""What the caller calls a publication."""


class BoxNumbers(NamedTuple):
    """Numbers of a broker's boxes, in one life of the broker."""

    life: int
    boxes: npt.NDArray[np.uint32]


class Verdict(NamedTuple, Generic[Tag]):
    """Which brokers get a publication."""

    tag: Tag
    receivers: frozenset[str]
    """All brokers that get it. No other broker has a box for it."""
    unsure: tuple[str, ...]
    """Those that get it because no matcher answered for them."""
    boxes: Mapping[str, BoxNumbers]
    """The matching boxes of the other receivers, where boxes are listed."""


_NOTHING, _MATCHED, _UNSURE = range(3)
_NOT_LISTED: Mapping[str, BoxNumbers] = {}


class QuestionBatch(Generic[Tag]):
    """Points of one space for which the same brokers may have boxes."""

    def __init__(
        self,
        space: str,
        points: Floats,
        tags: Sequence[Tag],
        unsure: tuple[str, ...],
        asked: Mapping[str, AnnouncedBoxes],
        deadline: float,
        *,
        is_listing: bool = False,
    ) -> None:
        self.space = space
        self.points = points
        self.tags = tags
        self.unsure = unsure
        self.asked = asked
        self.names = tuple(asked)
        self.versions = [BrokerVersion(name, one.life, one.version) for name, one in asked.items()]
        self.kinds = frozenset(kind for one in asked.values() for kind in one.kinds)
        self.deadline = deadline
        self.is_listing = is_listing
        self.unanswered = np.zeros(len(points), np.int64)  # open questions of each point
        self._states = np.zeros((len(points), len(asked)), np.uint8)
        self._decisions: dict[bytes, tuple[frozenset[str], tuple[str, ...]]] = {}
        self._numbers: dict[tuple[int, int], list[npt.NDArray[np.uint32]]] = {}

    def mark_unsure(self, rows: Rows, kinds: frozenset[int]) -> None:
        """Note that no matcher answers for boxes of these kinds."""
        for column, known in enumerate(self.asked.values()):
            if known.kinds & kinds:
                self._states[rows, column] = _UNSURE

    def add_answer(self, rows: Rows, answer: MatcherAnswer) -> None:
        counts, numbers = numbers_of(answer.counts), numbers_of(answer.numbers)
        if len(counts) != len(rows) * len(self.names):
            self._states[rows] = _UNSURE
            return
        counts = counts.reshape(len(rows), len(self.names))
        is_unsure = counts == UNSURE
        found = np.where(is_unsure, _UNSURE, np.where(counts, _MATCHED, _NOTHING)).astype(np.uint8)
        if self.is_listing:
            sizes = np.where(is_unsure, 0, counts).astype(np.int64)
            if sizes.sum() != len(numbers):
                self._states[rows] = _UNSURE
                return
            self._list(rows.tolist(), sizes, numbers)
        self._states[rows] = np.maximum(self._states[rows], found)

    def _list(
        self, rows: list[int], sizes: npt.NDArray[np.int64], numbers: npt.NDArray[np.uint32]
    ) -> None:
        ends = np.cumsum(sizes).reshape(sizes.shape)
        hits = np.nonzero(sizes)
        for row, column, end, size in zip(
            *(hit.tolist() for hit in hits), ends[hits].tolist(), sizes[hits].tolist(), strict=True
        ):
            found = self._numbers.setdefault((rows[row], column), [])
            found.append(numbers[end - size : end])

    def verdicts(self, rows: list[int]) -> list[Verdict[Tag]]:
        """Return the verdicts of these points. Equal states share one decision."""
        states = self._states[rows].tobytes()
        width = len(self.names)
        verdicts = []
        for place, row in enumerate(rows):
            state = states[place * width : (place + 1) * width]
            decision = self._decisions.get(state)
            if decision is None:
                decision = self._decisions[state] = self._decide(state)
            boxes = self._boxes_of(row, state) if self.is_listing else _NOT_LISTED
            verdicts.append(Verdict(self.tags[row], *decision, boxes))
        return verdicts

    def _decide(self, states: bytes) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the brokers that get it, and those of them that are unsure."""
        by_name = [*zip(self.names, states, strict=True)]
        unsure = (*self.unsure, *(name for name, state in by_name if state == _UNSURE))
        matched = (name for name, state in by_name if state == _MATCHED)
        return frozenset((*unsure, *matched)), unsure

    def _boxes_of(self, row: int, states: bytes) -> Mapping[str, BoxNumbers]:
        found: dict[str, BoxNumbers] = {}
        for column, state in enumerate(states):
            pieces = self._numbers.pop((row, column), None)
            if pieces is not None and state == _MATCHED:
                boxes = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
                found[self.names[column]] = BoxNumbers(self.versions[column].life, boxes)
        return found
