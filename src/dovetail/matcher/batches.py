"""Points that are asked about together, and what has been answered of each. Pure.

A point is done when all its questions have come to an end: answered, or given up. Its verdict has
for each broker either the numbers of its boxes, of all answers together, or that it is unsure.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.matcher.announcing import Known
from dovetail.matcher.bodies import AnsweredBody, Subject, numbers_of
from dovetail.matcher.choosing import Rows
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Floats

Tag = TypeVar("Tag")
"""The caller's name for a publication."""


class Numbers(NamedTuple):
    """Boxes of a broker, in one life of it."""

    life: int
    boxes: npt.NDArray[np.uint32]


class Verdict(NamedTuple, Generic[Tag]):
    """Who gets a publication. Brokers that are in neither have nothing for it."""

    tag: Tag
    broad: tuple[str, ...]
    """They look through all their boxes."""
    narrow: Mapping[str, Numbers]


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
        self.left = np.zeros(len(points), np.int64)  # questions that are not answered
        self.is_unsure = np.zeros((len(points), len(asked)), np.bool_)
        self.found: list[dict[int, list[npt.NDArray[np.uint32]]]] = [{} for _ in tags]

    def doubt(self, rows: Rows, kinds: frozenset[int]) -> None:
        """Nobody answers for boxes of these kinds."""
        for column, known in enumerate(self.asked.values()):
            if known.kinds & kinds:
                self.is_unsure[rows, column] = True

    def take(self, rows: Rows, answer: AnsweredBody) -> None:
        counts, numbers = numbers_of(answer.counts), numbers_of(answer.numbers)
        if len(counts) != len(rows) * len(self.names):
            self.is_unsure[rows] = True
            return
        counts = counts.reshape(len(rows), len(self.names))
        is_unsure = counts == UNSURE
        self.is_unsure[rows] |= is_unsure
        sizes = np.where(is_unsure, 0, counts).astype(np.int64)
        ends = np.cumsum(sizes).reshape(sizes.shape)
        if ends.size and ends[-1, -1] != len(numbers):
            self.is_unsure[rows] = True
            return
        places = rows.tolist()
        hits = np.nonzero(sizes)
        for row, column, end, size in zip(
            *(hit.tolist() for hit in hits), ends[hits].tolist(), sizes[hits].tolist(), strict=True
        ):
            found = self.found[places[row]]
            found.setdefault(column, []).append(numbers[end - size : end])

    def verdict(self, row: int) -> Verdict[Tag]:
        broad = self.broad
        narrow: dict[str, Numbers] = {}
        found, self.found[row] = self.found[row], {}
        for column in np.flatnonzero(self.is_unsure[row]).tolist():
            broad = (*broad, self.names[column])
            found.pop(column, None)
        for column, pieces in found.items():
            boxes = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            narrow[self.names[column]] = Numbers(self.subjects[column].life, boxes)
        return Verdict(self.tags[row], broad, narrow)
