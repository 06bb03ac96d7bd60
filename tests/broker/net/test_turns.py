"""The end of a turn of the loop: after a read that came alone, and after many."""

import asyncio
import socket
from collections.abc import Sequence
from random import Random

import pytest

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.client_wire import NO_WIRE, RemoteEnd
from dovetail.broker.limits import JOINED_READS_MIN
from dovetail.broker.net.server import BrokerServer, ClientConnection
from dovetail.broker.other_brokers import NoPeers
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.route import CLAUSE_LEVEL
from dovetail.broker.shared_state import SharedState
from dovetail.codec.packets import MQTT_3_1_1, Connect, PacketType, Ping, Publish
from dovetail.matcher.layout import layout_of, layouts_of
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.settings import ListenerSettings, MqttSettings

JOIN_SECONDS_MAX = 10
SPACE = Space("s", "t/#", (Dimension("speed", 0, 200),), json_fields=True)


class OnePeerWithClauses(NoPeers):
    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[str, ...]]:
        begin = CLAUSE_LEVEL.encode()
        return [("b",) if topic.startswith(begin) else () for topic in topics]


def test_a_publication_that_comes_alone_and_waits_for_matchers_goes_on_in_its_turn() -> None:
    async def run() -> None:
        sent_to: list[str] = []

        def send(name: str, _kind: int, _body: bytes) -> bool:
            sent_to.append(name)
            return True

        server = BrokerServer(
            SharedState(MqttSettings()),
            None,
            authenticate=lambda link, packet: server.broker.admit(link, packet, None, 1),
            random=Random(1),
            clock=lambda: 1_000.0,
            spaces=SpaceRegistry([SPACE]),
            cluster=ClusterMembership("a", 1, 1, 1, send),
        )
        broker = server.broker
        broker.router.peers = OnePeerWithClauses()
        matcher = MatcherSide("m", layouts_of([layout_of(SPACE)]), server.clock())
        matcher.join(server.clock())
        assert broker.mesh is not None
        client = broker.mesh.matcher_client
        for second in range(JOIN_SECONDS_MAX):
            _, record = matcher.tick(server.clock() + second, ())
            if record is not None:
                client.receive_record("m", record)
        client.matcher_is_up("m")
        reader = broker.accept(NO_WIRE, RemoteEnd("test"), server.clock())
        reader.receive(codec.encode(MQTT_3_1_1, Connect(MQTT_3_1_1, "p")), server.clock())
        broker.router.look_up(b"t/1")
        await asyncio.sleep(0)  # to the end of the turn
        sent_to.clear()
        packet = codec.encode(MQTT_3_1_1, Publish(b"t/1", b'{"speed": 12}'))
        assert server.receive_at_once(reader, packet)
        await asyncio.sleep(0)
        assert sent_to == ["b"]  # the matcher does not know its boxes yet
        await server.stop()

    asyncio.run(run())


def test_a_fault_in_joined_reads_stops_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        server = BrokerServer(
            SharedState(MqttSettings()),
            None,
            authenticate=lambda link, packet: server.broker.admit(link, packet, None),
            random=Random(1),
            clock=lambda: 1_000.0,
        )
        loop = asyncio.get_running_loop()

        async def connect(name: str) -> tuple[ClientConnection, socket.socket]:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            _, connection = await loop.connect_accepted_socket(
                lambda: ClientConnection(server, ListenerSettings(kind="tcp")), theirs
            )
            await loop.sock_sendall(ours, codec.encode(MQTT_3_1_1, Connect(MQTT_3_1_1, name)))
            assert await loop.sock_recv(ours, 4)
            return connection, ours

        other, ours = await connect("other")
        many = [await connect(f"p{number}") for number in range(JOINED_READS_MIN)]
        server.broker.router.look_up(b"t")

        def fail(*_run: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(server.broker.runs, "publish_joined", fail)
        server.schedule()
        server.gathers = True
        for connection, _ in many:
            connection.data_received(codec.encode(MQTT_3_1_1, Publish(b"t", b"x")))
        for _, end in many:
            assert await loop.sock_recv(end, 1) == b""
            end.close()
        await loop.sock_sendall(ours, codec.encode(MQTT_3_1_1, Ping(PacketType.PINGREQ)))
        assert len(await loop.sock_recv(ours, 2)) == 2
        assert server.connections == {other}
        await server.stop()
        ours.close()

    asyncio.run(run())
