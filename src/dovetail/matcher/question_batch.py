"""Points that are asked about together, and what has been answered of each. Pure.

A point is done when all its questions have come to an end: answered, or given up. Its verdict says
who gets it: each broker that has boxes for it, by all answers together, or of whom nobody is sure.
Where boxes are listed, it has their numbers, too.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.matcher.announcement import Known
from dovetail.matcher.candidate_choice import Rows
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Floats
from dovetail.matcher.matcher_messages import AnsweredBody, Subject, numbers_of

Tag = TypeVar("Tag")
"""The caller's name for a publication."""


class Numbers(NamedTuple):
    """Boxes of a broker, in one life of it."""

    life: int
    boxes: npt.NDArray[np.uint32]


class Verdict(NamedTuple, Generic[Tag]):
    """Who gets a publication."""

    tag: Tag
    wanted: frozenset[str]
    """All of them. Other brokers have nothing for it."""
    broad: tuple[str, ...]
    """Those of them of whom nobody is sure."""
    narrow: Mapping[str, Numbers]
    """The boxes of the others, if they are listed."""


_NOTHING, _WANTED, _UNSURE = range(3)
_NOT_LISTED: Mapping[str, Numbers] = {}


class Batch(Generic[Tag]):
    """Points of one space that the same brokers may want."""

    def __init__(
        self,
        space: str,
        points: Floats,
        tags: Sequence[Tag],
        broad: tuple[str, ...],
        asked: Mapping[str, Known],
        deadline: float,
        *,
        is_listing: bool = False,
    ) -> None:
        self.space = space
        self.points = points
        self.tags = tags
        self.broad = broad
        self.asked = asked
        self.names = tuple(asked)
        self.subjects = [Subject(name, one.life, one.version) for name, one in asked.items()]
        self.kinds = frozenset(kind for one in asked.values() for kind in one.kinds)
        self.deadline = deadline
        self.is_listing = is_listing
        self.left = np.zeros(len(points), np.int64)  # questions that are not answered
        self._states = np.zeros((len(points), len(asked)), np.uint8)
        self._meanings: dict[bytes, tuple[frozenset[str], tuple[str, ...]]] = {}
        self._found: dict[tuple[int, int], list[npt.NDArray[np.uint32]]] = {}

    def doubt(self, rows: Rows, kinds: frozenset[int]) -> None:
        """Nobody answers for boxes of these kinds."""
        for column, known in enumerate(self.asked.values()):
            if known.kinds & kinds:
                self._states[rows, column] = _UNSURE

    def take(self, rows: Rows, answer: AnsweredBody) -> None:
        counts, numbers = numbers_of(answer.counts), numbers_of(answer.numbers)
        if len(counts) != len(rows) * len(self.names):
            self._states[rows] = _UNSURE
            return
        counts = counts.reshape(len(rows), len(self.names))
        is_unsure = counts == UNSURE
        told = np.where(is_unsure, _UNSURE, np.where(counts, _WANTED, _NOTHING)).astype(np.uint8)
        if self.is_listing:
            sizes = np.where(is_unsure, 0, counts).astype(np.int64)
            if sizes.sum() != len(numbers):
                self._states[rows] = _UNSURE
                return
            self._list(rows.tolist(), sizes, numbers)
        self._states[rows] = np.maximum(self._states[rows], told)

    def _list(
        self, rows: list[int], sizes: npt.NDArray[np.int64], numbers: npt.NDArray[np.uint32]
    ) -> None:
        ends = np.cumsum(sizes).reshape(sizes.shape)
        hits = np.nonzero(sizes)
        for row, column, end, size in zip(
            *(hit.tolist() for hit in hits), ends[hits].tolist(), sizes[hits].tolist(), strict=True
        ):
            found = self._found.setdefault((rows[row], column), [])
            found.append(numbers[end - size : end])

    def verdicts(self, rows: list[int]) -> list[Verdict[Tag]]:
        """Of points that are done. Many have the same meaning, which is made once."""
        states = self._states[rows].tobytes()
        width = len(self.names)
        verdicts = []
        for place, row in enumerate(rows):
            state = states[place * width : (place + 1) * width]
            meaning = self._meanings.get(state)
            if meaning is None:
                meaning = self._meanings[state] = self._mean(state)
            narrow = self._listed(row, state) if self.is_listing else _NOT_LISTED
            verdicts.append(Verdict(self.tags[row], *meaning, narrow))
        return verdicts

    def _mean(self, states: bytes) -> tuple[frozenset[str], tuple[str, ...]]:
        """Who gets it, and of whom nobody is sure."""
        told = [*zip(self.names, states, strict=True)]
        broad = (*self.broad, *(name for name, state in told if state == _UNSURE))
        wanted = (name for name, state in told if state == _WANTED)
        return frozenset((*broad, *wanted)), broad

    def _listed(self, row: int, states: bytes) -> Mapping[str, Numbers]:
        found: dict[str, Numbers] = {}
        for column, state in enumerate(states):
            pieces = self._found.pop((row, column), None)
            if pieces is not None and state == _WANTED:
                boxes = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
                found[self.names[column]] = Numbers(self.subjects[column].life, boxes)
        return found
