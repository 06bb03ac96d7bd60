"""Packets survive encoding and decoding, and paho-mqtt and our codec understand each other."""

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from dovetail import codec
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from dovetail.errors import ReasonCode
from support.processes.broker_process import WAIT_SECONDS
from support.strategies import packets


@st.composite
def versions_and_packets(draw: st.DrawFn) -> tuple[int, Packet]:
    version = draw(st.sampled_from(packets.VERSIONS))
    return version, draw(packets.packets(version))


def decode_whole(version: int, encoded: bytes) -> Packet:
    found = codec.decode_length(encoded, 1)
    assert found is not None
    length, at = found
    assert len(encoded) == at + length
    return codec.decode(version, encoded[0], encoded[at:])


@given(versions_and_packets())
def test_round_trip(case: tuple[int, Packet]) -> None:
    version, packet = case
    assert decode_whole(version, codec.encode(version, packet)) == packet


@given(packets.publishes(MQTT_5))
def test_round_trip_of_the_direct_way(packet: Publish) -> None:
    encoded = codec.encode_publish(
        MQTT_5,
        packet.topic,
        packet.payload,
        qos=packet.qos,
        retain=packet.retain,
        duplicate=packet.duplicate,
        packet_id=packet.packet_id,
        properties=packet.properties,
        expiry_seconds=packet.expiry_seconds,
        identifiers=packet.identifiers,
        alias=packet.alias,
    )
    assert encoded == codec.encode(MQTT_5, packet)
    found = codec.decode_length(encoded, 1)
    assert found is not None
    assert codec.decode_publish(MQTT_5, encoded[0], encoded[found[1] :]) == packet


@given(packets.user_properties)
def test_user_properties_round_trip(user: tuple[tuple[str, str], ...]) -> None:
    properties = codec.forwardable_properties(content_type="x", user=user)
    assert codec.user_properties(properties) == user


class Conversation:
    """A paho client on one end of a connection, the codec on the other, and no threads."""

    def __init__(self, client: Client, listener: socket.socket, version: int) -> None:
        self.client = client
        self._listener = listener
        self._version = version
        self._connection: socket.socket | None = None
        self._received = b""

    def connect(self, **options: Any) -> None:  # noqa: ANN401
        host, port = self._listener.getsockname()
        self.client.connect(host, port, keepalive=60, **options)
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(WAIT_SECONDS)

    def hear(self) -> Packet:
        """Return the next packet that the client sends."""
        assert self._connection is not None
        while True:
            found = codec.decode_length(self._received, 1)
            if found is not None and len(self._received) >= sum(found):
                length, at = found
                first_byte, body = self._received[0], self._received[at : at + length]
                self._received = self._received[at + length :]
                return codec.decode(self._version, first_byte, body)
            while self.client.want_write():
                self.client.loop_write()
            received = self._connection.recv(4096)
            assert received, "the client has closed the connection"
            self._received += received

    def say(self, packet: Packet) -> MQTTErrorCode:
        assert self._connection is not None
        self._connection.sendall(codec.encode(self._version, packet))
        return self.client.loop(timeout=WAIT_SECONDS)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        own = self.client.socket()
        if own is not None:
            own.close()


@pytest.fixture
def conversation(request: pytest.FixtureRequest) -> Iterator[Conversation]:
    version: int = request.param
    client = Client(CallbackAPIVersion.VERSION2, "paho", protocol=MQTTProtocolVersion(version))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        talk = Conversation(client, listener, version)
        with closing(talk):
            yield talk


def properties_of(packet_type: int, **values: Any) -> Any:  # noqa: ANN401
    make: Any = Properties
    properties = make(packet_type)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


