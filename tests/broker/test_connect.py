"""The begin and the end of a connection: CONNECT, CONNACK, keep alive, and packets out of place."""

from collections.abc import Callable
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import codec
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.broker.client_link import ClientLink
from dovetail.broker.keep_alive import LATE_SECONDS_MAX, TICK_SECONDS_MAX
from dovetail.broker.limits import CONNECT_BYTES_MAX, EARLY_BYTES_MAX
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])

FROM_CLIENTS: dict[str, Packet] = {
    "PUBLISH": Publish(b"a", b""),
    "PUBACK": Ack(PacketType.PUBACK, 1),
    "PUBREC": Ack(PacketType.PUBREC, 1),
    "PUBREL": Ack(PacketType.PUBREL, 1),
    "PUBCOMP": Ack(PacketType.PUBCOMP, 1),
    "SUBSCRIBE": Subscribe(1, [SubscriptionRequest("a")]),
    "UNSUBSCRIBE": Unsubscribe(1, ["a"]),
    "PINGREQ": Ping(PacketType.PINGREQ),
    "DISCONNECT": Disconnect(),
}
FROM_SERVERS: dict[str, Packet] = {
    "CONNACK": Connack(session_present=False, reason=ReasonCode.SUCCESS),
    "SUBACK": SubscriptionAck(PacketType.SUBACK, 1, [0]),
    "UNSUBACK": SubscriptionAck(PacketType.UNSUBACK, 1, [0]),
    "PINGRESP": Ping(PacketType.PINGRESP),
}


def say(world: World, version: int, *parts: Packet | bytes) -> Client:
    """A connection that begins like this."""
    client = Client(world, version=version)
    client.open()
    client.send_bytes(
        b"".join(part if isinstance(part, bytes) else codec.encode(version, part) for part in parts)
    )
    return client


def answer(client: Client) -> bytes:
    """Return the bytes that the broker has for this client."""
    assert client.link is not None
    data = b"".join(client.link.outgoing)
    client.link.outgoing = []
    return data


def assert_silence(client: Client) -> None:
    assert client.is_closed
    assert answer(client) == b""


def refusal(world: World, client_id: str = "c", **fields: object) -> Connack:
    client = Client(world, client_id, **fields)
    packet = client.connect()
    assert client.is_closed
    assert client.early == []
    assert not packet.session_present
    return packet


def raw_connect(name: bytes, level: int, *rest: bytes) -> bytes:
    body = len(name).to_bytes(2) + name + bytes([level]) + b"".join(rest)
    return b"\x10" + codec.encode_length(len(body)) + body


# The first packet --------------------------------------------------------------------------------


@both
def test_a_publication_that_comes_before_connack_waits_for_it(version: int) -> None:
    """The route of its topic is cached, so that nothing else would keep it from its receiver."""
    world = World()
    receiver = world.client("receiver")
    receiver.subscribe("a")
    world.client("p", version=version).publish("a", b"1")
    assert receiver.payloads() == [b"1"]
    world.client("c", version=version, **PERSISTENT).lose()
    world.auto_commit = False
    client = Client(world, "c", version=version)
    client.open()
    client.send(client.connect_packet)
    client.send(Publish(b"a", b"2"))
    assert client.take() == receiver.take() == []
    world.auto_commit = True
    world.settle()
    assert [type(packet) for packet in client.take()] == [Connack]
    assert receiver.payloads() == [b"2"]


@both
@pytest.mark.parametrize("packet", FROM_CLIENTS.values(), ids=FROM_CLIENTS)
def test_before_connect_nothing_counts(version: int, packet: Packet) -> None:
    world = World()
    witness = world.client("witness")
    witness.subscribe("#")
    assert_silence(say(world, version, packet))
    assert witness.take() == []


def test_before_connect_auth_does_not_count() -> None:
    assert_silence(say(World(), MQTT_5, Auth()))


@both
@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_connect_may_come_in_pieces(version: int, size: int) -> None:
    client = Client(World(), "c", version=version)
    client.open()
    data = b"".join(
        codec.encode(version, packet)
        for packet in (client.connect_packet, Ping(PacketType.PINGREQ))
    )
    for at in range(0, len(data), size):
        client.send_bytes(data[at : at + size])
    first, second = client.take()
    assert isinstance(first, Connack)
    assert second == Ping(PacketType.PINGRESP)


