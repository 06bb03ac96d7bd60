"""Subscriptions with where-clauses over whole brokers, under crashes and cuts, and on the move.

What is acknowledged reaches every client whose clause holds for it, at QoS 2 once, and nobody else.
A failing seed is in the test's name, and replays.
"""

from collections.abc import Iterable, Sequence
from random import Random

import pytest

from broker_harness import attributes
from cluster_clients import Receiver, Sender
from cluster_drama import NAMES, Drama
from dovetail.attributes.space import Dimension, Space
from dovetail.broker.packets import Publish

PHASES = 5
SPACE = Space("phases", "t/#", (Dimension("phase", 0, PHASES), Dimension("age", 0, 9)))


class Phased(Sender):
    """What it sends has a phase: that of its number."""

    def _packet(self, number: int, packet_id: int, *, duplicate: bool = False) -> Publish:
        packet = super()._packet(number, packet_id, duplicate=duplicate)
        packet.properties = attributes(phase=number % PHASES)
        return packet


class PhaseDrama(Drama):
    """Everybody wants some phases; the number at the end of a name is the lowest of them."""

    spaces = (SPACE,)
    sender = Phased
    roams = False

    def make_receivers(self) -> Sequence[Receiver]:
        receivers = []
        for home in NAMES:
            for lowest, (qos, topic_filter) in enumerate(((1, "t/#"), (2, "t/+/x")), start=2):
                name = f"receiver-{home}-{qos}-{lowest}"
                query = f"{topic_filter}?phase>={lowest}"
                receiver = Receiver(self.cluster, home, name, query, qos)
                receiver.roams = Random(self.random.random()) if self.roams else None
                receivers.append(receiver)
        return receivers


class RoamingDrama(PhaseDrama):
    """Nothing happens, but that receivers lose their connections and go on elsewhere."""

    roams = True

    def strike(self) -> None:
        self.random.choice(self.receivers).lose()


def check(receivers: Iterable[Receiver], senders: Iterable[Sender]) -> None:
    senders = list(senders)
    for receiver in receivers:
        lowest = int(receiver.client_id[-1])
        for sender in senders:
            who = f"{sender.client_id} to {receiver.client_id}"
            got = receiver.numbers(sender.topic)
            first = list(dict.fromkeys(got))
            wanted = {number for number in sender.acknowledged if number % PHASES >= lowest}
            missing = sorted(wanted - set(got))
            assert not missing, f"{who}: acknowledged, and lost: {missing[:10]}"
            assert all(number % PHASES >= lowest for number in got), f"{who}: not wanted"
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


@pytest.mark.parametrize("seed", range(4))
def test_what_clauses_ask_for_comes_through_crashes_and_cuts(seed: int) -> None:
    run(PhaseDrama(seed), seed, strikes=20)


@pytest.mark.parametrize("seed", range(4))
def test_clauses_follow_clients_that_roam(seed: int) -> None:
    run(RoamingDrama(seed), seed, strikes=20)


def forwarded(drama: Drama) -> list[int]:
    """What each broker has got from others."""
    nodes = drama.cluster.nodes.values()
    return [node.shared.counters.publishes_from_peers for node in nodes]


def test_brokers_get_what_somebody_there_may_want() -> None:
    """What has no attributes goes to nobody who has only clauses."""
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