@pytest.mark.parametrize("conversation", [MQTT_3_1_1], indirect=True)
def test_paho_speaks_version_4(conversation: Conversation) -> None:
    client = conversation.client
    told: list[Any] = []
    client.on_connect = lambda _c, _u, flags, reason, _p: told.append(
        (flags.session_present, reason.is_failure)
    )
    client.on_subscribe = lambda _c, _u, _i, reasons, _p: told.append([r.value for r in reasons])
    client.on_unsubscribe = lambda *_: told.append("unsubscribed")
    client.on_publish = lambda _c, _u, packet_id, _r, _p: told.append(packet_id)
    client.on_message = lambda _c, _u, message: told.append((message.topic, message.payload))

    client.username_pw_set("user", "word")
    client.will_set("will", b"gone", qos=1, retain=True)
    conversation.connect()
    assert conversation.hear() == Connect(
        MQTT_3_1_1,
        "paho",
        keep_alive_seconds=60,
        user="user",
        password=b"word",
        will=Will(b"will", b"gone", 1, retain=True),
    )
    conversation.say(Connack(session_present=False, reason=ReasonCode.SUCCESS))
    assert told.pop() == (False, False)

    _, packet_id = client.subscribe([("a/+", 2), ("b", 0)])
    assert packet_id is not None
    requests = [SubscriptionRequest("a/+", 2), SubscriptionRequest("b")]
    assert conversation.hear() == Subscribe(packet_id, requests)
    conversation.say(SubscriptionAck(PacketType.SUBACK, packet_id, [1, 0x87]))
    assert told.pop() == [1, 0x80]

    packet_id = client.publish("a/é", b"x" * 200, qos=2).mid
    assert conversation.hear() == Publish("a/é".encode(), b"x" * 200, 2, packet_id=packet_id)
    conversation.say(Ack(PacketType.PUBREC, packet_id))
    assert conversation.hear() == Ack(PacketType.PUBREL, packet_id)
    conversation.say(Ack(PacketType.PUBCOMP, packet_id))
    assert told.pop() == packet_id

    conversation.say(Publish(b"a/b", b"hello", 1, packet_id=77))
    assert told.pop() == ("a/b", b"hello")
    assert conversation.hear() == Ack(PacketType.PUBACK, 77)

    _, packet_id = client.unsubscribe("a/+")
    assert packet_id is not None
    assert conversation.hear() == Unsubscribe(packet_id, ["a/+"])
    conversation.say(SubscriptionAck(PacketType.UNSUBACK, packet_id, [0]))
    assert told.pop() == "unsubscribed"

    client.disconnect()
    assert conversation.hear() == Disconnect()
    assert not told


