"""What a matcher holds of a space: boxes of many brokers in one index, and how complete. Pure.

Rules:

- A matcher answers for a broker, at a point, if the broker's feed covers the point's value on the
  dimension that is asked along, is of the life that is asked for, and is at least as new. Otherwise
  it is unsure, and says so.
- A feed is taken step by step (feed.py). A step that does not follow is refused, and the feed
  begins anew. A later life or epoch takes the place of an earlier one, whole.
- What a broker has fed stays while the broker is down; it goes when the broker is forgotten.
- BlueDove has an index for each dimension, of the boxes held along it. Here one has all boxes once:
  of those that are held along other dimensions the bitmaps leave nothing to look at, and boxes that
  are narrow where the matcher is asked and do not reach its part of it cannot match.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.partition import Bounds
from dovetail.errors import PeerError
from dovetail.matcher.coverage import Cover, contains, normal, nothing, within
from dovetail.matcher.kernels.grouping import UNSURE, group
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import ANSWER_BOXES_MAX, ANSWER_NUMBERS_MAX
from dovetail.matcher.matcher_messages import (
    AnsweredBody,
    AskedBody,
    FeedBody,
    Subject,
    TakenBody,
    floats_of,
    numbers_of,
)

_SLOTS_MIN = 1_024


class _Held:
    """What one broker has fed."""

    __slots__ = (
        "along",
        "cover",
        "epoch",
        "is_released",
        "life",
        "owner",
        "sequence",
        "slots",
        "version",
    )

    def __init__(self, owner: int, life: int, epoch: int, dimensions: int) -> None:
        self.owner = owner
        self.life = life
        self.epoch = epoch
        self.sequence = -1
        self.version = -1
        self.cover: Cover = nothing(dimensions)
        self.slots: dict[int, int] = {}  # by number
        self.along = np.zeros(dimensions, np.int64)  # boxes that are held along each dimension
        self.is_released = False


class HeldSpace:
    """One space."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        lows = [bound.low for bound in layout.dimensions]
        highs = [bound.high for bound in layout.dimensions]
        self._index = BoxIndex(lows, highs)
        self._held: dict[str, _Held] = {}
        self._owners = 0
        self._free_owners: list[int] = []
        self._owner_of = np.zeros(_SLOTS_MIN, np.int32)
        self._number_of = np.zeros(_SLOTS_MIN, np.uint32)
        self._kind_of = np.zeros(_SLOTS_MIN, np.uint16)
        self._along_of = np.zeros(_SLOTS_MIN, np.uint16)  # dimensions that a box is held along
        self._places = np.arange(layout.searchable, dtype=np.uint16)

    def __len__(self) -> int:
        return len(self._index)

    # Feeds ----------------------------------------------------------------------------------------

    def take(self, broker: str, step: FeedBody) -> TakenBody:
        """A step of a feed. The answer says how far it was taken."""
        held = self._held.get(broker)
        if held is not None and step.life < held.life:
            return TakenBody(step.space, held.life, step.epoch, 0, is_lost=True)
        is_new = held is None or (step.life, step.epoch) > (held.life, held.epoch)
        if is_new and not step.sequence:
            held = self._begin(broker, step)
        if (
            held is None
            or (step.life, step.epoch) != (held.life, held.epoch)
            or step.sequence != held.sequence + 1
        ):
            return TakenBody(step.space, step.life, step.epoch, 0, is_lost=True)
        self._apply(held, step)
        held.sequence = step.sequence
        return TakenBody(step.space, step.life, step.epoch, step.sequence)

    def _begin(self, broker: str, step: FeedBody) -> _Held:
        self.forget(broker)
        if self._free_owners:
            owner = self._free_owners.pop()
        else:
            owner = self._owners
            self._owners += 1
        held = _Held(owner, step.life, step.epoch, self.layout.searchable)
        self._held[broker] = held
        return held

    def _apply(self, held: _Held, step: FeedBody) -> None:
        """All of it or, if it is wrong, nothing."""
        dimensions = len(self.layout.dimensions)
        numbers, dropped = numbers_of(step.numbers).tolist(), numbers_of(step.dropped).tolist()
        edges = floats_of(step.edges, 2 * dimensions)
        if len(edges) != len(numbers) or np.isnan(edges).any():
            raise PeerError(f"{len(numbers)} boxes with other borders than they need")
        if len(set(numbers)) != len(numbers):
            raise PeerError("a number of a box twice in a step")
        if step.cover is not None and len(step.cover) != self.layout.searchable:
            raise PeerError(f"a cover of {len(step.cover)} dimensions")
        old = [held.slots.pop(number, -1) for number in (*dropped, *numbers)]
        gone = [slot for slot in old if slot >= 0]
        if gone:
            held.along -= self._count(gone)
            self._index.discard(gone)
        if numbers:
            self._insert(held, numbers, edges[:, :dimensions], edges[:, dimensions:])
        if step.cover is not None:
            held.cover = tuple(normal(ranges) for ranges in step.cover)
            self._place(held)
        if step.version is not None:
            held.version = step.version
        held.is_released = step.is_released

    def _insert(self, held: _Held, numbers: list[int], lows: Floats, highs: Floats) -> None:
        kinds = self.layout.kinds(lows, highs)
        slots = self._index.insert(lows, highs)
        taken: list[int] = slots.tolist()
        self._make_room(max(taken) + 1)
        self._owner_of[slots] = held.owner
        self._number_of[slots] = numbers
        self._kind_of[slots] = kinds
        self._along_of[slots] = self.layout.along(lows, highs, kinds, held.cover)
        held.along += self._count(taken)
        held.slots.update(zip(numbers, taken, strict=True))

    def _make_room(self, count: int) -> None:
        if count > len(self._owner_of):
            more = max(count, 2 * len(self._owner_of)) - len(self._owner_of)
            self._owner_of = np.concatenate((self._owner_of, np.zeros(more, np.int32)))
            self._number_of = np.concatenate((self._number_of, np.zeros(more, np.uint32)))
            self._kind_of = np.concatenate((self._kind_of, np.zeros(more, np.uint16)))
            self._along_of = np.concatenate((self._along_of, np.zeros(more, np.uint16)))

    def _place(self, held: _Held) -> None:
        """After its cover has changed: along which dimensions are its boxes held now?"""
        slots = list(held.slots.values())
        lows, highs = self._index.boxes(slots)
        self._along_of[slots] = self.layout.along(lows, highs, self._kind_of[slots], held.cover)
        held.along = self._count(slots)

    def _count(self, slots: list[int]) -> npt.NDArray[np.int64]:
        """How many of these boxes are held along each dimension."""
        along = self._along_of[slots]
        is_along = along[:, np.newaxis] >> self._places & 1
        counts: npt.NDArray[np.int64] = is_along.sum(axis=0, dtype=np.int64)
        return counts

    def forget(self, broker: str) -> None:
        held = self._held.pop(broker, None)
        if held is not None:
            self._index.discard(list(held.slots.values()))
            self._free_owners.append(held.owner)

    # How complete ---------------------------------------------------------------------------------

    def is_behind(self, subjects: Sequence[Subject]) -> bool:
        """Will some feed know more soon? It is on its way, as far as can be told."""
        for subject in subjects:
            held = self._held.get(subject.broker)
            if held is None or (held.life, held.version) < (subject.life, subject.version):
                return True
        return False

    def covers(self, broker: str, cover: Cover) -> bool:
        held = self._held.get(broker)
        return held is not None and held.version >= 0 and contains(held.cover, cover)

    def is_released(self, broker: str) -> bool:
        held = self._held.get(broker)
        return held is None or held.is_released

    def boxes_along(self) -> tuple[int, ...]:
        """How many boxes are held along each dimension."""
        counts = np.zeros(self.layout.searchable, np.int64)
        for held in self._held.values():
            counts += held.along
        return tuple(counts.tolist())

    # Points ---------------------------------------------------------------------------------------

    def points(self, question: AskedBody) -> Floats:
        """A PeerError if they are none, or asked for along a dimension that there is not."""
        points = floats_of(question.points, len(self.layout.dimensions))
        if question.dimension >= self.layout.searchable:
            raise PeerError(f"a question along dimension {question.dimension}")
        return points

    def answer(self, questions: Sequence[AskedBody]) -> list[AnsweredBody]:
        """All points are matched in one go."""
        points = [self.points(question) for question in questions]
        # A copy in any case: kernels are compiled for arrays that can be written to.
        ends, slots = self._index.match(np.concatenate(points))
        answers = []
        first = 0
        for question, own in zip(questions, points, strict=True):
            answers.append(self._group(question, own, ends, slots, first))
            first += len(own)
        return answers

    def _group(
        self,
        question: AskedBody,
        points: Floats,
        ends: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        first: int,
    ) -> AnsweredBody:
        values = self.layout.values(points)[:, question.dimension]
        columns = len(question.subjects)
        column_of = np.full(max(self._owners, 1), -1, np.int32)
        is_sure = np.zeros((len(points), columns), np.bool_)
        insides: dict[Cover, npt.NDArray[np.bool_]] = {}  # most brokers have the same
        for column, subject in enumerate(question.subjects):
            held = self._held.get(subject.broker)
            if held is None or held.life != subject.life or held.version < subject.version:
                continue
            column_of[held.owner] = column
            inside = insides.get(held.cover)
            if inside is None:
                inside = insides[held.cover] = within(values, held.cover[question.dimension])
            is_sure[:, column] = inside
        is_wanted = np.zeros(1 << self.layout.searchable, np.bool_)
        is_wanted[[kind for kind in question.kinds if kind < len(is_wanted)]] = True
        counts = np.empty(len(points) * columns, np.uint32)
        found = int(ends[first + len(points)] - ends[first]) if question.is_listing else 0
        numbers = np.empty(min(found, ANSWER_NUMBERS_MAX), np.uint32)
        used = group(
            ends, slots, first, len(points), self._owner_of, self._number_of, self._kind_of,
            column_of, columns, is_wanted, is_sure.reshape(-1), question.is_listing,
            ANSWER_BOXES_MAX, counts, numbers,
        )  # fmt: skip
        return AnsweredBody(
            question.number, counts.astype("<u4").tobytes(), numbers[:used].astype("<u4").tobytes()
        )


def load_kernels() -> None:
    """Compiled at set-up: loaded by a call of each rather than with the first question."""
    layout = Layout("warm", (Bounds(0, 1),), (0,))
    held = HeldSpace(layout)
    edges = np.array([0.0, 1.0], "<f8").tobytes()
    held.take("broker", FeedBody(layout.id, 0, 0, 0, 0, [[(0.0, 1.0)]], bytes(4), edges, b""))
    held.answer([AskedBody(0, layout.id, 0, [1], [Subject("broker", 0, 0)], bytes(8))])


def unsure(question: AskedBody, points: int) -> AnsweredBody:
    """An answer without a search."""
    counts = np.full(points * len(question.subjects), UNSURE, "<u4")
    return AnsweredBody(question.number, counts.tobytes(), b"")