@both
def test_connack_is_first_and_only(version: int) -> None:
    world = World()
    world.client("p", version=version, **PERSISTENT).subscribe("t", qos=1)
    world.client("publisher").publish("t", b"waits for it", 1)
    # In one read: a session with a message, a ping, and a message to itself.
    client = say(
        world,
        version,
        Connect(version, "p", **PERSISTENT),
        Ping(PacketType.PINGREQ),
        Publish(b"t", b"its own"),
    )
    kinds = [type(packet) for packet in client.take()]
    assert kinds == [Connack, Publish, Ping, Publish]


@both
def test_a_second_connect_is_a_protocol_error(version: int) -> None:
    client = World().client("c", version=version)
    client.send(client.connect_packet)
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


@both
@pytest.mark.parametrize("packet", FROM_SERVERS.values(), ids=FROM_SERVERS)
def test_what_only_servers_send_is_a_protocol_error(version: int, packet: Packet) -> None:
    client = World().client("c", version=version)
    client.send(packet)
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


@both
def test_a_packet_that_cannot_be_read_ends_the_connection(version: int) -> None:
    world = World()
    witness = world.client("witness")
    witness.subscribe("#")
    client = world.client("c", version=version)
    client.send_bytes(b"\x36\x05\0\1a\0\1" + codec.encode(version, Publish(b"a", b"behind it")))
    client.assert_ended(ReasonCode.MALFORMED_PACKET)
    assert witness.take() == []


@both
def test_nothing_is_sent_after_the_broker_has_ended_it(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.subscribe("t")
    client.send(client.connect_packet, Ping(PacketType.PINGREQ))
    world.client("publisher").publish("t")
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)
    assert client.take() == []


@both
def test_ping_is_answered(version: int) -> None:
    client = World().client("c", version=version)
    client.send(Ping(PacketType.PINGREQ), Ping(PacketType.PINGREQ))
    assert client.take() == [Ping(PacketType.PINGRESP)] * 2


# Versions and malformed CONNECTs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level"), [(b"MQIsdp", 3), (b"MQTT", 3), (b"MQTT", 0), (b"MQTT", 0x84)]
)
def test_other_versions_get_the_return_code_for_it(name: bytes, level: int) -> None:
    client = say(World(), MQTT_3_1_1, raw_connect(name, level, b"\2\0\x3c\0\1c"))
    assert client.is_closed
    assert answer(client) == b"\x20\x02\0\x01"


@pytest.mark.parametrize("level", [6, 7, 0x7F, 0x85, 0xFF])
@pytest.mark.parametrize(
    "rest",
    [b"\2\0\x3c\0\0\1c", b"", b"\xff", b"\xff" * 300, b"\2\0\x3c\0\1c"],
    ids=["as in 5", "nothing", "a byte", "noise", "as in 3.1.1"],
)
@pytest.mark.parametrize("pieces", [1, 7, 1_000])
def test_later_versions_get_their_reason_in_version_5(level: int, rest: bytes, pieces: int) -> None:
    """The bytes behind the version, and their number, do not matter."""
    world = World(packet_bytes_max=256)
    client = Client(world, version=MQTT_5)
    client.open()
    data = raw_connect(b"MQTT", level, rest)
    for at in range(0, len(data), pieces):
        client.send_bytes(data[at : at + pieces])
        if client.is_closed:
            break
    assert client.is_closed
    packet = client.take_one()
    assert isinstance(packet, Connack)
    assert packet.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert world.shared.counters.connections_refused == 1


def test_another_protocol_is_not_spoken() -> None:
    client = say(World(), MQTT_3_1_1, raw_connect(b"AMQP", 4, b"\2\0\x3c\0\1c"))
    assert client.is_closed
    assert answer(client) in {b"", b"\x20\x02\0\x01"}


