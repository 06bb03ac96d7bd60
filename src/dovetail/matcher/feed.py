"""Feeds a broker's boxes to the matchers that answer for them. The broker's side; pure.

    broker                                            matcher
      | -- FEED 0: discard what you have ------------>  |   when a connection opens
      | -- FEED 1, 2...: boxes ---------------------->  |   some at a time
      | -- FEED n: boxes; complete at version v,        |
      |            for these ranges ----------------->  |   from now on it can answer
      | <- FEED_REPLY: last step taken ---------------  |
      | -- FEED: added and removed boxes; version w ->  |   as boxes change
      | <- FEED_REPLY, or lost: a step is missing ----  |   then the feed starts again

Rules:

- A feed has an epoch and numbered steps. The epoch rises each time the feed starts again. So both
  sides recognize frames of an earlier connection, in any life of either side.
- The *cover* is what a feed is complete for: every box that is narrow on a dimension and overlaps
  the cover there is at the matcher, as of the version. The cover grows after the boxes for it were
  sent, and shrinks before boxes are removed. Both follow the order of the steps.
- A matcher whose part of a space shrinks keeps the rest for FEED_NARROW_SECONDS.
- Every matcher learns of every change of any box, at least as a version. A matcher that is asked
  for a higher version than it has is unsure.
- At most FEED_FRAMES_MAX steps are in flight. Boxes that change meanwhile are sent in their latest
  state. A feed starts again if a step cannot be sent or stays unanswered for too long.
- A leaving matcher is released when all other matchers have the boxes of their next segments.
- BlueDove's copies at clockwise neighbours are not fed: nobody would ask there. If all candidates
  of a point are gone, each broker searches its own boxes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from dovetail.cluster.limits import PEER_STALL_SECONDS_MAX
from dovetail.matcher.coverage import Cover, contains, intersection, is_nothing, nothing, union
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import FEED_FRAME_BOXES_MAX, FEED_FRAMES_MAX, FEED_NARROW_SECONDS
from dovetail.matcher.matcher_messages import FEED, FeedStep, decoded, encode, feed_reply_decoder
from dovetail.matcher.own_boxes import OwnBoxes
from dovetail.matcher.segment_tables import MatcherDirectory

Send = Callable[[str, int, bytes], bool]
"""Send a node a frame of this kind. False: it cannot be sent now."""

Numbers = npt.NDArray[np.int64]

_NO_VERSION = -1


class _Feed:
    """The feed of one space to one matcher."""

    __slots__ = (
        "acked",
        "acked_before",
        "announced",
        "epoch",
        "is_released",
        "is_unknown",
        "needed",
        "progress_at",
        "queue",
        "released_sent",
        "sent",
        "sequence",
        "shrink_at",
        "target",
        "version",
    )  # fmt: skip

    def __init__(self, epoch: int, dimensions: int) -> None:
        self.epoch = epoch
        self.sequence = 0  # of the next step
        self.acked = -1
        self.acked_before = -1
        self.progress_at = math.inf  # of the last answer, or the last time nothing was unanswered
        self.version = _NO_VERSION
        self.needed: Cover = nothing(dimensions)  # by the segment tables
        self.target: Cover = nothing(dimensions)  # the cover that the sent boxes are for
        self.announced: Cover = nothing(dimensions)
        self.shrink_at = math.inf
        self.sent = np.zeros(0, np.bool_)  # by number: boxes that the matcher has
        self.queue: dict[int, None] = {}  # numbers of boxes that may have to be sent or removed
        self.is_unknown = False
        self.is_released = False
        self.released_sent = False

    @property
    def is_idle(self) -> bool:
        """The matcher needs nothing of the space and has nothing of it."""
        return is_nothing(self.target) and is_nothing(self.announced) and not self.sent.any()

    def is_stuck(self, now: float) -> bool:
        """Has no answer come for too long?"""
        if self.acked == self.sequence - 1 or self.acked != self.acked_before:
            self.acked_before = self.acked
            self.progress_at = now
        return now - self.progress_at > PEER_STALL_SECONDS_MAX

    @property
    def is_complete(self) -> bool:
        """The matcher has acknowledged all boxes that it needs."""
        return self.is_unknown or (
            contains(self.announced, self.needed)
            and not self.queue
            and self.acked == self.sequence - 1
        )


class Feeds:
    """All feeds of one broker."""

    def __init__(
        self, layouts: Mapping[str, Layout], directory: MatcherDirectory, life: int, send: Send
    ) -> None:
        self.life = life
        self.own_boxes = {space: OwnBoxes(layout) for space, layout in layouts.items()}
        self._directory = directory
        self._send = send
        self._feeds: dict[tuple[str, str], _Feed] = {}
        self._up: set[str] = set()
        self._epoch = 0
        self._changes_seen = -1

    # Our boxes ------------------------------------------------------------------------------------

    def put(self, space: str, number: int, lows: Sequence[float], highs: Sequence[float]) -> None:
        self.own_boxes[space].put(number, lows, highs)
        self._enqueue(space, [number])

    def put_many(self, space: str, numbers: Numbers, lows: Floats, highs: Floats) -> None:
        self.own_boxes[space].put_many(numbers, lows, highs)
        self._enqueue(space, numbers.tolist())

    def discard(self, space: str, number: int) -> None:
        self.own_boxes[space].discard(number)
        self._enqueue(space, [number])

    def _enqueue(self, space: str, numbers: list[int]) -> None:
        for (_, fed), feed in self._feeds.items():
            if fed == space:
                feed.queue.update(dict.fromkeys(numbers))

    # Matchers -------------------------------------------------------------------------------------

    def matcher_is_up(self, name: str) -> None:
        """Start new feeds on a new connection."""
        self._up.add(name)
        for space in self.own_boxes:
            self._begin(name, space)

    def matcher_is_down(self, name: str) -> None:
        self._up.discard(name)
        for space in self.own_boxes:
            self._feeds.pop((name, space), None)

    def _begin(self, name: str, space: str) -> None:
        self._epoch += 1
        layout = self.own_boxes[space].layout
        self._feeds[name, space] = _Feed(self._epoch, layout.searchable)
        self._changes_seen = -1

    def answered(self, name: str, body: bytes) -> None:
        """Handle FEED_REPLY."""
        taken = decoded(feed_reply_decoder, body)
        feed = self._feeds.get((name, taken.space))
        if feed is None or taken.epoch != feed.epoch:
            return
        if taken.is_lost:
            if taken.life > self.life:
                self.outlive(taken.life)
            else:
                self._begin(name, taken.space)
        elif taken.is_unknown:
            feed.is_unknown = True
        elif taken.life == self.life:
            feed.acked = max(feed.acked, min(taken.sequence, feed.sequence - 1))

    def outlive(self, life: int) -> None:
        """Continue as a life later than `life`, which others know: our clock went back."""
        if life >= self.life:
            self.life = life + 1
            for name in self._up:
                for space in self.own_boxes:
                    self._begin(name, space)

    # Time -----------------------------------------------------------------------------------------

    def flush(self, now: float) -> None:
        """Send what has changed. Call it at the end of a turn, and regularly."""
        if self._changes_seen != self._directory.changes:
            self._changes_seen = self._directory.changes
            for (name, space), feed in self._feeds.items():
                self._retarget(space, feed, self._directory.cover(space, name), now)
        released = self._released()
        for (name, space), feed in list(self._feeds.items()):
            if feed.shrink_at <= now:
                self._shrink(space, feed)
            feed.is_released = name in released
            if feed.is_stuck(now):
                self._begin(name, space)
            else:
                self._send_steps(name, space, feed)

    def _retarget(self, space: str, feed: _Feed, needed: Cover, now: float) -> None:
        if needed == feed.needed:
            return
        feed.needed = needed
        grown = union(feed.target, needed)
        if grown != feed.target:
            feed.target = grown
            own_boxes = self.own_boxes[space]
            numbers = np.flatnonzero(own_boxes.exists)
            held = own_boxes.is_covered(numbers, grown) & ~_sent(feed, numbers)
            feed.queue.update(dict.fromkeys(numbers[held].tolist()))
        feed.shrink_at = math.inf if feed.target == needed else now + FEED_NARROW_SECONDS

    def _shrink(self, space: str, feed: _Feed) -> None:
        feed.shrink_at = math.inf
        feed.target = feed.needed
        own_boxes = self.own_boxes[space]
        numbers = own_boxes.existing(np.flatnonzero(feed.sent))
        gone = numbers[~own_boxes.is_covered(numbers, feed.target)]
        feed.queue.update(dict.fromkeys(gone.tolist()))

    def _released(self) -> set[str]:
        """Return the leaving matchers that need not stay for us."""
        leaving = set(self._directory.leaving())
        if not leaving:
            return leaving
        others = (feed for (name, _), feed in self._feeds.items() if name not in leaving)
        return leaving if all(feed.is_complete for feed in others) else set()

    # Steps ----------------------------------------------------------------------------------------

    def _send_steps(self, name: str, space: str, feed: _Feed) -> None:
        own_boxes = self.own_boxes[space]
        if feed.is_unknown:
            return
        if feed.is_idle:
            feed.queue.clear()
            return
        while feed.sequence - feed.acked <= FEED_FRAMES_MAX and self._has_news(own_boxes, feed):
            if not self._send(name, FEED, encode(self._step(space, own_boxes, feed))):
                self._begin(name, space)
                return

    def _has_news(self, own_boxes: OwnBoxes, feed: _Feed) -> bool:
        return (
            bool(feed.queue)
            or feed.announced != feed.target
            or feed.version != own_boxes.version
            or (feed.is_released and not feed.released_sent)
        )

    def _step(self, space: str, own_boxes: OwnBoxes, feed: _Feed) -> FeedStep:
        cover: Cover | None = None
        sure = intersection(feed.announced, feed.target)
        if sure != feed.announced:
            cover = sure  # the cover shrinks before its boxes are removed
        put, dropped = self._next_boxes(own_boxes, feed)
        version = None
        if not feed.queue:
            version = feed.version = own_boxes.version
            if feed.target != feed.announced:
                cover = feed.target
        if cover is not None:
            feed.announced = cover
        feed.released_sent = feed.is_released
        edges = np.stack((own_boxes.lows[put], own_boxes.highs[put]), axis=1)
        body = FeedStep(
            space,
            self.life,
            feed.epoch,
            feed.sequence,
            version,
            None if cover is None else [[(low, high) for low, high in ranges] for ranges in cover],
            put.astype("<u4").tobytes(),
            edges.astype("<f8").tobytes(),
            dropped.astype("<u4").tobytes(),
            feed.is_released,
        )
        feed.sequence += 1
        return body

    def _next_boxes(self, own_boxes: OwnBoxes, feed: _Feed) -> tuple[Numbers, Numbers]:
        """Return the boxes to add at the matcher, and those to remove there."""
        numbers = np.array(_take(feed.queue, FEED_FRAME_BOXES_MAX), np.int64)
        if len(feed.sent) < len(own_boxes.exists):
            more = len(own_boxes.exists) - len(feed.sent)
            feed.sent = np.concatenate((feed.sent, np.zeros(more, np.bool_)))
        there = numbers[own_boxes.exists[numbers]]
        put = there[own_boxes.is_covered(there, feed.target)]
        was_sent = numbers[feed.sent[numbers]]
        feed.sent[numbers] = False
        feed.sent[put] = True
        return put, was_sent[~feed.sent[was_sent]]


def _sent(feed: _Feed, numbers: Numbers) -> npt.NDArray[np.bool_]:
    sent = np.zeros(len(numbers), np.bool_)
    known = numbers < len(feed.sent)
    sent[known] = feed.sent[numbers[known]]
    return sent


def _take(queue: dict[int, None], count: int) -> list[int]:
    taken = list(islice(queue, count))
    for number in taken:
        del queue[number]
    return taken
