"""The part of a broker that matchers see: boxes, publications, verdicts. On a virtual clock. Pure.

The rest of a broker is left out. Its clients are the methods `subscribe` and `publish`. What one
broker forwards to another arrives in order, also after an outage.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.cluster.gossip import Presence, PresenceEvent
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.publisher_order import PublisherOrder, QueuedPublication
from dovetail.matcher.question_batch import BoxNumbers, Verdict
from dovetail.matcher.segment_tables import MATCHER
from dovetail.sim.matcher_node import BROKER

if TYPE_CHECKING:
    from dovetail.sim.matching_cluster import MatchingCluster

TURN_SECONDS = 0.02
_NEVER = 1e18


class PublicationRecord:
    """A publication and its history."""

    __slots__ = (
        "at",
        "judged_at",
        "life",
        "number",
        "origin",
        "released_at",
        "unsure",
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
        self.verdict: Verdict[QueuedPublication[PublicationRecord]] | None = None
        self.judged_at: float | None = None
        """When the broker knew its receivers."""
        self.released_at: float | None = None
        """When it was forwarded, after all earlier publications of its publisher."""
        self.unsure = 0
        """Number of brokers that had to search all their boxes."""


class SubscribedBox:
    """A client's box: its borders, and when it existed."""

    __slots__ = ("broker", "ended_at", "highs", "known_at", "lows", "number")

    def __init__(self, broker: str, lows: Sequence[float], highs: Sequence[float]) -> None:
        self.broker = broker
        self.lows = tuple(lows)
        self.highs = tuple(highs)
        self.number = -1
        self.known_at: float | None = None
        """When its client has SUBACK, and every broker knows the box."""
        self.ended_at: float | None = None


class BoxDelivery(NamedTuple):
    published: PublicationRecord
    subscribed: SubscribedBox


