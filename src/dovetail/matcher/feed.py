"""A broker's boxes go to the matchers that answer for them. The broker's side; pure.

    broker                                            matcher
      | -- FEED 0: all that was here is void -------->  |   when a connection comes about
      | -- FEED 1, 2...: boxes ---------------------->  |   some at a time
      | -- FEED n: boxes; complete at version v,        |
      |            for these ranges ----------------->  |   from now on it can answer
      | <- TAKEN: so far -----------------------------  |
      | -- FEED: boxes that came or went; version w ->  |   as boxes change
      | <- TAKEN, or lost: what is between is missing   |   then all of it once more

Rules:

- A feed has an epoch, which rises each time that it begins anew, and steps that follow each other.
  So what comes late over a connection that is no more is told apart, in any life of either side.
- The *cover* is what a feed is complete for: every box that is narrow on a dimension and overlaps
  the cover there is at the matcher, as of the version. It widens after the boxes that it needs have
  gone, and narrows before those go that it does not need. Both are in the order of the steps.
- A matcher whose part of a space shrinks keeps the rest for FEED_NARROW_SECONDS.
- Every change of any box is told to every matcher, as a version at least: a matcher that knows a
  lower one than it is asked for is unsure.
- So many steps are on their way and no more. What changes meanwhile is sent as it is by then. A
  feed of which a step could not be sent, or is not answered for long, begins anew.
- A matcher that leaves is released when all others have what is theirs next.
- BlueDove's copies at clockwise neighbours are not fed: nobody would ask there. Where all
  candidates of a point are gone, each broker looks for itself.
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
from dovetail.matcher.matcher_messages import FEED, FeedBody, decoded, encode, taken_decoder
from dovetail.matcher.own_boxes import Ledger
from dovetail.matcher.segment_tables import View

Send = Callable[[str, int, bytes], bool]
"""To a node, a frame of this kind; False if it cannot go now."""

Numbers = npt.NDArray[np.int64]

_NO_VERSION = -1


class _Feed:
    """One space at one matcher."""

    __slots__ = (
        "acked", "acked_before", "epoch", "given", "hold", "is_released", "is_unknown", "moved_at",
        "narrow_at", "needed", "queue", "released_sent", "sequence", "told", "version",
    )  # fmt: skip

    def __init__(self, epoch: int, dimensions: int) -> None:
        self.epoch = epoch
        self.sequence = 0  # of the next step
        self.acked = -1
        self.acked_before = -1
        self.moved_at = math.inf  # when there was an answer, or nothing to be answered
        self.version = _NO_VERSION
        self.needed: Cover = nothing(dimensions)  # by the tables
        self.hold: Cover = nothing(dimensions)  # by which boxes are sent
        self.told: Cover = nothing(dimensions)
        self.narrow_at = math.inf
        self.given = np.zeros(0, np.bool_)  # by number: boxes that have been sent
        self.queue: dict[int, None] = {}  # numbers that have to be looked at
        self.is_unknown = False
        self.is_released = False
        self.released_sent = False

    @property
    def is_idle(self) -> bool:
        """Nothing of the space is the matcher's, and nothing is there any more."""
        return is_nothing(self.hold) and is_nothing(self.told) and not self.given.any()

    def is_stuck(self, now: float) -> bool:
        """Has an answer been missing for too long?"""
        if self.acked == self.sequence - 1 or self.acked != self.acked_before:
            self.acked_before = self.acked
            self.moved_at = now
        return now - self.moved_at > PEER_STALL_SECONDS_MAX

    @property
    def is_settled(self) -> bool:
        """It has all that it needs, and has said so."""
        return self.is_unknown or (
            contains(self.told, self.needed) and not self.queue and self.acked == self.sequence - 1
        )