@pytest.mark.parametrize("conversation", [MQTT_5], indirect=True)
def test_paho_speaks_version_5(conversation: Conversation) -> None:
    client = conversation.client
    user = [("k", "v"), ("k", "é")]
    told: list[Any] = []
    messages: list[Any] = []
    client.on_connect = lambda _c, _u, flags, reason, properties: told.append(
        (flags.session_present, reason.value, properties.json())
    )
    client.on_subscribe = lambda _c, _u, _i, reasons, properties: told.append(
        ([reason.value for reason in reasons], properties.json())
    )
    client.on_unsubscribe = lambda _c, _u, _i, reasons, _p: told.append(
        [reason.value for reason in reasons]
    )
    client.on_publish = lambda _c, _u, packet_id, reason, properties: told.append(
        (packet_id, reason.value, properties.json())
    )
    client.on_message = lambda _c, _u, message: messages.append(message)
    client.on_disconnect = lambda _c, _u, _f, reason, properties: told.append(
        (reason.value, properties.json())
    )

    will_properties = properties_of(
        PacketTypes.WILLMESSAGE, WillDelayInterval=5, MessageExpiryInterval=6, ContentType="x"
    )
    client.will_set("will", b"gone", properties=will_properties)
    conversation.connect(
        clean_start=False,
        properties=properties_of(
            PacketTypes.CONNECT,
            SessionExpiryInterval=0xFFFF_FFFF,
            ReceiveMaximum=20,
            MaximumPacketSize=100_000,
            TopicAliasMaximum=3,
            RequestResponseInformation=1,
            RequestProblemInformation=0,
            AuthenticationMethod="m",
            AuthenticationData=b"\0\1",
            UserProperty=user,
        ),
    )
    assert conversation.hear() == Connect(
        MQTT_5,
        "paho",
        clean_start=False,
        keep_alive_seconds=60,
        will=Will(
            b"will",
            b"gone",
            properties=codec.forwardable_properties(content_type="x"),
            expiry_seconds=6,
            delay_seconds=5,
        ),
        session_expiry_seconds=0xFFFF_FFFF,
        receive_max=20,
        packet_bytes_max=100_000,
        alias_max=3,
        wants_response_information=True,
        wants_problem_information=False,
        authentication_method="m",
        authentication_data=b"\0\1",
        user_properties=tuple(user),
    )
    conversation.say(
        Connack(
            session_present=True,
            reason=ReasonCode.SUCCESS,
            session_expiry_seconds=7,
            receive_max=8,
            maximum_qos=1,
            retain_available=False,
            packet_bytes_max=9,
            assigned_client_id="assigned",
            alias_max=10,
            reason_string="welcome",
            keep_alive_seconds=11,
            response_information="information",
            authentication_method="m",
            user_properties=tuple(user),
        )
    )
    connack = {
        "SessionExpiryInterval": 7,
        "ReceiveMaximum": 8,
        "MaximumQoS": 1,
        "RetainAvailable": 0,
        "MaximumPacketSize": 9,
        "AssignedClientIdentifier": "assigned",
        "TopicAliasMaximum": 10,
        "ReasonString": "welcome",
        "ServerKeepAlive": 11,
        "ResponseInformation": "information",
        "AuthenticationMethod": "m",
        "UserProperty": user,
    }
    assert told.pop() == (True, 0, connack)

    options = SubscribeOptions(qos=2, noLocal=True, retainAsPublished=True, retainHandling=2)
    _, packet_id = client.subscribe(
        [("a/+", options)],
        properties=properties_of(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=300),
    )
    assert packet_id is not None
    request = SubscriptionRequest(
        "a/+", 2, no_local=True, retain_as_published=True, retain_handling=2
    )
    assert conversation.hear() == Subscribe(packet_id, [request], identifier=300)
    conversation.say(SubscriptionAck(PacketType.SUBACK, packet_id, [0x87], "no", tuple(user)))
    assert told.pop() == ([0x87], {"ReasonString": "no", "UserProperty": user})

    info = client.publish(
        "a",
        b"payload",
        qos=1,
        retain=True,
        properties=properties_of(
            PacketTypes.PUBLISH,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=12,
            TopicAlias=3,
            ResponseTopic="reply",
            CorrelationData=b"\0",
            UserProperty=user,
        ),
    )
    forwarded = codec.forwardable_properties(
        payload_format=1, response_topic="reply", correlation_data=b"\0", user=tuple(user)
    )
    assert conversation.hear() == Publish(
        b"a", b"payload", 1, True, False, info.mid, forwarded, expiry_seconds=12, alias=3
    )
    conversation.say(Ack(PacketType.PUBACK, info.mid, 0x10, "none", tuple(user)))
    assert told.pop() == (info.mid, 0x10, {"ReasonString": "none", "UserProperty": user})

    conversation.say(Publish(b"a/b", b"", 2, False, False, 77, forwarded, 12, identifiers=(300, 1)))
    assert conversation.hear() == Ack(PacketType.PUBREC, 77)
    conversation.say(Ack(PacketType.PUBREL, 77))
    assert conversation.hear() == Ack(PacketType.PUBCOMP, 77)
    message = messages.pop()
    assert (message.topic, message.payload, message.qos) == ("a/b", b"", 2)
    assert message.properties.json() == {
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 12,
        "ResponseTopic": "reply",
        "CorrelationData": "00",
        "SubscriptionIdentifier": [300, 1],
        "UserProperty": user,
    }

    _, packet_id = client.unsubscribe("a/+")
    assert packet_id is not None
    assert conversation.hear() == Unsubscribe(packet_id, ["a/+"])
    conversation.say(SubscriptionAck(PacketType.UNSUBACK, packet_id, [0x11]))
    assert told.pop() == [0x11]

    conversation.say(
        Disconnect(ReasonCode.SERVER_MOVED, reason_string="gone", server_reference="there")
    )
    assert told.pop() == (0x9D, {"ReasonString": "gone", "ServerReference": "there"})
    assert not told