class SimulatedBroker:
    """One incarnation of a broker."""

    def __init__(self, cluster: "MatchingCluster", name: str, contacts: list[str]) -> None:
        self.name = name
        self._cluster = cluster
        cluster.gossip.start(name, contacts)
        self.node = cluster.gossip.nodes[name]
        self.side: BrokerSide[QueuedPublication[PublicationRecord]] = BrokerSide(
            name,
            cluster.layouts,
            self.node.gossip.table.own.incarnation,
            self._send,
            cluster.random_of(name),
            policy=cluster.policy,
            question_seconds=cluster.question_seconds,
            asking_seconds=cluster.asking_seconds,
            is_listing=True,  # as in the paper
        )
        self.boxes: dict[int, SubscribedBox] = {}
        self.publisher_order: PublisherOrder[PublicationRecord] = PublisherOrder(
            cluster.order_waiting_max
        )
        self.refused = 0
        """Publications that were dropped because the publisher's queue was full."""
        cluster.connections.attach(self)
        self.node.gossip.put(BROKER, b"1")
        cluster.clock.after(cluster.random.random() * TURN_SECONDS, self._run_turns)

    @property
    def is_running(self) -> bool:
        return self.node.is_running

    def crash(self) -> None:
        self.node.stop()
        self._cluster.connections.detach(self)

    # Clients --------------------------------------------------------------------------------------

    def subscribe(self, boxes: Sequence[SubscribedBox]) -> None:
        space, own_boxes = self._cluster.space, self.side.feeds.own_boxes[self._cluster.space]
        numbers = [own_boxes.free_number()] if len(boxes) == 1 else self._numbers(len(boxes))
        for number, box in zip(numbers, boxes, strict=True):
            box.number = number
            self.boxes[number] = box
        self.side.put_many(
            space,
            np.array(numbers, np.int64),
            np.array([box.lows for box in boxes], float),
            np.array([box.highs for box in boxes], float),
        )
        self.side.when_known(_NEVER, lambda: self._mark_known(boxes))
        self.turn()

    def _numbers(self, count: int) -> list[int]:
        first = len(self.side.feeds.own_boxes[self._cluster.space].exists)
        return list(range(first, first + count))

    def _mark_known(self, boxes: Sequence[SubscribedBox]) -> None:
        for box in boxes:
            if box.known_at is None:
                box.known_at = self._cluster.clock.now

    def unsubscribe(self, box: SubscribedBox) -> None:
        box.ended_at = self._cluster.clock.now
        del self.boxes[box.number]
        self.side.discard(self._cluster.space, box.number)

    def publish(self, origin: str, rows: Sequence[Sequence[float]]) -> list[PublicationRecord]:
        """Submit several publications of one publisher at once."""
        found = []
        for values in rows:
            if self.publisher_order.is_full(origin):
                self.refused += 1
                continue
            published = self._cluster.add_publication(self, origin, values)
            queued = self.publisher_order.append(origin, published)
            self.side.questions.submit(self._cluster.space, values, self._cluster.brokers, queued)
            found.append(published)
        self.side.questions.flush(self._cluster.clock.now)
        self._process_verdicts()
        return found

    # Time -----------------------------------------------------------------------------------------

    def _run_turns(self) -> None:
        if self.is_running:
            self._cluster.clock.after(TURN_SECONDS, self._run_turns)
            self._apply_gossip_events()
            self.turn()

    def turn(self) -> None:
        self.side.turn(self._cluster.clock.now)
        self._process_verdicts()

    def _process_verdicts(self) -> None:
        for verdict in self.side.questions.take_verdicts():
            queued = verdict.tag
            queued.value.verdict = verdict
            queued.value.judged_at = self._cluster.clock.now
            queued.value.unsure = len(verdict.unsure)
            for published in self.publisher_order.complete(queued):
                self._forward(published)

    def _forward(self, published: PublicationRecord) -> None:
        published.released_at = self._cluster.clock.now
        verdict = published.verdict
        assert verdict is not None
        for name in verdict.unsure:
            self._cluster.post(name, published, None)
        for name, numbers in verdict.boxes.items():
            self._cluster.post(name, published, numbers)

    def deliver(
        self, published: PublicationRecord, matched: BoxNumbers | None
    ) -> list[BoxDelivery]:
        """Return the deliveries to matching boxes: among the `matched` ones, or among all."""
        own_boxes = self.side.feeds.own_boxes[self._cluster.space]
        if matched is None or matched.life != self.side.life:
            numbers = np.flatnonzero(own_boxes.exists)
        else:
            numbers = own_boxes.existing(matched.boxes.astype(np.int64))
        inside = self._cluster.is_inside(
            own_boxes.lows[numbers], own_boxes.highs[numbers], published.values
        )
        return [BoxDelivery(published, self.boxes[number]) for number in numbers[inside].tolist()]

    # Other nodes ----------------------------------------------------------------------------------

    def _apply_gossip_events(self) -> None:
        """Tell the broker what gossip has found out."""
        events, self.node.events = self.node.events, []
        for event in events:
            self._apply_gossip_event(event)

    def _apply_gossip_event(self, event: PresenceEvent) -> None:
        name, now = event.name, self._cluster.clock.now
        state = self.node.gossip.state(name)
        is_alive = event.presence is Presence.ALIVE and state is not None
        record = state.value(MATCHER) if is_alive and state is not None else None
        self.side.receive_record(name, record, now)
        if name in self._cluster.brokers:
            self.side.announcer.peer_is_live(name, is_alive)
        if is_alive and (record is not None or name in self._cluster.brokers):
            self._cluster.connections.dial(self, name)

    def _send(self, name: str, kind: int, body: bytes) -> bool:
        return self._cluster.connections.send(self, name, kind, body)

    def connected(self, name: str) -> None:
        if name in self._cluster.brokers:
            self.side.announcer.peer_is_up(name)
        else:
            self.side.matcher_is_up(name)
        self.turn()

    def lost(self, name: str) -> None:
        if name in self._cluster.brokers:
            self.side.announcer.peer_is_down(name)
        else:
            self.side.matcher_is_down(name, self._cluster.clock.now)
        self._process_verdicts()

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None:
        self.side.receive(name, kind, body, answer)

    def answered(self, name: str, kind: int, body: bytes) -> None:
        self.side.answered(name, kind, body, self._cluster.clock.now)
        self._process_verdicts()
