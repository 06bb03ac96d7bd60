"""Where-clauses in a cluster of whole brokers, with crashes, cuts and roaming clients.

Every acknowledged publication reaches each client whose clause matches, at QoS 2 once, and no other
client. A failing seed is in the test's name, and can be replayed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest

from dovetail.attributes.policies import POLICIES
from dovetail.attributes.scheme import Scheme, SpaceSharing
from dovetail.attributes.space import Dimension, Space
from dovetail.codec.packets import Publish
from dovetail.matcher.layout import layout_of
from support.brokers.harness import attributes
from support.clusters.clients import PersistentReceiver, PersistentSender
from support.clusters.fault_scenario import NAMES, FaultScenario
from support.clusters.matchers import ClusterWithMatchers

PHASES = 10
WANTED = 2
"""The number of phases in a client's clause: few enough that matchers hold its box."""
SHARINGS = (
    *(SpaceSharing(policy=policy) for policy in POLICIES),
    SpaceSharing(Scheme.P2P, "phase"),
    SpaceSharing(Scheme.FULL),
)
MATCHERS = ("m1", "m2", "m3", "m4")
SPACE = Space("phases", "t/#", (Dimension("phase", 0, PHASES), Dimension("age", 0, 9)))


class PhasedSender(PersistentSender):
    """A sender whose messages have a phase, computed from their number."""

    def _packet(self, number: int, packet_id: int, *, duplicate: bool = False) -> Publish:
        packet = super()._packet(number, packet_id, duplicate=duplicate)
        packet.properties = attributes(phase=number % PHASES)
        return packet


class PhaseDrama(FaultScenario):
    """Receivers want some phases. The number at the end of a name is the lowest of them."""

    spaces = (SPACE,)
    sender = PhasedSender
    roams = False

    def make_receivers(self) -> Sequence[PersistentReceiver]:
        receivers = []
        for home in NAMES:
            for lowest, (qos, topic_filter) in enumerate(((1, "t/#"), (2, "t/+/x")), start=2):
                name = f"receiver-{home}-{qos}-{lowest}"
                query = f"{topic_filter}?phase>={lowest}&phase<{lowest + WANTED}"
                receiver = PersistentReceiver(self.cluster, home, name, query, qos)
                receiver.roams = Random(self.random.random()) if self.roams else None
                receivers.append(receiver)
        return receivers


class RoamingDrama(PhaseDrama):
    """The only events are receivers that lose their connection and reconnect elsewhere."""

    roams = True

    def strike(self) -> None:
        self.random.choice(self.receivers).lose()


def is_wanted(number: int, lowest: int) -> bool:
    return lowest <= number % PHASES < lowest + WANTED


def check(receivers: Iterable[PersistentReceiver], senders: Iterable[PersistentSender]) -> None:
    senders = list(senders)
    for receiver in receivers:
        lowest = int(receiver.client_id[-1])
        for sender in senders:
            who = f"{sender.client_id} to {receiver.client_id}"
            got = receiver.numbers(sender.topic)
            first = list(dict.fromkeys(got))
            wanted = {number for number in sender.acknowledged if is_wanted(number, lowest)}
            missing = sorted(wanted - set(got))
            assert not missing, f"{who}: acknowledged, and lost: {missing[:10]}"
            assert all(is_wanted(number, lowest) for number in got), f"{who}: not wanted"
            assert first == sorted(first), f"{who}: out of order: {first}"
            if min(receiver.qos, sender.qos) == 2:
                assert len(got) == len(first), f"{who}: doubled"


def run(drama: PhaseDrama, seed: int, strikes: int) -> None:
    drama.play(strikes)
    try:
        assert drama.is_quiet(), "it does not come to rest"
        check(drama.receivers, drama.senders)
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}\n" + "\n".join(drama.story))
    assert all(len(sender.acknowledged) > 10 for sender in drama.senders)


def forwarded(drama: FaultScenario) -> list[int]:
    """Return how many publications each broker got from others."""
    nodes = drama.cluster.nodes.values()
    return [node.shared.counters.publishes_from_peers for node in nodes]


