"""After every step of a feed the matcher has all that its cover promises."""

from collections import deque
from random import Random

import numpy as np
import pytest

from dovetail.attributes.conjunctions import Range
from dovetail.attributes.partition import Bounds
from dovetail.cluster.limits import PEER_STALL_SECONDS_MAX
from dovetail.errors import PeerError
from dovetail.matcher import feed
from dovetail.matcher.feed import Feeds
from dovetail.matcher.held_boxes import HeldBoxes
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import FEED_FRAMES_MAX, FEED_NARROW_SECONDS
from dovetail.matcher.matcher_messages import (
    FEED,
    FeedReply,
    decoded,
    encode,
    feed_decoder,
    feed_reply_decoder,
)
from dovetail.matcher.segment_tables import MatcherDirectory, MatcherRecord, Phase

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SPACE = LAYOUT.id


class FeedHarness:
    """The feeds of a broker, and the boxes of a matcher `m`."""

    def __init__(self, life: int = 1) -> None:
        self.directory = MatcherDirectory({SPACE: LAYOUT})
        self.feeds = Feeds({SPACE: LAYOUT}, self.directory, life, self.send)
        self.matcher = HeldBoxes(LAYOUT)
        self.frames: deque[bytes] = deque()
        self.answers: deque[bytes] = deque()
        self.came_with: dict[int, int] = {}
        self.is_connected = False

    def send(self, name: str, kind: int, body: bytes) -> bool:
        assert (name, kind) == ("m", FEED)
        if self.is_connected:
            self.frames.append(body)
        return self.is_connected

    def connect(self) -> None:
        self.is_connected = True
        self.frames.clear()
        self.answers.clear()
        self.feeds.matcher_is_up("m")

    def disconnect(self) -> None:
        self.is_connected = False
        self.feeds.matcher_is_down("m")

    def put(self, number: int, low: float, width: float) -> None:
        self.feeds.put(SPACE, number, (low, low / 10), (low + width, (low + width) / 10))
        self.came_with[number] = self.feeds.own_boxes[SPACE].version

    def discard(self, number: int) -> None:
        self.feeds.discard(SPACE, number)
        del self.came_with[number]

    def carry(self) -> FeedReply:
        """One frame, and its answer."""
        taken = self.matcher.take("b", decoded(feed_decoder, self.frames.popleft()))
        self.answers.append(encode(taken))
        self.check()
        return taken

    def settle(self, now: float) -> None:
        self.feeds.flush(now)
        while self.frames or self.answers:
            while self.frames:
                self.carry()
            while self.answers:
                self.feeds.answered("m", self.answers.popleft())
            self.feeds.flush(now)

    def check(self) -> None:
        held = self.matcher._feeds.get("b")
        if held is None:
            return
        own_boxes = self.feeds.own_boxes[SPACE]
        numbers = np.array(
            [number for number, came in self.came_with.items() if came <= held.version], np.int64
        )
        along = LAYOUT.along(
            own_boxes.lows[numbers], own_boxes.highs[numbers], own_boxes.kinds[numbers], held.cover
        )
        if held.life == self.feeds.life:
            assert set(numbers[along != 0].tolist()) <= set(held.slots)
        lows, highs = self.matcher._index.boxes(list(held.slots.values()))
        along = LAYOUT.along(lows, highs, LAYOUT.kinds(lows, highs), held.cover)
        counted = [np.count_nonzero(along >> place & 1) for place in range(LAYOUT.searchable)]
        assert self.matcher.boxes_along() == tuple(counted)

    def serve(self, name: str, *tokens: float, phase: Phase = Phase.SERVING) -> None:
        self.directory.put(name, MatcherRecord(phase, {SPACE: tokens}))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "FEED_FRAME_BOXES_MAX", 3)


