"""Brokers and matchers on a virtual clock, with real gossip and connections that break. Pure.

The machines are those of the service (matcher/); what is simulated is time, the network, and how
long matching takes. The same seed gives the same run. Tests check that every publication reaches
the boxes that it falls in once; experiments look at how long it takes.
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
from dovetail.matcher.question_batch import Numbers
from dovetail.sim.broker_node import BrokerNode, Delivery, Published, Subscribed
from dovetail.sim.connections import Links
from dovetail.sim.gossip_cluster import GossipCluster
from dovetail.sim.matcher_node import Costs, MatcherNode

POST_SECONDS = 0.001
"""From broker to broker."""

_COSTS = Costs()


class MatchingWorld:
    """Nodes by name; what happens to them is up to the test or the experiment."""

    def __init__(
        self,
        seed: int,
        layout: Layout,
        *,
        policy: Policy = policies.adaptive,
        costs: Costs = _COSTS,
        question_seconds: float = MATCHER_ANSWER_SECONDS_MAX,
        asking_seconds: float = ASKING_SECONDS_MAX,
        queue_points_max: int = MATCHER_QUEUE_POINTS_MAX,
        job_points_max: int = MATCHING_POINTS_MAX,
        order_waiting_max: int = ORDER_WAITING_MAX,
        is_delivered: bool = True,
    ) -> None:
        """`is_delivered`: brokers look at the boxes that they are told; or only time counts.

        Where matching costs more than it does in fact, so that rates can be low, jobs have to be
        smaller and times longer in proportion.
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
        self.links = Links(self.clock, Random(self.random.random()))
        self.links.is_cut = lambda one, other: not self.gossip.network.is_open(one, other)
        self.brokers: dict[str, BrokerNode] = {}
        self.matchers: dict[str, MatcherNode] = {}
        self.published: list[Published] = []
        self.subscribed: list[Subscribed] = []
        self.delivered: list[Delivery] = []
        self._is_delivered = is_delivered
        self._owed: dict[str, list[tuple[Published, Numbers | None]]] = {}

    def random_of(self, name: str) -> Random:
        return Random(f"{name} {self.random.random()}")

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    # Nodes ----------------------------------------------------------------------------------------

    def start_broker(self, name: str) -> BrokerNode:
        """Also again, with the boxes that it had."""
        kept = [box for box in self.subscribed if box.broker == name and box.ended_at is None]
        node = self.brokers[name] = BrokerNode(self, name, self._met())
        if kept:
            node.subscribe(kept)
        for published, told in self._owed.pop(name, []):
            self.delivered += node.deliver(published, told)
        return node

    def start_matcher(self, name: str, tokens: Tokens | None = None) -> MatcherNode:
        """`tokens`: its place, if it is not to choose one."""
        planned = None if tokens is None else {self.space: tokens}
        node = self.matchers[name] = MatcherNode(self, name, self._met(), planned)
        return node

    def _met(self) -> list[str]:
        return list(self.brokers)

    def cut_off(self, names: Sequence[str]) -> None:
        """Nobody else can talk to these."""
        self.gossip.network.cut(names)
        for dialer, acceptor in self.links.pairs():
            if not self.gossip.network.is_open(dialer, acceptor):
                self.links.break_(dialer, acceptor)

    def heal(self) -> None:
        self.gossip.network.heal()

    # Clients --------------------------------------------------------------------------------------

    def subscribe(self, broker: str, lows: Floats, highs: Floats) -> list[Subscribed]:
        boxes = [
            Subscribed(broker, *pair) for pair in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        self.subscribed += boxes
        self.brokers[broker].subscribe(boxes)
        return boxes

    def publication(self, broker: BrokerNode, origin: str, values: Sequence[float]) -> Published:
        one = Published(len(self.published), origin, broker.front.life, values, self.clock.now)
        self.published.append(one)
        return one

    def is_inside(
        self, lows: Floats, highs: Floats, values: Sequence[float]
    ) -> npt.NDArray[np.bool_]:
        """Which boxes a point falls in: `space.matches` of each."""
        point = np.array(values)
        inside = (lows <= point) & (point < highs)
        inside |= (lows == -math.inf) & (highs == math.inf)
        return np.asarray(inside.all(axis=1))

    # From broker to broker ------------------------------------------------------------------------

    def post(self, receiver: str, published: Published, told: Numbers | None) -> None:
        """In order, also to who is away: outboxes do that in the service."""
        if self._is_delivered:
            self.clock.after(POST_SECONDS, self._arrive, receiver, published, told)

    def _arrive(self, receiver: str, published: Published, told: Numbers | None) -> None:
        node = self.brokers[receiver]
        if node.is_running:
            self.delivered += node.deliver(published, told)
        else:
            self._owed.setdefault(receiver, []).append((published, told))