MALFORMED: dict[str, Callable[[int], bytes]] = {
    "the reserved flag": lambda level: b"\x03\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c",
    "a will QoS of 3": lambda level: b"\x1e\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c\0\0\0\0",
    "a will QoS without a will": lambda level: b"\x0a\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c",
    "a will retain without a will": lambda level: (
        b"\x22\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c"
    ),
    "a will that is not there": lambda level: b"\x06\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c",
    "a user that is not there": lambda level: b"\x82\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c",
    "a user without its flag": lambda level: (
        b"\x02\0\0" + b"\0" * (level == MQTT_5) + b"\0\1c\0\1u"
    ),
    "no client identifier": lambda level: b"\x02\0\0" + b"\0" * (level == MQTT_5),
    "an identifier that is no text": lambda level: (
        b"\x02\0\0" + b"\0" * (level == MQTT_5) + b"\0\1\xff"
    ),
}


@pytest.mark.parametrize("rest", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_connect_gets_a_reason_in_version_5(rest: Callable[[int], bytes]) -> None:
    client = say(World(), MQTT_5, raw_connect(b"MQTT", MQTT_5, rest(MQTT_5)))
    assert client.is_closed
    packet = client.take_one()
    assert isinstance(packet, Connack)
    assert packet.reason in {ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR}
    assert not packet.session_present


@pytest.mark.parametrize("rest", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_connect_gets_no_answer_in_3_1_1(rest: Callable[[int], bytes]) -> None:
    data = raw_connect(b"MQTT", MQTT_3_1_1, rest(MQTT_3_1_1))
    assert_silence(say(World(), MQTT_3_1_1, data))


def test_a_password_without_a_user_is_for_version_5_only() -> None:
    world = World()
    data = raw_connect(b"MQTT", MQTT_3_1_1, b"\x42\0\0\0\1c\0\1p")
    assert_silence(say(world, MQTT_3_1_1, data))
    assert world.client("c", password=b"p").connack is not None


def test_a_connect_that_is_too_large() -> None:
    world = World(packet_bytes_max=1_024)
    packet = refusal(world, "c", user="u" * 2_000)
    assert packet.reason == ReasonCode.PACKET_TOO_LARGE
    huge = codec.encode(MQTT_3_1_1, Connect(MQTT_3_1_1, "c", user="u" * 2_000))
    assert_silence(say(world, MQTT_3_1_1, huge))


def test_a_connect_is_smaller_than_other_packets() -> None:
    world = World()
    packet = Connect(MQTT_5, "c", will=Will(b"w", bytes(60_000)), user="u" * 65_535)
    packet.password = bytes(65_535)
    data = codec.encode(MQTT_5, packet)
    assert len(data) < CONNECT_BYTES_MAX < world.shared.limits.packet_bytes_max
    assert not say(world, MQTT_5, data).is_closed
    head = b"\x10" + codec.encode_length(CONNECT_BYTES_MAX) + b"\0\4MQTT\5"
    assert say(world, MQTT_5, head).is_closed


@both
def test_a_length_of_five_bytes_is_none(version: int) -> None:
    assert_silence(say(World(), version, b"\x10\xff\xff\xff\xff\x01"))


@both
def test_what_follows_a_refused_connect_is_not_read(version: int) -> None:
    world = World(client_id_bytes_max=23)
    witness = world.client("witness")
    witness.subscribe("#")
    refused = say(
        world,
        version,
        Connect(version, "c" * 24),
        Publish(b"t", b"behind it"),
        Connect(version, "c"),
        Publish(b"t", b"behind that"),
    )
    assert refused.is_closed
    assert isinstance(refused.take_one(), Connack)
    assert witness.take() == []


# Client identifiers ------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("client_id", ["a", digits, ascii_letters[:23], ascii_letters[26:49]])
def test_every_client_identifier_that_has_to_be_allowed_is(version: int, client_id: str) -> None:
    client = World().client(client_id, version=version)
    assert client.connack is not None
    assert client.connack.reason == ReasonCode.SUCCESS


@both
def test_no_client_identifier_gets_one_of_ours(version: int) -> None:
    world = World()
    clients = [world.client("", version=version) for _ in range(3)]
    assert len(world.broker.sessions) == 3
    for client in clients:
        client.subscribe("t")
    clients[0].publish("t", b"to all")
    assert [client.payloads() for client in clients] == [[b"to all"]] * 3


def test_the_assigned_client_identifier_is_told_and_counts() -> None:
    world = World()
    client = world.client("", **PERSISTENT)
    assert client.connack is not None
    assigned = client.connack.assigned_client_id
    assert assigned
    client.subscribe("t", qos=1)
    client.lose()
    again = world.client(assigned, **PERSISTENT)
    assert again.connack is not None
    assert again.connack.session_present
    assert again.connack.assigned_client_id is None


def test_a_session_that_is_kept_needs_an_identifier_in_3_1_1() -> None:
    packet = refusal(World(), "", version=MQTT_3_1_1, clean_start=False)
    assert packet.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


@both
def test_a_client_identifier_that_is_too_long(version: int) -> None:
    packet = refusal(World(client_id_bytes_max=23), "é" * 12, version=version)
    assert packet.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


# What the answer says ----------------------------------------------------------------------------


@both
def test_session_present(version: int) -> None:
    world = World()

    def present(**fields: object) -> bool:
        client = world.client("c", version=version, **fields)
        client.disconnect()
        assert client.connack is not None
        return client.connack.session_present

    assert not present(**PERSISTENT)
    assert present(**PERSISTENT)
    assert not present(clean_start=True)
    assert not present(**PERSISTENT)


def test_clean_start_ends_the_session_before_it_begins_one_that_is_kept() -> None:
    world = World()
    world.client("c", **PERSISTENT).subscribe("t", qos=1)
    fresh = world.client("c", clean_start=True, session_expiry_seconds=1_000)
    assert fresh.connack is not None
    assert not fresh.connack.session_present
    fresh.lose()
    back = world.client("c", **PERSISTENT)
    assert back.connack is not None
    assert back.connack.session_present
    world.client("publisher").publish("t", b"", 1)
    assert back.take() == []


def test_connack_tells_the_limits() -> None:
    world = World(
        receive_max=7,
        packet_bytes_max=2_000,
        alias_in_max=9,
        maximum_qos=1,
        retain_available=False,
        session_expiry_max_seconds=60,
        keep_alive_max_seconds=30,
    )
    client = world.client("c", session_expiry_seconds=100, keep_alive_seconds=0)
    assert client.connack == Connack(
        session_present=False,
        reason=ReasonCode.SUCCESS,
        session_expiry_seconds=60,
        receive_max=7,
        maximum_qos=1,
        retain_available=False,
        packet_bytes_max=2_000,
        alias_max=9,
        keep_alive_seconds=30,
    )


def test_connack_leaves_out_what_is_as_the_client_wants() -> None:
    client = World().client("c", session_expiry_seconds=100, keep_alive_seconds=10)
    assert client.connack is not None
    assert client.connack.session_expiry_seconds is None
    assert client.connack.keep_alive_seconds is None
    assert client.connack.maximum_qos is None
    assert client.connack.retain_available
    assert client.connack.authentication_method is None


def test_connack_is_the_clients_own() -> None:
    world = World(session_expiry_max_seconds=60, keep_alive_max_seconds=30)

    def told(client_id: str, expiry_seconds: int, keep_alive: int) -> tuple[int | None, ...]:
        client = world.client(
            client_id, session_expiry_seconds=expiry_seconds, keep_alive_seconds=keep_alive
        )
        assert client.connack is not None
        return client.connack.session_expiry_seconds, client.connack.keep_alive_seconds

    for turn in range(2):
        assert told(f"a{turn}", 60, 30) == (None, None)
        assert told(f"b{turn}", 61, 30) == (60, None)
        assert told(f"c{turn}", 60, 31) == (None, 30)
        assert told(f"d{turn}", 61, 31) == (60, 30)


@pytest.mark.parametrize("wanted", [False, True])
def test_response_information_is_never_given(wanted: bool) -> None:
    client = World().client("c", wants_response_information=wanted)
    assert client.connack is not None
    assert client.connack.response_information is None


def test_connack_of_3_1_1_is_four_bytes() -> None:
    client = say(World(), MQTT_3_1_1, Connect(MQTT_3_1_1, "c"))
    assert answer(client) == b"\x20\x02\0\0"


# Who may come in ---------------------------------------------------------------------------------


@both
def test_a_client_that_is_not_let_in(version: int) -> None:
    world = World()
    world.broker._authenticate = lambda link, _: link.refuse(
        ReasonCode.BAD_USER_NAME_OR_PASSWORD, None
    )
    packet = refusal(world, version=version)
    assert packet.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert world.broker.sessions == {}


@both
def test_bytes_that_come_while_we_ask_wait_for_the_answer(version: int) -> None:
    world = World()
    asked: list[tuple[ClientLink, Connect]] = []
    world.broker._authenticate = lambda link, packet: asked.append((link, packet))
    client = say(world, version, Connect(version, "c"), Ping(PacketType.PINGREQ))
    client.send_bytes(b"\xc0")
    client.send_bytes(b"\x00")
    assert answer(client) == b""
    ((link, packet),) = asked
    world.broker.admit(link, packet, None)
    link.resume()
    kinds = [type(packet) for packet in client.take()]
    assert kinds == [Connack, Ping, Ping]


@both
def test_so_many_bytes_may_come_while_we_ask(version: int) -> None:
    world = World()
    world.broker._authenticate = lambda _link, _packet: None
    client = say(world, version, Connect(version, "c"), bytes(EARLY_BYTES_MAX - 1))
    client.send_bytes(b"x")
    was_closed = client.is_closed
    client.send_bytes(b"x")
    assert (was_closed, client.is_closed) == (False, True)
    packet = client.take_one()
    assert isinstance(packet, Connack)
    old = ReasonCode.SERVER_UNAVAILABLE
    assert packet.reason == (ReasonCode.QUOTA_EXCEEDED if version == MQTT_5 else old)


@both
def test_who_is_gone_before_the_answer_gets_no_session(version: int) -> None:
    world = World()
    asked: list[tuple[ClientLink, Connect]] = []
    world.broker._authenticate = lambda link, packet: asked.append((link, packet))
    client = say(world, version, Connect(version, "c"))
    client.lose()
    ((link, packet),) = asked
    world.broker.admit(link, packet, None)
    assert world.broker.sessions == {}


def test_there_is_no_enhanced_authentication() -> None:
    packet = refusal(World(), authentication_method="SCRAM", authentication_data=b"x")
    assert packet.reason == ReasonCode.BAD_AUTHENTICATION_METHOD


def test_auth_without_a_method_is_a_protocol_error() -> None:
    client = World().client("c")
    client.send(Auth(ReasonCode.RE_AUTHENTICATE, method="SCRAM"))
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


def test_there_is_no_auth_in_3_1_1() -> None:
    client = World().client("c", version=MQTT_3_1_1)
    client.send_bytes(b"\xf0\0")
    client.assert_ended(ReasonCode.MALFORMED_PACKET)


@both
def test_a_client_has_a_while_for_its_connect(version: int) -> None:
    world = World(connect_timeout_seconds=10)
    client = Client(world, version=version)
    client.open()
    client.send_bytes(b"\x10")
    world.pass_time(9)
    assert not client.is_closed
    world.pass_time(1)
    assert_silence(client)


@both
def test_each_connection_has_its_own_while_for_its_connect(version: int) -> None:
    world = World(connect_timeout_seconds=10)
    first, admitted, third, fourth = (Client(world, version=version) for _ in range(4))
    first.open()
    admitted.open()
    world.pass_time(4)
    admitted.send(Connect(version, "c"))
    third.open()
    world.pass_time(4)
    fourth.open()
    world.pass_time(2)
    assert [one.is_closed for one in (first, third, fourth)] == [True, False, False]
    third.lose()
    world.pass_time(7)
    assert [one.is_closed for one in (fourth, admitted)] == [False, False]
    late = Client(world, version=version)
    late.open()
    world.pass_time(1)
    assert [one.is_closed for one in (fourth, late)] == [True, False]
    world.pass_time(9)
    assert [one.is_closed for one in (late, admitted)] == [True, False]


def test_a_connected_client_has_all_the_time_without_a_keep_alive() -> None:
    world = World(connect_timeout_seconds=10)
    client = world.client("c")
    world.pass_time(1_000_000)
    assert not client.is_closed


# Wills that cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "will", "reason"),
    [
        ({"maximum_qos": 1}, Will(b"w", b"", qos=2), ReasonCode.QOS_NOT_SUPPORTED),
        ({"maximum_qos": 0}, Will(b"w", b"", qos=1), ReasonCode.QOS_NOT_SUPPORTED),
        (
            {"retain_available": False},
            Will(b"w", b"", retain=True),
            ReasonCode.RETAIN_NOT_SUPPORTED,
        ),
        ({"topic_levels_max": 2}, Will(b"a/b/c", b""), ReasonCode.TOPIC_NAME_INVALID),
        ({}, Will(b"$SYS/broker", b""), ReasonCode.NOT_AUTHORIZED),
    ],
)
def test_a_will_that_could_not_be_published_is_refused(
    limits: dict[str, object], will: Will, reason: ReasonCode
) -> None:
    world = World(**limits)  # type: ignore[arg-type]
    assert refusal(world, will=will).reason == reason
    assert world.broker.sessions == {}


def test_what_3_1_1_has_no_return_code_for_gets_no_answer() -> None:
    world = World(maximum_qos=1)
    assert_silence(say(world, MQTT_3_1_1, Connect(MQTT_3_1_1, "c", will=Will(b"w", b"", qos=2))))


@both
def test_a_will_that_the_client_may_not_publish_is_refused(version: int) -> None:
    world = World(rules=(AccessRule(publish=("mine/#",), subscribe=("#",)),))
    packet = refusal(world, version=version, will=Will(b"yours", b""))
    assert packet.reason == ReasonCode.NOT_AUTHORIZED
    assert world.client("c", version=version, will=Will(b"mine/w", b"")).connack is not None


# Keep alive --------------------------------------------------------------------------------------


@both
def test_silence_of_one_and_a_half_keep_alives_ends_it(version: int) -> None:
    world = World()
    client = world.client("c", version=version, keep_alive_seconds=10)
    world.pass_time(15)
    assert not client.is_closed
    world.pass_time(TICK_SECONDS_MAX)
    client.assert_ended(ReasonCode.KEEP_ALIVE_TIMEOUT)


@given(
    keep_alive=st.integers(1, 100),
    silences=st.lists(st.floats(0, 1.5), max_size=3),
    tick_seconds=st.floats(0.02, TICK_SECONDS_MAX),
    late=st.none() | st.floats(0, 160),
    packet=st.sampled_from([Ping(PacketType.PINGREQ), Publish(b"t", b"")]),
)
def test_the_time_of_a_silent_client(
    keep_alive: int, silences: list[float], tick_seconds: float, late: float | None, packet: Packet
) -> None:
    """Never closed before one and a half keep alives, and soon after them.

    If the broker was held up, once and for longer than that, soon after that.
    """
    world = World()
    client = world.client("c", keep_alive_seconds=keep_alive)
    client.send(packet)
    client.send(packet)  # the topic is known from here on
    said_at = world.now
    ticked_at = world.now

    def tick_until(when: float) -> None:
        nonlocal ticked_at
        while ticked_at + tick_seconds <= when and not client.is_closed:
            ticked_at += tick_seconds
            world.now = ticked_at
            world.broker.tick(ticked_at)
        world.now = when

    for silence in silences:
        said_at += silence * keep_alive
        tick_until(said_at)
        client.send(packet)
        assert not client.is_closed
    end = said_at + 1.5 * keep_alive
    if late is not None:
        ticked_at = max(ticked_at, said_at + late)
        world.now = ticked_at
        world.broker.tick(ticked_at)
        assert not client.is_closed
        end = max(end, ticked_at)
    tick_until(end - 1e-6)
    assert not client.is_closed
    tick_until(end + LATE_SECONDS_MAX)
    assert client.is_closed


def test_what_waits_in_a_socket_while_the_broker_is_held_up_counts() -> None:
    world = World()
    client = world.client("c", keep_alive_seconds=1)
    world.now += 10
    world.broker.tick(world.now)
    client.send(Ping(PacketType.PINGREQ))
    world.pass_time(1)
    assert not client.is_closed


@both
def test_every_packet_shows_that_a_client_is_alive(version: int) -> None:
    world = World()
    client = world.client("c", version=version, keep_alive_seconds=10)
    for packet in (Ping(PacketType.PINGREQ), Publish(b"t", b"")) * 3:
        world.pass_time(15)
        client.send(packet)
    assert not client.is_closed


def test_the_servers_keep_alive_counts_where_it_was_told() -> None:
    world = World(keep_alive_max_seconds=10)
    clients = [world.client(f"c{asked}", keep_alive_seconds=asked) for asked in (0, 100, 8)]
    told = [client.connack.keep_alive_seconds for client in clients if client.connack]
    assert told == [10, 10, None]
    world.pass_time(12 + TICK_SECONDS_MAX)
    assert [client.is_closed for client in clients] == [False, False, True]
    world.pass_time(3)
    assert [client.is_closed for client in clients] == [True, True, True]


def test_3_1_1_keeps_its_own_keep_alive() -> None:
    world = World(keep_alive_max_seconds=10)
    client = world.client("c", version=MQTT_3_1_1, keep_alive_seconds=100)
    world.pass_time(149)
    assert not client.is_closed


# DISCONNECT --------------------------------------------------------------------------------------


@both
def test_disconnect_closes_without_an_answer(version: int) -> None:
    world = World()
    witness = world.client("witness")
    witness.subscribe("#")
    client = world.client("c", version=version)
    client.send(Disconnect(), Publish(b"t", b"behind it"))
    assert_silence(client)
    assert witness.take() == []


def test_the_brokers_disconnect_has_no_session_expiry() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    world.client("c", **PERSISTENT)
    packet = client.take_one()
    assert isinstance(packet, Disconnect)
    assert packet.reason == ReasonCode.SESSION_TAKEN_OVER
    assert packet.session_expiry_seconds is None


@both
def test_clients_are_told_when_the_broker_stops(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    world.broker.stop(world.now)
    client.assert_ended(ReasonCode.SERVER_SHUTTING_DOWN)


# Whose session it is ------------------------------------------------------------------------------


def test_what_one_user_was_promised_is_not_for_another_who_takes_over() -> None:
    rules = (AccessRule(user="alice", subscribe=("#",)), AccessRule(publish=("#",)))
    world = World(rules=rules, ownership=OwnershipRules(allows_takeover=True))
    alice = world.client("shared-id", user="alice", **PERSISTENT)
    alice.subscribe("secret/#", qos=1)
    alice.lose()
    world.client("publisher", user="carol").publish("secret/1", b"for alice", 1)
    bob = world.client("shared-id", user="bob", **PERSISTENT)
    assert bob.connack is not None
    assert bob.connack.reason == ReasonCode.SUCCESS
    assert not bob.connack.session_present
    assert bob.early == []
    world.client("publisher", user="carol").publish("secret/2", b"for alice", 1)
    assert bob.messages() == []


def test_who_takes_over_a_connection_needs_no_more_room() -> None:
    world = World(connections_max=1)
    world.client("only")
    again = Client(world, "only")
    assert again.connect().reason == ReasonCode.SUCCESS
    assert Client(world, "other").connect().reason == ReasonCode.SERVER_BUSY


def test_subscriptions_that_are_forbidden_by_now_are_not_resumed() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("open/#", "secret/#", qos=1)
    world.broker.change_rules(AccessRules((AccessRule(publish=("#",), subscribe=("open/#",)),)))
    client.lose()
    again = world.client("c", **PERSISTENT)
    assert again.connack is not None
    assert again.connack.session_present
    publisher = world.client("publisher")
    publisher.publish("secret/x", b"no", 1)
    publisher.publish("open/x", b"yes", 1)
    assert again.payloads() == [b"yes"]
    assert [key[1] for key in world.disk.tables["subscriptions"]] == ["open/#"]
