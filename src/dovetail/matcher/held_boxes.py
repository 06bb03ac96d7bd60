"""The boxes that a matcher holds of one space, from many brokers, in one index. Pure.

Rules:

- A matcher answers for a broker at a point if three things hold of the broker's feed: it covers the
  point's value on the dimension that is asked along, it is of the life that is asked about, and it
  is at least as new as asked. Otherwise the matcher answers "unsure".
- A feed is taken step by step (feed.py). A step that does not follow the last one is refused, and
  the feed starts again. A later life or epoch replaces an earlier one as a whole.
- The boxes of a broker that is down stay. They go when the broker is forgotten.
- BlueDove has an index for each dimension, of the boxes held along it. Here one index has all boxes
  once. Its bitmaps skip boxes that are held along other dimensions, and a box that is narrow on the
  asked dimension and outside the matcher's segment cannot match.
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
    BrokerVersion,
    FeedReply,
    FeedStep,
    MatcherAnswer,
    MatcherQuestion,
    floats_of,
    numbers_of,
)

_SLOTS_MIN = 1_024


class _BrokerFeed:
    """The feed of one broker, as far as it was taken."""

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


class HeldBoxes:
    """The boxes of one space, by broker, and how complete they are."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        lows = [bound.low for bound in layout.dimensions]
        highs = [bound.high for bound in layout.dimensions]
        self._index = BoxIndex(lows, highs)
        self._feeds: dict[str, _BrokerFeed] = {}
        self._owners = 0
        self._free_owners: list[int] = []
        self._owner_of = np.zeros(_SLOTS_MIN, np.int32)
        self._number_of = np.zeros(_SLOTS_MIN, np.uint32)
        self._kind_of = np.zeros(_SLOTS_MIN, np.uint16)
        self._along_of = np.zeros(_SLOTS_MIN, np.uint16)  # dimensions that a box is held along
        self._bit_numbers = np.arange(layout.searchable, dtype=np.uint16)

    def __len__(self) -> int:
        return len(self._index)

    # Feeds ----------------------------------------------------------------------------------------

    def take(self, broker: str, step: FeedStep) -> FeedReply:
        """Apply a step of a feed. The reply says up to which step the feed was taken."""
        feed = self._feeds.get(broker)
        if feed is not None and step.life < feed.life:
            return FeedReply(step.space, feed.life, step.epoch, 0, is_lost=True)
        is_new = feed is None or (step.life, step.epoch) > (feed.life, feed.epoch)
        if is_new and not step.sequence:
            feed = self._begin(broker, step)
        if (
            feed is None
            or (step.life, step.epoch) != (feed.life, feed.epoch)
            or step.sequence != feed.sequence + 1
        ):
            return FeedReply(step.space, step.life, step.epoch, 0, is_lost=True)
        self._apply(feed, step)
        feed.sequence = step.sequence
        return FeedReply(step.space, step.life, step.epoch, step.sequence)

    def _begin(self, broker: str, step: FeedStep) -> _BrokerFeed:
        self.forget(broker)
        if self._free_owners:
            owner = self._free_owners.pop()
        else:
            owner = self._owners
            self._owners += 1
        feed = _BrokerFeed(owner, step.life, step.epoch, self.layout.searchable)
        self._feeds[broker] = feed
        return feed

    def _apply(self, feed: _BrokerFeed, step: FeedStep) -> None:
        """Apply the whole step or, if it is wrong, nothing of it."""
        dimensions = len(self.layout.dimensions)
        numbers, dropped = numbers_of(step.numbers).tolist(), numbers_of(step.dropped).tolist()
        edges = floats_of(step.edges, 2 * dimensions)
        if len(edges) != len(numbers) or np.isnan(edges).any():
            raise PeerError(f"{len(numbers)} boxes with other borders than they need")
        if len(set(numbers)) != len(numbers):
            raise PeerError("a number of a box twice in a step")
        if step.cover is not None and len(step.cover) != self.layout.searchable:
            raise PeerError(f"a cover of {len(step.cover)} dimensions")
        old = [feed.slots.pop(number, -1) for number in (*dropped, *numbers)]
        gone = [slot for slot in old if slot >= 0]
        if gone:
            feed.along -= self._count(gone)
            self._index.discard(gone)
        if numbers:
            self._insert(feed, numbers, edges[:, :dimensions], edges[:, dimensions:])
        if step.cover is not None:
            feed.cover = tuple(normal(ranges) for ranges in step.cover)
            self._update_along(feed)
        if step.version is not None:
            feed.version = step.version
        feed.is_released = step.is_released

    def _insert(self, feed: _BrokerFeed, numbers: list[int], lows: Floats, highs: Floats) -> None:
        kinds = self.layout.kinds(lows, highs)
        slots = self._index.insert(lows, highs)
        taken: list[int] = slots.tolist()
        self._make_room(max(taken) + 1)
        self._owner_of[slots] = feed.owner
        self._number_of[slots] = numbers
        self._kind_of[slots] = kinds
        self._along_of[slots] = self.layout.along(lows, highs, kinds, feed.cover)
        feed.along += self._count(taken)
        feed.slots.update(zip(numbers, taken, strict=True))

    def _make_room(self, count: int) -> None:
        if count > len(self._owner_of):
            more = max(count, 2 * len(self._owner_of)) - len(self._owner_of)
            self._owner_of = np.concatenate((self._owner_of, np.zeros(more, np.int32)))
            self._number_of = np.concatenate((self._number_of, np.zeros(more, np.uint32)))
            self._kind_of = np.concatenate((self._kind_of, np.zeros(more, np.uint16)))
            self._along_of = np.concatenate((self._along_of, np.zeros(more, np.uint16)))

    def _update_along(self, feed: _BrokerFeed) -> None:
        """Find out along which dimensions the boxes are held now, after the cover has changed."""
        slots = list(feed.slots.values())
        lows, highs = self._index.boxes(slots)
        self._along_of[slots] = self.layout.along(lows, highs, self._kind_of[slots], feed.cover)
        feed.along = self._count(slots)

    def _count(self, slots: list[int]) -> npt.NDArray[np.int64]:
        """Count how many of these boxes are held along each dimension."""
        along = self._along_of[slots]
        is_along = along[:, np.newaxis] >> self._bit_numbers & 1
        counts: npt.NDArray[np.int64] = is_along.sum(axis=0, dtype=np.int64)
        return counts

    def forget(self, broker: str) -> None:
        feed = self._feeds.pop(broker, None)
        if feed is not None:
            self._index.discard(list(feed.slots.values()))
            self._free_owners.append(feed.owner)

    # How complete ---------------------------------------------------------------------------------

    def is_behind(self, asked: Sequence[BrokerVersion]) -> bool:
        """Is some feed older than the question expects? The rest of it is probably on its way."""
        for one in asked:
            feed = self._feeds.get(one.broker)
            if feed is None or (feed.life, feed.version) < (one.life, one.version):
                return True
        return False

    def covers(self, broker: str, cover: Cover) -> bool:
        feed = self._feeds.get(broker)
        return feed is not None and feed.version >= 0 and contains(feed.cover, cover)

    def is_released(self, broker: str) -> bool:
        feed = self._feeds.get(broker)
        return feed is None or feed.is_released

    def boxes_along(self) -> tuple[int, ...]:
        """Count how many boxes are held along each dimension."""
        counts = np.zeros(self.layout.searchable, np.int64)
        for feed in self._feeds.values():
            counts += feed.along
        return tuple(counts.tolist())

    # Points ---------------------------------------------------------------------------------------

    def points(self, question: MatcherQuestion) -> Floats:
        """Return the question's points. A PeerError if they or the dimension are invalid."""
        points = floats_of(question.points, len(self.layout.dimensions))
        if question.dimension >= self.layout.searchable:
            raise PeerError(f"a question along dimension {question.dimension}")
        return points

    def answer(self, questions: Sequence[MatcherQuestion]) -> list[MatcherAnswer]:
        """Answer several questions with one search."""
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
        question: MatcherQuestion,
        points: Floats,
        ends: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        first: int,
    ) -> MatcherAnswer:
        values = self.layout.values(points)[:, question.dimension]
        columns = len(question.brokers)
        column_of = np.full(max(self._owners, 1), -1, np.int32)
        is_sure = np.zeros((len(points), columns), np.bool_)
        insides: dict[Cover, npt.NDArray[np.bool_]] = {}  # most brokers share one cover
        for column, asked in enumerate(question.brokers):
            feed = self._feeds.get(asked.broker)
            if feed is None or feed.life != asked.life or feed.version < asked.version:
                continue
            column_of[feed.owner] = column
            inside = insides.get(feed.cover)
            if inside is None:
                inside = insides[feed.cover] = within(values, feed.cover[question.dimension])
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
        return MatcherAnswer(
            question.number, counts.astype("<u4").tobytes(), numbers[:used].astype("<u4").tobytes()
        )


def load_kernels() -> None:
    """Load the kernels, compiled at set-up, before the first question needs them."""
    layout = Layout("warm", (Bounds(0, 1),), (0,))
    boxes = HeldBoxes(layout)
    edges = np.array([0.0, 1.0], "<f8").tobytes()
    boxes.take("broker", FeedStep(layout.id, 0, 0, 0, 0, [[(0.0, 1.0)]], bytes(4), edges, b""))
    boxes.answer([MatcherQuestion(0, layout.id, 0, [1], [BrokerVersion("broker", 0, 0)], bytes(8))])


def unsure(question: MatcherQuestion, points: int) -> MatcherAnswer:
    """Return an answer that is unsure about all points and brokers."""
    counts = np.full(points * len(question.brokers), UNSURE, "<u4")
    return MatcherAnswer(question.number, counts.tobytes(), b"")