class MatchedDrama(PhaseDrama):
    """Matchers also join, hang, slow down, crash and leave. All receivers have many boxes."""

    matchers_spaces: tuple[Space, ...] | None = None
    """The matchers' spaces, if they differ from the brokers'."""

    def make_cluster(self, seed: int) -> ClusterWithMatchers:
        self.matched = ClusterWithMatchers(seed, *NAMES, spaces=self.spaces)
        self.matched.matchers_spaces = self.matchers_spaces or self.spaces
        for name in MATCHERS[:2]:
            self.matched.add_matcher(name)
        return self.matched

    def is_ready(self) -> bool:
        view = self.cluster.nodes["a"].mesh.matcher_client.directory
        return super().is_ready() and len(view.now(layout_of(SPACE).id).names) == 2

    def strike(self) -> None:
        if self.random.random() < 0.4:
            super().strike()
            return
        name = self.random.choice(MATCHERS)
        matcher = self.matched.matchers.get(name)
        deed = self.random.choice(["kill", "pause", "slow", "leave", "cut"])
        if matcher is None or not matcher.is_running:
            deed = "start"
            self.matched.add_matcher(name)
        elif deed == "kill":
            self.matched.kill_matcher(name)
        elif deed == "pause":
            self.matched.pause_matcher(name, not matcher.is_paused)
        elif deed == "slow":
            matcher.is_slow = not matcher.is_slow
        elif deed == "leave":
            matcher.side.leave(self.cluster.clock.now)
        else:
            self.matched.cut(name)
        self.story.append(f"{self.cluster.clock.now:.2f}: {deed} {name}")

    def end(self) -> None:
        for name in self.matched.matchers:
            self.matched.pause_matcher(name, False)
        super().end()


@pytest.mark.parametrize("seed", range(4))
def test_matchers_come_and_go(seed: int) -> None:
    drama = MatchedDrama(seed)
    run(drama, seed, strikes=25)
    assert drama.matched.answered_points > 50


@pytest.mark.parametrize("sharing", SHARINGS, ids=lambda one: f"{one.scheme}-{one.policy}")
def test_matchers_reduce_forwarding_to_brokers_with_matching_clauses(sharing: SpaceSharing) -> None:
    """Without faults, brokers get only publications that a clause there matches."""

    class SharedDrama(MatchedDrama):
        spaces = (replace(SPACE, sharing=sharing),)

    drama = SharedDrama(1)
    assert publish_all_phases(drama) == [0, 3, 3]
    assert drama.matched.answered_points == PHASES


def test_brokers_evaluate_clauses_if_matchers_have_another_scheme() -> None:
    class DifferingDrama(MatchedDrama):
        matchers_spaces = (replace(SPACE, sharing=SpaceSharing(Scheme.FULL)),)

    drama = DifferingDrama(1)
    assert publish_all_phases(drama) == [0, PHASES, PHASES]
    assert drama.matched.answered_points == 0


def publish_all_phases(drama: MatchedDrama) -> list[int]:
    """Publish one message of each phase, and return how many each broker gets from others."""
    for sender in drama.senders:
        sender.is_sending = False
    drama.cluster.run(8)
    node = drama.cluster.nodes["a"]
    before = forwarded(drama)
    node.wake()
    client = node.client()
    for phase in range(PHASES):  # 2 and 3 are wanted by some, 3 and 4 by others
        client.publish("t/a1/x", b"%d" % phase, properties=attributes(phase=phase))
    drama.cluster.run(1)
    assert node.shared.counters.publishes_in_vain == 0
    return [now - then for now, then in zip(forwarded(drama), before, strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_matching_publications_survive_crashes_and_cuts(seed: int) -> None:
    run(PhaseDrama(seed), seed, strikes=20)


@pytest.mark.parametrize("seed", range(4))
def test_clauses_follow_roaming_clients(seed: int) -> None:
    run(RoamingDrama(seed), seed, strikes=20)


def test_brokers_get_only_publications_that_a_client_may_want() -> None:
    """A publication without attributes goes to no broker that has only clauses."""
    drama = PhaseDrama(0)
    for sender in drama.senders:
        sender.is_sending = False
    drama.cluster.run(5)
    node = drama.cluster.nodes["a"]
    before = forwarded(drama)
    node.wake()
    client = node.client()
    for _ in range(10):
        client.publish("t/x", b"0")
        client.publish("other", b"0", properties=attributes(phase=3))
    drama.cluster.run(1)
    assert forwarded(drama) == before
    node.wake()
    client.publish("t/x", b"0", properties=attributes(phase=3))
    drama.cluster.run(1)
    assert forwarded(drama) == [before[0], before[1] + 1, before[2] + 1]
