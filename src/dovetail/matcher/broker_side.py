"""A broker's part in the matcher plane, put together: frames come in, matchers come and go. Pure.

    boxes change    ->  feeding (to matchers)    announcing (to brokers)
    publications    ->  asking  ->  verdicts
    gossip          ->  view

A broker sends on connections that it opened, and answers come back on them. Whoever drives this
calls `turn` at the end of a turn, and some twenty times a second, and takes the verdicts.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Generic

import numpy as np
import numpy.typing as npt

from dovetail.attributes.policies import Policy, adaptive
from dovetail.errors import PeerError
from dovetail.matcher.announcement import Announcing, KnownBoxes
from dovetail.matcher.feed import Feeding, Send
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import ASKING_SECONDS_MAX, MATCHER_ANSWER_SECONDS_MAX
from dovetail.matcher.matcher_messages import ANSWERED, BOXES, BOXES_KNOWN, LOADS, TAKEN, encode
from dovetail.matcher.question_batch import Tag
from dovetail.matcher.questions import Asking
from dovetail.matcher.segment_tables import View, decode_record

Answer = Callable[[int, bytes], object]


class Front(Generic[Tag]):
    """One life of a broker."""

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
        """`is_listing`: verdicts have numbers of boxes."""
        self.name = name
        self.view = View(layouts)
        self.known = KnownBoxes()
        self.feeding = Feeding(layouts, self.view, life, send)
        self.announcing = Announcing(life, send)
        self.asking: Asking[Tag] = Asking(
            self.view,
            self.known,
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
        return self.feeding.life

    # Our boxes ------------------------------------------------------------------------------------

    def put(self, space: str, number: int, lows: Sequence[float], highs: Sequence[float]) -> None:
        self.feeding.put(space, number, lows, highs)
        self._announce([space])

    def put_many(
        self, space: str, numbers: npt.NDArray[np.int64], lows: Floats, highs: Floats
    ) -> None:
        self.feeding.put_many(space, numbers, lows, highs)
        self._announce([space])

    def discard(self, space: str, number: int) -> None:
        self.feeding.discard(space, number)
        self._announce([space])

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """When every live broker knows of our boxes as they are, or at the deadline."""
        self.announcing.when_known(deadline, act)

    def _announce(self, spaces: Sequence[str] | Mapping[str, Layout]) -> None:
        ledgers = self.feeding.ledgers
        self.announcing.set(
            {space: (ledgers[space].version, ledgers[space].told_kinds()) for space in spaces}
        )
        self.known.put(self.name, self.announcing.body())

    # Others ---------------------------------------------------------------------------------------

    def matcher_is_up(self, name: str) -> None:
        self.feeding.matcher_is_up(name)
        self.asking.matcher_is_up(name)

    def matcher_is_down(self, name: str, now: float) -> None:
        self.feeding.matcher_is_down(name)
        self.asking.matcher_is_gone(name, now)

    def matcher_tells(self, name: str, record: bytes | None, now: float) -> None:
        """By gossip; None: it is dead, has left, or is no matcher."""
        told = None if record is None else decode_record(record)
        if told is not None:
            self.view.put(name, told)
        elif name in self.view.records:
            self.view.gone(name)
            self.asking.matcher_is_gone(name, now)

    def forget(self, name: str) -> None:
        """A broker that will not come back."""
        self.known.forget(name)
        self.announcing.forget(name)

    # Frames ---------------------------------------------------------------------------------------

    def receive(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        """On a connection that another broker opened."""
        if kind != BOXES:
            raise PeerError(f"a frame of kind {kind} for a matcher, and this is a broker")
        answer(BOXES_KNOWN, encode(self.known.told(name, body)))

    def answered(self, name: str, kind: int, body: bytes, now: float) -> None:
        """On a connection that we opened."""
        if kind == ANSWERED:
            self.asking.answered(name, body)
        elif kind == TAKEN:
            self.feeding.answered(name, body)
        elif kind == LOADS:
            self.asking.told(name, body, now)
        elif kind == BOXES_KNOWN:
            life = self.announcing.answered(name, body)
            if life is not None:
                self.feeding.outlive(life)
        else:
            raise PeerError(f"a frame of kind {kind} as an answer")

    # Time -----------------------------------------------------------------------------------------

    def turn(self, now: float) -> int:
        """What has changed goes out. How many gave up waiting for others to know of boxes."""
        if self.announcing.life != self.life:
            self.announcing.outlive(self.life)
            self.known.put(self.name, self.announcing.body())
        self.announcing.flush()
        self.feeding.flush(now)
        self.asking.flush(now)
        self.asking.tick(now)
        return self.announcing.tick(now)
