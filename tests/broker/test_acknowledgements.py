"""Acknowledgements of messages to a client, against an oracle of what may come next.

The oracle is what the client knows of each packet identifier: nothing, or what it has to send next.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, Packet, PacketType, Publish
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])

PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)

MAY_COME = {PUBACK: {PUBACK}, PUBREC: {PUBREC}, PUBCOMP: {PUBREC, PUBCOMP}}
"""By what a packet identifier waits for: the acknowledgements that keep the connection open."""


def subscriber(world: World, version: int, **fields: object) -> Client:
    client = world.client("s", version=version, **fields)
    client.subscribe("t", qos=2)
    return client


# Each of them -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("fields", [{}, PERSISTENT], ids=["light", "kept"])
@pytest.mark.parametrize(
    ("qos", "before", "kind"),
    [
        (1, [], PUBREC),
        (1, [], PUBCOMP),
        (2, [], PUBACK),
        (2, [], PUBCOMP),
        (2, [PUBREC], PUBACK),
    ],
)
def test_the_wrong_acknowledgement_ends_the_connection(
    version: int, fields: dict[str, object], qos: int, before: list[PacketType], kind: PacketType
) -> None:
    world = World()
    client = subscriber(world, version, **fields)
    world.client("p", version=version).publish("t", b"x", qos)
    (message,) = client.messages()
    for each in before:
        client.send(Ack(each, message.packet_id))
    client.take()
    client.send(Ack(kind, message.packet_id))
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)
    assert world.shared.counters.protocol_errors == 1


def test_the_log_says_what_was_wrong(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    client = subscriber(world, MQTT_5)
    world.client("p").publish("t", b"x", 2)
    (message,) = client.messages()
    client.send(Ack(PUBACK, message.packet_id))
    assert (
        f"disconnected 's' from test: protocol error (PUBACK for packet identifier "
        f"{message.packet_id}, which waits for PUBREC)" in caplog.text
    )


@both
def test_the_next_connection_has_its_whole_window(version: int) -> None:
    world = World(inflight_max=1)
    client = subscriber(world, version, **PERSISTENT)
    publisher = world.client("p")
    for payload in (b"one", b"two"):
        publisher.publish("t", payload, 2)
    (one,) = client.messages()
    client.send(Ack(PUBACK, one.packet_id))
    assert client.is_closed
    client.connect()
    assert client.early == [Publish(b"t", b"one", 2, False, True, one.packet_id)]
    client.send(Ack(PUBREC, one.packet_id), Ack(PUBCOMP, one.packet_id))
    assert [packet.payload for packet in client.take() if isinstance(packet, Publish)] == [b"two"]


@both
@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBCOMP])
def test_what_waits_for_the_disk_is_not_known_to_the_client(version: int, kind: PacketType) -> None:
    world = World()
    client = subscriber(world, version, **PERSISTENT)
    world.auto_commit = False
    world.client("p").publish("t", b"x", 2)
    (entry,) = world.broker.sessions["s"].inflight.values()
    assert client.take() == []
    client.send(Ack(kind, entry.packet_id))
    assert not client.is_closed
    not_found = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == MQTT_5 else 0
    assert client.take() == ([Ack(PUBREL, entry.packet_id, not_found)] if kind == PUBREC else [])
    world.commit_all()
    (message,) = client.messages()
    assert (message.packet_id, message.duplicate) == (entry.packet_id, False)


# Any of them, in any order ------------------------------------------------------------------------


class RandomClient:
    """A client that acknowledges anything at any time, and what it knows."""

    def __init__(self, random: Random, version: int, is_persistent: bool, window: int) -> None:
        self.random = random
        self.version = version
        self.fields: dict[str, object] = (
            dict(PERSISTENT) if is_persistent else {"clean_start": True}
        )
        self.is_persistent = is_persistent
        self.window = window
        self.world = World(inflight_max=window)
        self.known: dict[int, PacketType] = {}
        """The acknowledgement that each packet identifier waits for, as the client sees it."""
        self.unfinished: dict[int, bytes] = {}
        self.published = 0
        self.done: list[bytes] = []
        self.client = subscriber(self.world, version, **self.fields)

    def publish(self) -> None:
        payload = b"%d" % self.published
        self.published += 1
        publisher = Client(self.world, "p", version=self.version)
        publisher.connect()
        publisher.publish("t", payload, self.random.choice([1, 2]))
        self.look(self.client.take())

    def look(self, packets: list[Packet]) -> None:
        for packet in packets:
            if isinstance(packet, Publish):
                assert self.known.get(packet.packet_id) in (None, PUBACK, PUBREC)
                was_known = packet.packet_id in self.known
                assert packet.duplicate == was_known, packet
                if was_known:
                    assert self.unfinished[packet.packet_id] == packet.payload
                self.known[packet.packet_id] = PUBACK if packet.qos == 1 else PUBREC
                self.unfinished[packet.packet_id] = packet.payload
            else:
                assert isinstance(packet, Ack)
                assert packet.type == PUBREL
                assert self.known[packet.packet_id] == PUBCOMP

    def acknowledge(self) -> None:
        random = self.random
        kind = random.choice([PUBACK, PUBREC, PUBCOMP])
        ids = [*self.known, 60_000]
        packet_id = random.choice(ids)
        fails = self.version == MQTT_5 and random.random() < 0.2
        reason = ReasonCode.QUOTA_EXCEEDED if fails and kind != PUBCOMP else 0
        self.client.send(Ack(kind, packet_id, reason))
        awaited = self.known.get(packet_id)
        if awaited is None:
            not_found = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if self.version == MQTT_5 else 0
            expected: list[Packet] = []
            if kind == PUBREC and not reason:
                expected = [Ack(PUBREL, packet_id, not_found)]
            assert self.client.take() == expected
            return
        if kind not in MAY_COME[awaited]:
            self.client.assert_ended(ReasonCode.PROTOCOL_ERROR)
            self.come_back()
            return
        if kind == PUBREC and not reason:
            self.known[packet_id] = PUBCOMP
            packets = self.client.take()
            assert Ack(PUBREL, packet_id) in packets
        else:
            del self.known[packet_id]
            self.done.append(self.unfinished.pop(packet_id))
            packets = self.client.take()
        self.look(packets)

    def lose(self) -> None:
        self.client.lose()
        self.come_back()

    def restart(self) -> None:
        self.world = self.world.crash(inflight_max=self.window)
        self.client.world = self.world
        self.client.link = None
        self.come_back()

    def come_back(self) -> None:
        if not self.is_persistent:
            # Nothing is sent again, and the identifiers are free.
            self.done += self.unfinished.values()
            self.known.clear()
            self.unfinished.clear()
        self.client.connect()
        if self.is_persistent:
            for awaited, qos in ((PUBACK, 1), (PUBREC, 2)):
                again = [
                    packet.packet_id
                    for packet in self.client.early
                    if isinstance(packet, Publish) and packet.duplicate and packet.qos == qos
                ]
                waiting = [one for one, kind in self.known.items() if kind == awaited]
                assert again == waiting  # in their order
        else:
            self.client.subscribe("t", qos=2)
        self.look(self.client.early)

    def finish(self) -> None:
        """All that is left comes to its end, whatever was sent before."""
        while self.known:
            packet_id, awaited = next(iter(self.known.items()))
            self.client.send(Ack(awaited, packet_id))
            if awaited == PUBREC:
                self.known[packet_id] = PUBCOMP
            else:
                del self.known[packet_id]
                self.done.append(self.unfinished.pop(packet_id))
            self.look(self.client.take())
        assert not self.client.is_closed
        session = self.world.broker.sessions["s"]
        assert session.outstanding == session.queue.count == 0
        assert not session.inflight
        assert not session.light
        if self.is_persistent:
            assert sorted(self.done, key=int) == [b"%d" % one for one in range(self.published)]
            assert self.world.disk.tables["deliveries"] == {}


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([MQTT_3_1_1, MQTT_5]),
    st.booleans(),
    st.integers(1, 4),
    st.integers(1, 60),
)
def test_any_acknowledgements(
    random: Random, version: int, is_persistent: bool, window: int, steps: int
) -> None:
    story = RandomClient(random, version, is_persistent, window)
    acts: list[Callable[[], None]] = [story.publish] * 3 + [story.acknowledge] * 6 + [story.lose]
    if is_persistent:
        acts.append(story.restart)
    for _ in range(steps):
        random.choice(acts)()
    story.finish()
