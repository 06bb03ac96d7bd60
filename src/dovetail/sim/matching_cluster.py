"""Brokers and matchers on a virtual clock, with real gossip and connections that break. Pure.

The state machines are those of the service (matcher/). Time, the network and the duration of
matching are simulated. The same seed gives the same run. Tests check that every publication reaches
each of its boxes once; experiments measure how long that takes.
"""

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from dovetail.attributes import policies
from dovetail.attributes.partition import Tokens
from dovetail.attributes.policies import Policy
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_ANSWER_SECONDS_MAX,
    MATCHER_QUEUE_POINTS_MAX,
    MATCHING_POINTS_MAX,
    ORDER_WAITING_MAX,
)
from dovetail.matcher.question_batch import BoxNumbers
from dovetail.sim.broker_node import BoxDelivery, PublicationRecord, SimulatedBroker, SubscribedBox
from dovetail.sim.connections import Connections
from dovetail.sim.gossip_cluster import GossipCluster
from dovetail.sim.matcher_node import MatchingCosts, SimulatedMatcher

POST_SECONDS = 0.001
"""The delay from broker to broker."""

_COSTS = MatchingCosts()


class MatchingCluster:
    """Nodes by name. Tests and experiments start, stop and crash them."""

    def __init__(
        self,
        seed: int,
        layout: Layout,
        *,
        policy: Policy = policies.adaptive,
        costs: MatchingCosts = _COSTS,
        question_seconds: float = MATCHER_ANSWER_SECONDS_MAX,
        asking_seconds: float = ASKING_SECONDS_MAX,
        queue_points_max: int = MATCHER_QUEUE_POINTS_MAX,
        job_points_max: int = MATCHING_POINTS_MAX,
        order_waiting_max: int = ORDER_WAITING_MAX,
        is_delivered: bool = True,
    ) -> None:
        """`is_delivered`: brokers deliver publications to boxes. If not, only time is simulated.

        If `costs` are higher than in reality, so that rates can be low, jobs must be smaller and
        time limits longer in proportion.
        """
        self.layout = layout
        self.layouts = {layout.id: layout}
        self.space = layout.id
        self.policy = policy
        self.costs = costs
        self.question_seconds = question_seconds
        self.asking_seconds = asking_seconds
        self.queue_points_max = queue_points_max
        self.job_points_max = job_points_max
        self.order_waiting_max = order_waiting_max
        self.gossip = GossipCluster(seed)
        self.clock = self.gossip.clock
        self.random = self.gossip.random
        self.connections = Connections(self.clock, Random(self.random.random()))
        self.connections.is_cut = lambda one, other: not self.gossip.network.is_open(one, other)
        self.brokers: dict[str, SimulatedBroker] = {}
        self.matchers: dict[str, SimulatedMatcher] = {}
        self.published: list[PublicationRecord] = []
        self.subscribed: list[SubscribedBox] = []
        self.delivered: list[BoxDelivery] = []
        self._is_delivered = is_delivered
        self._delayed: dict[str, list[tuple[PublicationRecord, BoxNumbers | None]]] = {}

    def random_of(self, name: str) -> Random:
        return Random(f"{name} {self.random.random()}")

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    # Nodes ----------------------------------------------------------------------------------------

    def start_broker(self, name: str) -> SimulatedBroker:
        """Start a broker, or restart it with its former boxes."""
        kept = [box for box in self.subscribed if box.broker == name and box.ended_at is None]
        node = self.brokers[name] = SimulatedBroker(self, name, self._contacts())
        if kept:
            node.subscribe(kept)
        for published, matched in self._delayed.pop(name, []):
            self.delivered += node.deliver(published, matched)
        return node

    def start_matcher(self, name: str, tokens: Tokens | None = None) -> SimulatedMatcher:
        """Start a matcher. `tokens`: its segments, if it should not choose them itself."""
        planned = None if tokens is None else {self.space: tokens}
        node = self.matchers[name] = SimulatedMatcher(self, name, self._contacts(), planned)
        return node

    def _contacts(self) -> list[str]:
        return list(self.brokers)

    def cut_off(self, names: Sequence[str]) -> None:
        """Cut these nodes off from all others."""
        self.gossip.network.cut(names)
        for dialer, acceptor in self.connections.pairs():
            if not self.gossip.network.is_open(dialer, acceptor):
                self.connections.break_(dialer, acceptor)

    def heal(self) -> None:
        self.gossip.network.heal()

    # Clients --------------------------------------------------------------------------------------

    def subscribe(self, broker: str, lows: Floats, highs: Floats) -> list[SubscribedBox]:
        boxes = [
            SubscribedBox(broker, *pair) for pair in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        self.subscribed += boxes
        self.brokers[broker].subscribe(boxes)
        return boxes

    def add_publication(
        self, broker: SimulatedBroker, origin: str, values: Sequence[float]
    ) -> PublicationRecord:
        one = PublicationRecord(
            len(self.published), origin, broker.side.life, values, self.clock.now
        )
        self.published.append(one)
        return one

    def is_inside(
        self, lows: Floats, highs: Floats, values: Sequence[float]
    ) -> npt.NDArray[np.bool_]:
        """Return which boxes contain a point, as `space.matches` does."""
        point = np.array(values)
        inside = (lows <= point) & (point < highs)
        inside |= (lows == -math.inf) & (highs == math.inf)
        return np.asarray(inside.all(axis=1))

    # From broker to broker ------------------------------------------------------------------------

    def post(self, receiver: str, published: PublicationRecord, matched: BoxNumbers | None) -> None:
        """Send to a broker, in order, also while it is down. Outboxes do that in the service."""
        if self._is_delivered:
            self.clock.after(POST_SECONDS, self._arrive, receiver, published, matched)

    def _arrive(
        self, receiver: str, published: PublicationRecord, matched: BoxNumbers | None
    ) -> None:
        node = self.brokers[receiver]
        if node.is_running:
            self.delivered += node.deliver(published, matched)
        else:
            self._delayed.setdefault(receiver, []).append((published, matched))
