"""Points that a broker asks about together, and the answers so far. Pure.

A point is done when each of its questions was answered or given up. Its verdict names the brokers
that get the publication: those with matching boxes, by all answers together, and those that no
matcher answered for. Where boxes are listed, the verdict has their numbers, too.

Points stay columns. Publications that were submitted together and are done together share a
verdict: an array with a row for each of them. Where boxes are listed, each has its own.
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
"""The name that the caller has for publications that it submits together."""

States = npt.NDArray[np.uint8]


class BoxNumbers(NamedTuple):
    """Numbers of a broker's boxes, in one life of the broker."""

    life: int
    boxes: npt.NDArray[np.uint32]


_NOTHING, _MATCHED, _UNSURE = range(3)
_NOT_LISTED: Mapping[str, BoxNumbers] = {}


class Verdict(NamedTuple, Generic[Tag]):
    """Which brokers get some publications."""

    tag: Tag
    rows: Rows
    """Their places among those that were submitted together."""
    brokers: tuple[str, ...]
    """The brokers that were submitted with them. No other broker has a box for them."""
    states: States
    """By publication and broker; 0: the broker has no box for it, and does not get it."""
    boxes: Mapping[str, BoxNumbers]
    """The matching boxes of the only publication, where boxes are listed."""

    @property
    def receivers(self) -> frozenset[str]:
        """The brokers that get the first publication."""
        return frozenset(name for name, state in self._by_name() if state)

    @property
    def unsure(self) -> tuple[str, ...]:
        """Those that get the first publication because no matcher answered for them."""
        return tuple(name for name, state in self._by_name() if state == _UNSURE)

    def _by_name(self) -> Sequence[tuple[str, int]]:
        return [*zip(self.brokers, self.states[0].tolist(), strict=True)]


class Submissions(NamedTuple, Generic[Tag]):
    """Which points were submitted together."""

    tags: Sequence[Tag]
    numbers: Rows
    """The place of each point's tag."""
    places: Rows
    """The place of each point among those with its tag."""

    @classmethod
    def of(cls, tags: Sequence[Tag], sizes: Sequence[int]) -> "Submissions[Tag]":
        ends = np.cumsum(sizes)
        numbers = np.repeat(np.arange(len(tags)), sizes)
        return cls(tags, numbers, np.arange(ends[-1]) - np.repeat(ends - sizes, sizes))

    def part(self, first: int, end: int) -> "Submissions[Tag]":
        return self._replace(numbers=self.numbers[first:end], places=self.places[first:end])


class QuestionBatch(Generic[Tag]):
    """Points of one space for which the same brokers may have boxes."""

    def __init__(
        self,
        space: str,
        points: Floats,
        submissions: Submissions[Tag],
        brokers: tuple[str, ...],
        unsure: Sequence[str],
        asked: Mapping[str, AnnouncedBoxes],
        deadline: float,
        *,
        is_listing: bool = False,
    ) -> None:
        """`unsure` and `asked` are among `brokers`."""
        self.space = space
        self.points = points
        self.brokers = brokers
        self.asked = asked
        self.versions = [BrokerVersion(name, one.life, one.version) for name, one in asked.items()]
        self.kinds = frozenset(kind for one in asked.values() for kind in one.kinds)
        self.deadline = deadline
        self.is_listing = is_listing
        self.unanswered = np.zeros(len(points), np.int64)  # open questions of each point
        self._submissions = submissions
        self._columns = np.array([brokers.index(name) for name in asked], np.int64)
        self._states = np.zeros((len(points), len(brokers)), np.uint8)
        for name in unsure:
            self._states[:, brokers.index(name)] = _UNSURE
        self._numbers: dict[tuple[int, int], list[npt.NDArray[np.uint32]]] = {}

    def mark_unsure(self, rows: Rows, kinds: frozenset[int]) -> None:
        """Note that no matcher answers for boxes of these kinds."""
        for column, known in zip(self._columns, self.asked.values(), strict=True):
            if known.kinds & kinds:
                self._states[rows, column] = _UNSURE

    def add_answer(self, rows: Rows, answer: MatcherAnswer) -> None:
        counts, numbers = numbers_of(answer.counts), numbers_of(answer.numbers)
        own = rows[:, np.newaxis], self._columns
        if len(counts) != len(rows) * len(self.asked):
            self._states[own] = _UNSURE
            return
        counts = counts.reshape(len(rows), len(self.asked))
        is_unsure = counts == UNSURE
        if self.is_listing:
            sizes = np.where(is_unsure, 0, counts).astype(np.int64)
            if sizes.sum() != len(numbers):
                self._states[own] = _UNSURE
                return
            self._list(rows.tolist(), sizes, numbers)
        # A state is a sum: what is unsure counts as matched, and once more.
        found = (counts > 0).view(np.uint8) + is_unsure.view(np.uint8)
        self._states[own] = np.maximum(self._states[own], found)

    def _list(
        self, rows: list[int], sizes: npt.NDArray[np.int64], numbers: npt.NDArray[np.uint32]
    ) -> None:
        ends = np.cumsum(sizes).reshape(sizes.shape)
        hits = np.nonzero(sizes)
        for row, place, end, size in zip(
            *(hit.tolist() for hit in hits), ends[hits].tolist(), sizes[hits].tolist(), strict=True
        ):
            found = self._numbers.setdefault((rows[row], place), [])
            found.append(numbers[end - size : end])

    def verdicts(self, rows: Rows) -> list[Verdict[Tag]]:
        """Return the verdicts of these points, which are in ascending order."""
        tags, numbers, places = self._submissions
        own, states = numbers[rows], self._states[rows]
        if self.is_listing:
            cuts = [*range(1, len(rows))]
        else:
            cuts = (np.flatnonzero(own[1:] != own[:-1]) + 1).tolist() if len(tags) > 1 else []
        verdicts = []
        for first, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            boxes = self._boxes_of(int(rows[first])) if self.is_listing else _NOT_LISTED
            mine = places[rows[first:end]]
            verdicts.append(Verdict(tags[own[first]], mine, self.brokers, states[first:end], boxes))
        return verdicts

    def _boxes_of(self, row: int) -> Mapping[str, BoxNumbers]:
        found: dict[str, BoxNumbers] = {}
        for place, (name, column) in enumerate(zip(self.asked, self._columns, strict=True)):
            pieces = self._numbers.pop((row, place), None)
            if pieces is not None and self._states[row, column] == _MATCHED:
                boxes = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
                found[name] = BoxNumbers(self.versions[place].life, boxes)
        return found