class Feeding:
    """All feeds of one broker."""

    def __init__(self, layouts: Mapping[str, Layout], view: View, life: int, send: Send) -> None:
        self.life = life
        self.ledgers = {space: Ledger(layout) for space, layout in layouts.items()}
        self._view = view
        self._send = send
        self._feeds: dict[tuple[str, str], _Feed] = {}
        self._up: set[str] = set()
        self._epoch = 0
        self._changes_seen = -1

    # Our boxes ------------------------------------------------------------------------------------

    def put(self, space: str, number: int, lows: Sequence[float], highs: Sequence[float]) -> None:
        self.ledgers[space].put(number, lows, highs)
        self._look_at(space, [number])

    def put_many(self, space: str, numbers: Numbers, lows: Floats, highs: Floats) -> None:
        self.ledgers[space].put_many(numbers, lows, highs)
        self._look_at(space, numbers.tolist())

    def discard(self, space: str, number: int) -> None:
        self.ledgers[space].discard(number)
        self._look_at(space, [number])

    def _look_at(self, space: str, numbers: list[int]) -> None:
        for (_, fed), feed in self._feeds.items():
            if fed == space:
                feed.queue.update(dict.fromkeys(numbers))

    # Matchers -------------------------------------------------------------------------------------

    def matcher_is_up(self, name: str) -> None:
        """There is a connection to it, and nothing of an earlier one counts."""
        self._up.add(name)
        for space in self.ledgers:
            self._begin(name, space)

    def matcher_is_down(self, name: str) -> None:
        self._up.discard(name)
        for space in self.ledgers:
            self._feeds.pop((name, space), None)

    def _begin(self, name: str, space: str) -> None:
        self._epoch += 1
        layout = self.ledgers[space].layout
        self._feeds[name, space] = _Feed(self._epoch, layout.searchable)
        self._changes_seen = -1

    def answered(self, name: str, body: bytes) -> None:
        """TAKEN."""
        taken = decoded(taken_decoder, body)
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
        """Others know a later life of ours: our clock went back. Ours is later from now on."""
        if life >= self.life:
            self.life = life + 1
            for name in self._up:
                for space in self.ledgers:
                    self._begin(name, space)

    # Time -----------------------------------------------------------------------------------------

    def flush(self, now: float) -> None:
        """What has changed goes out: at the end of a turn, and now and then."""
        if self._changes_seen != self._view.changes:
            self._changes_seen = self._view.changes
            for (name, space), feed in self._feeds.items():
                self._aim(space, feed, self._view.cover(space, name), now)
        released = self._released()
        for (name, space), feed in list(self._feeds.items()):
            if feed.narrow_at <= now:
                self._narrow(space, feed)
            feed.is_released = name in released
            if feed.is_stuck(now):
                self._begin(name, space)
            else:
                self._pump(name, space, feed)

    def _aim(self, space: str, feed: _Feed, needed: Cover, now: float) -> None:
        if needed == feed.needed:
            return
        feed.needed = needed
        grown = union(feed.hold, needed)
        if grown != feed.hold:
            feed.hold = grown
            ledger = self.ledgers[space]
            numbers = np.flatnonzero(ledger.is_there)
            held = ledger.is_held(numbers, grown) & ~_given(feed, numbers)
            feed.queue.update(dict.fromkeys(numbers[held].tolist()))
        feed.narrow_at = math.inf if feed.hold == needed else now + FEED_NARROW_SECONDS

    def _narrow(self, space: str, feed: _Feed) -> None:
        feed.narrow_at = math.inf
        feed.hold = feed.needed
        ledger = self.ledgers[space]
        numbers = ledger.held(np.flatnonzero(feed.given))
        gone = numbers[~ledger.is_held(numbers, feed.hold)]
        feed.queue.update(dict.fromkeys(gone.tolist()))

    def _released(self) -> set[str]:
        """Who leaves, and need not stay for us."""
        leaving = set(self._view.leaving())
        if not leaving:
            return leaving
        others = (feed for (name, _), feed in self._feeds.items() if name not in leaving)
        return leaving if all(feed.is_settled for feed in others) else set()

    # Steps ----------------------------------------------------------------------------------------

    def _pump(self, name: str, space: str, feed: _Feed) -> None:
        ledger = self.ledgers[space]
        if feed.is_unknown:
            return
        if feed.is_idle:
            feed.queue.clear()
            return
        while feed.sequence - feed.acked <= FEED_FRAMES_MAX and self._has_news(ledger, feed):
            if not self._send(name, FEED, encode(self._step(space, ledger, feed))):
                self._begin(name, space)
                return

    def _has_news(self, ledger: Ledger, feed: _Feed) -> bool:
        return (
            bool(feed.queue)
            or feed.told != feed.hold
            or feed.version != ledger.version
            or (feed.is_released and not feed.released_sent)
        )

    def _step(self, space: str, ledger: Ledger, feed: _Feed) -> FeedBody:
        cover: Cover | None = None
        sure = intersection(feed.told, feed.hold)
        if sure != feed.told:
            cover = sure  # what is given up is given up before its boxes go
        put, dropped = self._next_boxes(ledger, feed)
        version = None
        if not feed.queue:
            version = feed.version = ledger.version
            if feed.hold != feed.told:
                cover = feed.hold
        if cover is not None:
            feed.told = cover
        feed.released_sent = feed.is_released
        edges = np.stack((ledger.lows[put], ledger.highs[put]), axis=1)
        body = FeedBody(
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

    def _next_boxes(self, ledger: Ledger, feed: _Feed) -> tuple[Numbers, Numbers]:
        """Boxes that the matcher needs, and others that it has."""
        numbers = np.array(_take(feed.queue, FEED_FRAME_BOXES_MAX), np.int64)
        if len(feed.given) < len(ledger.is_there):
            more = len(ledger.is_there) - len(feed.given)
            feed.given = np.concatenate((feed.given, np.zeros(more, np.bool_)))
        there = numbers[ledger.is_there[numbers]]
        put = there[ledger.is_held(there, feed.hold)]
        was_given = numbers[feed.given[numbers]]
        feed.given[numbers] = False
        feed.given[put] = True
        return put, was_given[~feed.given[was_given]]


def _given(feed: _Feed, numbers: Numbers) -> npt.NDArray[np.bool_]:
    given = np.zeros(len(numbers), np.bool_)
    known = numbers < len(feed.given)
    given[known] = feed.given[numbers[known]]
    return given


def _take(queue: dict[int, None], count: int) -> list[int]:
    taken = list(islice(queue, count))
    for number in taken:
        del queue[number]
    return taken
