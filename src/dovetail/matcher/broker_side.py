"""The broker's side of matching, assembled: feeds, announcements, questions and directory. Pure.

    boxes change    ->  feeds (to matchers)    announcer (to brokers)
    publications    ->  questions  ->  verdicts
    gossip          ->  directory

A broker sends on connections that it opened, and answers come back on them. The caller calls `turn`
at the end of each turn of the loop and some twenty times a second, and takes the verdicts.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Generic

import numpy as np
import numpy.typing as npt

from dovetail.attributes.policies import Policy, adaptive
from dovetail.errors import PeerError
from dovetail.matcher.announcement import BoxAnnouncer, BoxDirectory
from dovetail.matcher.feed import Feeds, Send
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import ASKING_SECONDS_MAX, MATCHER_ANSWER_SECONDS_MAX
from dovetail.matcher.matcher_messages import (
    ANNOUNCEMENT,
    ANNOUNCEMENT_ACK,
    ANSWER,
    FEED_REPLY,
    LOADS,
    encode,
)
from dovetail.matcher.question_batch import Tag
from dovetail.matcher.questions import MatcherQuestions
from dovetail.matcher.segment_tables import MatcherDirectory, decode_record

Answer = Callable[[int, bytes], object]


class BrokerSide(Generic[Tag]):
    """Matching in one life of a broker."""

    def __init__(
        self,
        name: str,
        layouts: Mapping[str, Layout],
        life: int,
        send: Send,
        random: Random,
        *,
        policy: Policy = adaptive,
        policies: Mapping[str, Policy] | None = None,
        question_seconds: float = MATCHER_ANSWER_SECONDS_MAX,
        asking_seconds: float = ASKING_SECONDS_MAX,
        is_listing: bool = False,
    ) -> None:
        """With `is_listing`, verdicts have the numbers of boxes."""
        self.name = name
        self.directory = MatcherDirectory(layouts)
        self.announced = BoxDirectory()
        self.feeds = Feeds(layouts, self.directory, life, send)
        self.announcer = BoxAnnouncer(life, send)
        self.questions: MatcherQuestions[Tag] = MatcherQuestions(
            self.directory,
            self.announced,
            send,
            random,
            policy=policy,
            policies=policies,
            question_seconds=question_seconds,
            asking_seconds=asking_seconds,
            is_listing=is_listing,
        )
        self._announce(layouts)

    @property
    def life(self) -> int:
        return self.feeds.life

    # Our boxes ------------------------------------------------------------------------------------

    def put(self, space: str, number: int, lows: Sequence[float], highs: Sequence[float]) -> None:
        self.feeds.put(space, number, lows, highs)
        self._announce([space])

    def put_many(
        self, space: str, numbers: npt.NDArray[np.int64], lows: Floats, highs: Floats
    ) -> None:
        self.feeds.put_many(space, numbers, lows, highs)
        self._announce([space])

    def discard(self, space: str, number: int) -> None:
        self.feeds.discard(space, number)
        self._announce([space])

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Call `act` when every live broker knows our boxes as they are, or at the deadline."""
        self.announcer.when_known(deadline, act)

    def _announce(self, spaces: Sequence[str] | Mapping[str, Layout]) -> None:
        own_boxes = self.feeds.own_boxes
        self.announcer.set(
            {
                space: (own_boxes[space].version, own_boxes[space].announced_kinds())
                for space in spaces
            }
        )
        self.announced.put(self.name, self.announcer.body())

    # Others ---------------------------------------------------------------------------------------

    def matcher_is_up(self, name: str) -> None:
        self.feeds.matcher_is_up(name)
        self.questions.matcher_is_up(name)

    def matcher_is_down(self, name: str, now: float) -> None:
        self.feeds.matcher_is_down(name)
        self.questions.matcher_is_gone(name, now)

    def receive_record(self, name: str, record: bytes | None, now: float) -> None:
        """Take a matcher's record from gossip. None: it is dead, has left, or is no matcher."""
        matcher_record = None if record is None else decode_record(record)
        if matcher_record is not None:
            self.directory.put(name, matcher_record)
        elif name in self.directory.records:
            self.directory.gone(name)
            self.questions.matcher_is_gone(name, now)

    def forget(self, name: str) -> None:
        """Forget a broker that will not come back."""
        self.announced.forget(name)
        self.announcer.forget(name)

    # Frames ---------------------------------------------------------------------------------------

    def receive(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        """Handle a frame on a connection that another broker opened."""
        if kind != ANNOUNCEMENT:
            raise PeerError(f"a frame of kind {kind} for a matcher, and this is a broker")
        answer(ANNOUNCEMENT_ACK, encode(self.announced.receive(name, body)))

    def answered(self, name: str, kind: int, body: bytes, now: float) -> None:
        """Handle a frame on a connection that we opened."""
        if kind == ANSWER:
            self.questions.answered(name, body)
        elif kind == FEED_REPLY:
            self.feeds.answered(name, body)
        elif kind == LOADS:
            self.questions.receive_loads(name, body, now)
        elif kind == ANNOUNCEMENT_ACK:
            life = self.announcer.answered(name, body)
            if life is not None:
                self.feeds.outlive(life)
        else:
            raise PeerError(f"a frame of kind {kind} as an answer")

    # Time -----------------------------------------------------------------------------------------

    def turn(self, now: float) -> int:
        """Send what has changed. Return how many waits for announcements reached their deadline."""
        if self.announcer.life != self.life:
            self.announcer.outlive(self.life)
            self.announced.put(self.name, self.announcer.body())
        self.announcer.flush()
        self.feeds.flush(now)
        self.questions.flush(now)
        self.questions.tick(now)
        return self.announcer.tick(now)