class RandomFaults:
    """Random events at a broker and its matcher."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.pair = FeedHarness()
        self.pair.serve("m", 0.0, 0.0)
        self.pair.connect()
        self.deeds = [
            *[self.put] * 12,
            *[self.discard] * 4,
            *[self.carry] * 8,
            *[self.answer] * 8,
            *[self.flush] * 5,
            *[self.wait] * 2,
            *[self.serve] * 2,
            self.reconnect,
            self.lose,
        ]

    def put(self) -> None:
        low, width = self.random.uniform(-10, 100), self.random.uniform(0, 60)
        self.pair.put(self.random.randrange(40), low, width)

    def discard(self) -> None:
        if self.pair.came_with:
            self.pair.discard(self.random.choice(list(self.pair.came_with)))

    def carry(self) -> None:
        if self.pair.frames:
            self.pair.carry()

    def answer(self) -> None:
        if self.pair.answers:
            self.pair.feeds.answered("m", self.pair.answers.popleft())

    def flush(self) -> None:
        self.pair.feeds.flush(self.now)

    def wait(self) -> None:
        self.now += self.random.choice([1, FEED_NARROW_SECONDS])

    def serve(self) -> None:
        name = self.random.choice(["m", "m", "n", "o", "p"])
        tokens = self.random.uniform(0, 100), self.random.uniform(0, 10)
        self.pair.serve(name, *tokens, phase=self.random.choice(list(Phase)))

    def reconnect(self) -> None:
        self.pair.disconnect()
        self.pair.connect()

    def lose(self) -> None:
        """As a connection that breaks unseen would: what comes next does not follow."""
        if self.pair.frames:
            self.pair.frames.popleft()


@pytest.mark.parametrize("seed", range(15))
def test_all_that_is_promised_is_there(seed: int) -> None:
    havoc = RandomFaults(seed)
    pair = havoc.pair
    for _ in range(400):
        havoc.random.choice(havoc.deeds)()
    pair.serve("m", 20.0, 2.0)
    havoc.put()
    pair.settle(havoc.now + 1)
    pair.settle(havoc.now + 1 + FEED_NARROW_SECONDS)
    # And when it is quiet it is what the tables say, and no more.
    held = pair.matcher._feeds["b"]
    own_boxes = pair.feeds.own_boxes[SPACE]
    numbers = np.flatnonzero(own_boxes.exists)
    cover = pair.directory.cover(SPACE, "m")
    along = LAYOUT.along(
        own_boxes.lows[numbers], own_boxes.highs[numbers], own_boxes.kinds[numbers], cover
    )
    assert held.version == own_boxes.version
    assert held.cover == cover
    assert set(held.slots) == set(numbers[along != 0].tolist())
    assert len(pair.matcher) == len(held.slots)


def test_widened_after_its_boxes_and_narrowed_before() -> None:
    pair = FeedHarness()
    for number in range(10):
        pair.put(number, number * 10, 5)
    pair.serve("m", 0.0, 0.0)
    pair.serve("n", 50.0, 5.0)
    pair.connect()
    pair.settle(0.0)
    held = pair.matcher._feeds["b"]
    assert set(held.slots) == {0, 1, 2, 3, 4}
    pair.directory.gone("n")
    pair.feeds.flush(1.0)
    assert len(pair.frames) == 2
    pair.carry()
    assert held.cover[0][0].high == 50
    pair.carry()
    assert held.cover[0] == (Range(-np.inf, np.inf),)
    pair.settle(1.0)
    pair.serve("n", 50.0, 5.0)
    pair.settle(2.0)
    assert len(held.slots) == 10  # for those who have not heard of it
    pair.feeds.flush(2.0 + FEED_NARROW_SECONDS)
    pair.carry()
    assert held.cover[0][0].high == 50
    assert len(held.slots) == 7
    pair.settle(2.0 + FEED_NARROW_SECONDS)
    assert len(held.slots) == 5


def test_who_has_nothing_any_more_and_comes_back_has_nothing_old() -> None:
    pair = FeedHarness()
    numbers = range(4 * FEED_FRAMES_MAX)  # more than are on their way at once
    for number in numbers:
        pair.put(number, 10, 5)
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.settle(0.0)
    pair.serve("m", 0.0, 0.0, phase=Phase.AWAY)
    pair.settle(1.0)
    pair.settle(1.0 + FEED_NARROW_SECONDS)
    assert len(pair.matcher) == 0
    for number in numbers:
        pair.put(number, 70, 5)  # nobody is told
    pair.feeds.flush(20.0)
    assert not pair.frames
    pair.serve("m", 0.0, 0.0)
    pair.settle(20.0)
    held = pair.matcher._feeds["b"]
    lows, _ = pair.matcher._index.boxes(list(held.slots.values()))
    assert lows[:, 0].tolist() == [70.0] * len(numbers)


def test_every_change_is_told_to_everybody() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.serve("n", 50.0, 5.0)
    pair.connect()
    pair.settle(0.0)
    pair.put(0, 90, 1)
    pair.settle(0.0)
    assert pair.matcher._feeds["b"].version == 1
    assert len(pair.matcher) == 0


def test_so_many_steps_are_on_their_way_and_no_more() -> None:
    pair = FeedHarness()
    for number in range(100):
        pair.put(number, 1, 1)
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.feeds.flush(0.0)
    pair.feeds.flush(0.0)
    assert len(pair.frames) == FEED_FRAMES_MAX
    pair.settle(0.0)
    assert len(pair.matcher) == 100


def test_what_does_not_follow_begins_anew() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.put(0, 1, 1)
    pair.feeds.flush(0.0)
    pair.put(1, 1, 1)
    pair.feeds.flush(0.0)
    pair.frames.popleft()
    assert pair.carry().is_lost
    pair.settle(0.0)
    assert set(pair.matcher._feeds["b"].slots) == {0, 1}


def test_what_could_not_be_sent_is_sent_again() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.put(0, 1, 1)
    pair.settle(0.0)
    pair.put(1, 1, 1)
    pair.is_connected = False  # too much waits on the connection, which goes on
    pair.feeds.flush(0.0)
    pair.is_connected = True
    pair.settle(0.0)
    assert set(pair.matcher._feeds["b"].slots) == {0, 1}


def test_an_answer_that_never_comes() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    for number in range(100):
        pair.put(number, 1, 1)
    pair.feeds.flush(0.0)
    while pair.frames:
        pair.carry()
    pair.answers.clear()
    pair.settle(PEER_STALL_SECONDS_MAX)
    assert len(pair.matcher) < 100
    pair.settle(PEER_STALL_SECONDS_MAX + 0.1)
    pair.settle(PEER_STALL_SECONDS_MAX + 0.2)
    assert len(pair.matcher) == 100
    pair.settle(100.0)
    pair.put(100, 1, 1)
    pair.settle(1_000.0)  # having had nothing to do for long is no fault
    assert pair.matcher._feeds["b"].epoch == 2


def test_a_matcher_that_lost_everything_gets_everything() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.put(0, 1, 1)
    pair.settle(0.0)
    pair.disconnect()
    pair.matcher = HeldBoxes(LAYOUT)
    pair.connect()
    pair.settle(1.0)
    assert set(pair.matcher._feeds["b"].slots) == {0}


def test_a_broker_whose_clock_went_back_goes_beyond_its_later_life() -> None:
    later = FeedHarness(life=9)
    later.serve("m", 0.0, 0.0)
    later.connect()
    later.put(0, 1, 1)
    later.settle(0.0)
    pair = FeedHarness(life=3)
    pair.matcher = later.matcher
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.put(5, 1, 1)
    pair.settle(0.0)
    assert pair.feeds.life == 10
    assert set(pair.matcher._feeds["b"].slots) == {5}


def test_a_matcher_without_the_space_is_left_alone() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.feeds.flush(0.0)
    step = decoded(feed_decoder, pair.frames.popleft())
    taken = FeedReply(SPACE, step.life, step.epoch, 0, is_unknown=True)
    pair.feeds.answered("m", encode(taken))
    pair.put(0, 1, 1)
    pair.feeds.flush(0.0)
    assert not pair.frames


def test_who_leaves_is_released_when_others_have_what_it_holds() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0, phase=Phase.LEAVING)
    pair.connect()
    pair.settle(0.0)
    assert pair.matcher.is_released("b")  # there is nobody else to be fed
    other = FeedHarness()
    sent: list[bytes] = []
    pair = FeedHarness()
    pair.feeds = Feeds(
        {SPACE: LAYOUT},
        pair.directory,
        1,
        lambda name, kind, body: (
            pair.send(name, kind, body) if name == "m" else not sent.append(body)  # type: ignore[func-returns-value]
        ),
    )
    pair.serve("m", 0.0, 0.0)
    pair.serve("n", 50.0, 5.0)
    pair.connect()
    pair.feeds.matcher_is_up("n")
    pair.settle(0.0)
    pair.serve("m", 0.0, 0.0, phase=Phase.LEAVING)
    pair.settle(0.0)
    assert not pair.matcher.is_released("b")
    while sent:
        taken = other.matcher.take("b", decoded(feed_decoder, sent.pop(0)))
        pair.feeds.answered("n", encode(taken))
        pair.settle(0.0)
    assert pair.matcher.is_released("b")


@pytest.mark.parametrize("wrong", [b"\xc1", b""])
def test_answers_that_cannot_be_read(wrong: bytes) -> None:
    with pytest.raises(PeerError, match="cannot be read"):
        FeedHarness().feeds.answered("m", wrong)


def test_answers_of_an_earlier_epoch_count_for_nothing() -> None:
    pair = FeedHarness()
    pair.serve("m", 0.0, 0.0)
    pair.connect()
    pair.settle(0.0)
    late = FeedReply(SPACE, 1, 1, 0, is_lost=True)
    pair.connect()
    pair.settle(0.0)
    pair.feeds.answered("m", encode(late))
    pair.feeds.flush(0.0)
    assert not pair.frames
    assert decoded(feed_reply_decoder, encode(late)) == late
