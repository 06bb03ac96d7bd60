"""A broker on the virtual clock, as far as matchers see it: boxes, publications, verdicts. Pure.

Everything else of a broker is left out: its clients are `subscribe` and `publish`, and what one
broker passes on to another comes in order, also to one that is away for a while.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.cluster.gossip import Event, Presence
from dovetail.matcher.broker_side import Front
from dovetail.matcher.publisher_order import Lines, Place
from dovetail.matcher.question_batch import Numbers, Verdict
from dovetail.matcher.segment_tables import MATCHER
from dovetail.sim.matcher_node import BROKER

if TYPE_CHECKING:
    from dovetail.sim.matching_world import MatchingWorld

TURN_SECONDS = 0.02
_NEVER = 1e18


class Published:
    """A publication, and what became of it."""

    __slots__ = (
        "at",
        "broad",
        "judged_at",
        "life",
        "number",
        "origin",
        "released_at",
        "values",
        "verdict",
    )

    def __init__(
        self, number: int, origin: str, life: int, values: Sequence[float], at: float
    ) -> None:
        self.number = number
        self.origin = origin
        self.life = life
        self.values = tuple(values)
        self.at = at
        self.verdict: Verdict[Place[Published]] | None = None
        self.judged_at: float | None = None
        """It is known who gets it."""
        self.released_at: float | None = None
        """And all that its publisher published before it has gone on, too."""
        self.broad = 0
        """Brokers that had to look through all their boxes."""


class Subscribed:
    """A box of a client: its borders, and when it was there."""

    __slots__ = ("broker", "ended_at", "highs", "known_at", "lows", "number")

    def __init__(self, broker: str, lows: Sequence[float], highs: Sequence[float]) -> None:
        self.broker = broker
        self.lows = tuple(lows)
        self.highs = tuple(highs)
        self.number = -1
        self.known_at: float | None = None
        """Its client has SUBACK, and every broker knows of it."""
        self.ended_at: float | None = None


class Delivery(NamedTuple):
    published: Published
    subscribed: Subscribed


class BrokerNode:
    """One life of a broker."""

    def __init__(self, world: "MatchingWorld", name: str, met: list[str]) -> None:
        self.name = name
        self._world = world
        world.gossip.start(name, met)
        self.node = world.gossip.nodes[name]
        self.front: Front[Place[Published]] = Front(
            name,
            world.layouts,
            self.node.gossip.table.own.incarnation,
            self._send,
            world.random_of(name),
            policy=world.policy,
            question_seconds=world.question_seconds,
            asking_seconds=world.asking_seconds,
            is_listing=True,  # as the paper's matchers do
        )
        self.boxes: dict[int, Subscribed] = {}
        self.lines: Lines[Published] = Lines(world.order_waiting_max)
        self.refused = 0
        """Publications that found the line of their publisher full."""
        world.links.attach(self)
        self.node.gossip.put(BROKER, b"1")
        world.clock.after(world.random.random() * TURN_SECONDS, self._turn_again)

    @property
    def is_running(self) -> bool:
        return self.node.is_running

    def crash(self) -> None:
        self.node.stop()
        self._world.links.detach(self)

    # Clients --------------------------------------------------------------------------------------

    def subscribe(self, boxes: Sequence[Subscribed]) -> None:
        space, ledger = self._world.space, self.front.feeding.ledgers[self._world.space]
        numbers = [ledger.free_number()] if len(boxes) == 1 else self._numbers(len(boxes))
        for number, box in zip(numbers, boxes, strict=True):
            box.number = number
            self.boxes[number] = box
        self.front.put_many(
            space,
            np.array(numbers, np.int64),
            np.array([box.lows for box in boxes], float),
            np.array([box.highs for box in boxes], float),
        )
        self.front.when_known(_NEVER, lambda: self._known(boxes))
        self.turn()

    def _numbers(self, count: int) -> list[int]:
        first = len(self.front.feeding.ledgers[self._world.space].is_there)
        return list(range(first, first + count))

    def _known(self, boxes: Sequence[Subscribed]) -> None:
        for box in boxes:
            if box.known_at is None:
                box.known_at = self._world.clock.now

    def unsubscribe(self, box: Subscribed) -> None:
        box.ended_at = self._world.clock.now
        del self.boxes[box.number]
        self.front.discard(self._world.space, box.number)

    def publish(self, origin: str, rows: Sequence[Sequence[float]]) -> list[Published]:
        """Some publications of one publisher, at once."""
        found = []
        for values in rows:
            if self.lines.is_full(origin):
                self.refused += 1
                continue
            published = self._world.publication(self, origin, values)
            place = self.lines.take(origin, published)
            self.front.asking.submit(self._world.space, values, self._world.brokers, place)
            found.append(published)
        self.front.asking.flush(self._world.clock.now)
        self._judge()
        return found

    # Time -----------------------------------------------------------------------------------------

    def _turn_again(self) -> None:
        if self.is_running:
            self._world.clock.after(TURN_SECONDS, self._turn_again)
            self._heed()
            self.turn()

    def turn(self) -> None:
        self.front.turn(self._world.clock.now)
        self._judge()

    def _judge(self) -> None:
        for verdict in self.front.asking.take_verdicts():
            place = verdict.tag
            place.value.verdict = verdict
            place.value.judged_at = self._world.clock.now
            place.value.broad = len(verdict.broad)
            for published in self.lines.done(place):
                self._pass_on(published)

    def _pass_on(self, published: Published) -> None:
        published.released_at = self._world.clock.now
        verdict = published.verdict
        assert verdict is not None
        for name in verdict.broad:
            self._world.post(name, published, None)
        for name, numbers in verdict.narrow.items():
            self._world.post(name, published, numbers)

    def deliver(self, published: Published, told: Numbers | None) -> list[Delivery]:
        """To the boxes that it falls in: those that were told, or any."""
        ledger = self.front.feeding.ledgers[self._world.space]
        if told is None or told.life != self.front.life:
            numbers = np.flatnonzero(ledger.is_there)
        else:
            numbers = ledger.held(told.boxes.astype(np.int64))
        inside = self._world.is_inside(
            ledger.lows[numbers], ledger.highs[numbers], published.values
        )
        return [Delivery(published, self.boxes[number]) for number in numbers[inside].tolist()]

    # Others ---------------------------------------------------------------------------------------

    def _heed(self) -> None:
        """What gossip has found out."""
        events, self.node.events = self.node.events, []
        for event in events:
            self._heed_one(event)

    def _heed_one(self, event: Event) -> None:
        name, now = event.name, self._world.clock.now
        state = self.node.gossip.state(name)
        is_alive = event.presence is Presence.ALIVE and state is not None
        record = state.value(MATCHER) if is_alive and state is not None else None
        self.front.matcher_tells(name, record, now)
        if name in self._world.brokers:
            self.front.announcing.peer_is_live(name, is_alive)
        if is_alive and (record is not None or name in self._world.brokers):
            self._world.links.dial(self, name)

    def _send(self, name: str, kind: int, body: bytes) -> bool:
        return self._world.links.send(self, name, kind, body)

    def connected(self, name: str) -> None:
        if name in self._world.brokers:
            self.front.announcing.peer_is_up(name)
        else:
            self.front.matcher_is_up(name)
        self.turn()

    def lost(self, name: str) -> None:
        if name in self._world.brokers:
            self.front.announcing.peer_is_down(name)
        else:
            self.front.matcher_is_down(name, self._world.clock.now)
        self._judge()

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None:
        self.front.receive(name, kind, body, answer)

    def answered(self, name: str, kind: int, body: bytes) -> None:
        self.front.answered(name, kind, body, self._world.clock.now)
        self._judge()
