"""A cluster of whole brokers: real cores on a virtual clock, with crashes and cuts from a seed.

A failing seed is in the test's name, and can be replayed.
"""

from random import Random

import pytest

from dovetail.broker.peering.limits import RETAINED_AGAIN_SECONDS
from dovetail.broker.store.journal import MessageRow
from dovetail.codec.packets import Publish, Subscribe
from dovetail.codec.packets import SubscriptionRequest as Request
from dovetail.settings import MqttSettings
from support.brokers.harness import Client, Disk
from support.clusters.checked_clients import check
from support.clusters.clients import PersistentReceiver, PersistentSender
from support.clusters.fault_scenario import NAMES, FaultScenario
from support.clusters.simulated_cluster import SimulatedCluster


def run(seed: int, strikes: int) -> FaultScenario:
    drama = FaultScenario(seed)
    drama.play(strikes)
    return drama


@pytest.mark.parametrize("seed", range(20))
def test_nothing_acknowledged_is_lost_and_qos_2_is_not_doubled(seed: int) -> None:
    drama = run(seed, strikes=25)
    try:
        assert drama.is_quiet(), "it does not come to rest"
        check(drama.receivers, drama.senders)
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}\n" + "\n".join(drama.story))
    assert all(len(sender.acknowledged) > 10 for sender in drama.senders)


def publish_retained(
    cluster: SimulatedCluster, name: str, topic: str, payload: bytes, qos: int
) -> None:
    node = cluster.nodes[name]
    if node.is_running and not node.is_paused and node.is_open:
        node.wake()
        client = node.client()
        client.publish(topic, payload, qos, retain=True)
        client.disconnect()


def retained_at(cluster: SimulatedCluster, name: str) -> dict[bytes, tuple[int, bytes]]:
    retained = cluster.nodes[name].broker.retained
    return {message.topic: (message.stamp, message.payload[:8]) for message in retained}


def disturb(cluster: SimulatedCluster, name: str, random: Random) -> None:
    match random.randrange(4):
        case 0:
            (cluster.kill if cluster.nodes[name].is_running else cluster.start)(name)
        case 1:
            cluster.cut(name)
        case 2:
            cluster.drop(name)
        case _:
            cluster.heal()


@pytest.mark.parametrize("seed", range(20))
def test_all_brokers_retain_the_same(seed: int) -> None:
    """So does a broker that joins late. Cleared messages stay cleared."""
    random = Random(seed)
    cluster = SimulatedCluster(seed, *NAMES)
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
    # After a crash the stored messages are the same.
    for name in cluster.nodes:
        cluster.kill(name)
    for name in list(cluster.nodes):
        cluster.start(name)
    cluster.run(5)
    assert {name: retained_at(cluster, name) for name in cluster.nodes} == there


def retain_without_stamp(
    cluster: SimulatedCluster, name: str, topic: bytes, payload: bytes
) -> None:
    """Store a retained message like a broker without a cluster: without a stamp."""
    disk = cluster.disks[name]
    numbers = (*disk.tables["messages"], *disk.tables["runs"])
    number = max(numbers, default=0) + 1
    disk.tables["messages"][number] = MessageRow(
        topic, payload, 0, True, b"", None, "c", 0, retained=True
    )


@pytest.mark.parametrize("seed", range(5))
def test_messages_retained_before_there_was_a_cluster_are_merged(seed: int) -> None:
    cluster = SimulatedCluster(seed, *NAMES)
    for name in NAMES:
        cluster.kill(name)
        cluster.disks[name] = Disk()
        # The same payloads at other topics, so that no two errors cancel out.
        for topic in (b"one", b"two"):
            retain_without_stamp(cluster, name, topic, b"of " + name.encode())
        cluster.start(name)
    cluster.run(10)
    for name in NAMES:
        assert retained_at(cluster, name) == {b"one": (0, b"of c"), b"two": (0, b"of c")}


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_with_a_full_disk_catches_up_on_retained_messages(seed: int) -> None:
    cluster = SimulatedCluster(seed, *NAMES)
    cluster.run(3)
    cluster.nodes["b"].shared.limits = MqttSettings(retained_messages_max=5)
    for number in range(10):
        publish_retained(cluster, "a", f"t/{number}", b"here", 1)
        cluster.run(0.1)
    cluster.run(3)
    assert len(retained_at(cluster, "a")) == len(retained_at(cluster, "c")) == 10
    assert len(retained_at(cluster, "b")) == 5
    for number in range(5):  # what the small one has
        publish_retained(cluster, "c", f"t/{number}", b"", 1)
    cluster.run(RETAINED_AGAIN_SECONDS + 10)
    there = {name: retained_at(cluster, name) for name in NAMES}
    assert there["a"] == there["b"] == there["c"]
    assert len(there["b"]) == 5


@pytest.mark.parametrize("seed", range(5))
def test_a_failing_disk_delays_no_other_broker_and_retained_messages_agree(seed: int) -> None:
    cluster = SimulatedCluster(seed, *NAMES)
    receiver = PersistentReceiver(cluster, "b", "receiver", "t", 1)
    sender = PersistentSender(cluster, "a", "sender", b"t", 1)
    while not receiver.ready:
        receiver.pump()
        cluster.run(0.05)
    cluster.nodes["b"].disk_works = False
    for _ in range(400):
        sender.pump()
        cluster.run(0.05)
    assert len(sender.acknowledged) > 5  # more than the window: it goes on without b
    # A broker whose own disk fails has the message in memory, so all get it.
    cluster.nodes["c"].disk_works = False
    publish_retained(cluster, "c", "kept", b"mine", 1)
    cluster.run(5)
    for name in NAMES:
        cluster.nodes[name].disk_works = True
    sender.is_sending = False
    for _ in range(200):
        sender.pump()
        receiver.pump()
        cluster.run(0.05)
    assert set(sender.acknowledged) <= set(receiver.numbers(b"t"))
    there = {name: retained_at(cluster, name) for name in NAMES}
    assert there["a"] == there["b"] == there["c"]
    assert there["a"][b"kept"][1] == b"mine"


@pytest.mark.parametrize("seed", range(3))
def test_at_qos_0_a_retained_message_is_not_overtaken(seed: int) -> None:
    """A retained message waits for the disk; the messages after it need not."""
    cluster = SimulatedCluster(seed, "a", "b")
    cluster.run(3)
    here, there = cluster.nodes["a"], cluster.nodes["b"]
    publisher, listener = Client(here, "publisher"), Client(there, "listener")
    for node, client in [(here, publisher), (there, listener)]:
        node.wake()
        client.open()
        client.send(client.connect_packet)
    cluster.run(1)
    listener.send(Subscribe(1, [Request("t/+", 0)], 0))
    cluster.run(1)
    listener.take()
    here.wake()
    published: list[tuple[bytes, bytes]] = []
    for number in range(20):
        topic, payload = f"t/{number % 3}", b"%d" % number
        is_plain = number % 7 != 5
        publisher.publish(
            topic, payload, retain=number % 4 == 0, expiry_seconds=None if is_plain else 60
        )
        published.append((topic.encode(), payload))
    cluster.run(2)
    heard = [(one.topic, one.payload) for one in listener.take() if isinstance(one, Publish)]
    for name in (b"t/0", b"t/1", b"t/2"):
        assert [one for one in heard if one[0] == name] == [
            one for one in published if one[0] == name
        ]
