"""Whole brokers as one: real cores and disks under a seeded clock, crashes and cuts.

A failing seed is in the test's name, and replays.
"""

from random import Random

import pytest

from cluster_drama import NAMES, Drama
from cluster_world import Cluster


def check(drama: Drama) -> None:
    for receiver in drama.receivers:
        for sender in drama.senders:
            got = receiver.numbers(sender.topic)
            first = list(dict.fromkeys(got))
            who = f"{sender.client_id} to {receiver.client_id}"
            missing = sorted(set(sender.acknowledged) - set(got))
            assert not missing, f"{who}: acknowledged, and lost: {missing[:10]}"
            assert first == sorted(first), f"{who}: out of order: {first}"
            if min(receiver.qos, sender.qos) == 2:
                assert len(got) == len(first), f"{who}: doubled"


def run(seed: int, strikes: int) -> Drama:
    drama = Drama(seed)
    drama.play(strikes)
    return drama


@pytest.mark.parametrize("seed", range(30))
def test_nothing_acknowledged_is_lost_and_qos_2_is_not_doubled(seed: int) -> None:
    drama = run(seed, strikes=25)
    try:
        assert drama.is_quiet(), "it does not come to rest"
        check(drama)
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}\n" + "\n".join(drama.story))
    assert all(len(sender.acknowledged) > 10 for sender in drama.senders)


def publish_retained(cluster: Cluster, name: str, topic: str, payload: bytes, qos: int) -> None:
    node = cluster.nodes[name]
    if node.is_running and not node.is_paused and node.is_open:
        node.wake()
        client = node.client()
        client.publish(topic, payload, qos, retain=True)
        client.disconnect()


def retained_at(cluster: Cluster, name: str) -> dict[bytes, tuple[int, bytes]]:
    retained = cluster.nodes[name].broker.retained
    return {message.topic: (message.stamp, message.payload[:8]) for message in retained}


def disturb(cluster: Cluster, name: str, random: Random) -> None:
    match random.randrange(4):
        case 0:
            (cluster.kill if cluster.nodes[name].is_running else cluster.start)(name)
        case 1:
            cluster.cut(name)
        case 2:
            cluster.drop(name)
        case _:
            cluster.heal()


@pytest.mark.parametrize("seed", range(30))
def test_all_brokers_retain_the_same(seed: int) -> None:
    """Also one that joins late, and whatever was taken away stays away."""
    random = Random(seed)
    cluster = Cluster(seed, *NAMES)
    cluster.run(1)
    for number in range(120):
        name = random.choice(NAMES)
        topic = f"r/{random.randrange(8)}"
        payload = random.choice([b"", b"%d" % number, b"long" * 9_000])
        publish_retained(cluster, name, topic, payload, random.choice([0, 1, 2]))
        cluster.run(random.choice([0.0, 0.001, 0.05]))
        if number % 10 == 9:
            disturb(cluster, name, random)
        if number == 60:
            cluster.add("late")
    cluster.heal()
    for name in (*NAMES, "late"):
        if not cluster.nodes[name].is_running:
            cluster.start(name)
    cluster.run(20)
    there = {name: retained_at(cluster, name) for name in cluster.nodes}
    assert all(one == there["late"] for one in there.values()), f"seed {seed}: {there}"
    assert all(node.mesh.is_complete for node in cluster.nodes.values())
    # What a crash leaves is the same again.
    for name in cluster.nodes:
        cluster.kill(name)
    for name in list(cluster.nodes):
        cluster.start(name)
    cluster.run(5)
    assert {name: retained_at(cluster, name) for name in cluster.nodes} == there
