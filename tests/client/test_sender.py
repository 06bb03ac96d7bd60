"""The sender against servers that drop connections, refuse messages, or are away."""

import pytest

from dovetail.client.connection import ConnectError, ConnectionLostError, RequestRefusedError
from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.sender import MqttMessage, Sender
from support.processes.ports import ReservedPort
from support.processes.scripted_server import CLOSE, CONNACK, ScriptedServer


def puback(packet_id: int, reason: int = 0) -> bytes:
    return bytes([0x40, 3, 0, packet_id, reason])


def sender(port: int, wait_seconds: float = 5.0) -> Sender:
    options = ConnectionOptions(host="127.0.0.1", port=port)
    return Sender(options, wait_seconds=wait_seconds, sleep=lambda _: None)


def messages(*payloads: bytes, qos: int = 1) -> list[MqttMessage]:
    return [MqttMessage("a/1", payload, qos) for payload in payloads]


def published(server: ScriptedServer) -> list[bytes]:
    """Return the payloads, one byte each, in the order of arrival."""
    return [packet[-1:] for packet in server.packets if packet[:1] and packet[0] >> 4 == 3]


def test_unacknowledged_messages_are_resent_in_order() -> None:
    with ScriptedServer([CONNACK, puback(1), CLOSE], [CONNACK, puback(1), puback(2)]) as server:
        sending = sender(server.port)
        for message in messages(b"1", b"2", b"3"):
            sending.send(message)
        sending.finish()
        sending.close()
    payloads = published(server)
    assert payloads[0] == b"1"
    assert payloads[-2:] == [b"2", b"3"]


def test_a_refusal_names_the_topic_and_the_reason() -> None:
    with ScriptedServer([CONNACK, puback(1), puback(2, 0x87)]) as server:
        sending = sender(server.port)
        for topic in ("a/good", "a/bad"):
            sending.send(MqttMessage(topic, b"x"))
        with pytest.raises(
            RequestRefusedError, match=r"publication to a/bad: not authorised \(0x87\)"
        ):
            sending.finish()
        sending.close()


def test_messages_of_another_qos_wait_for_all_answers() -> None:
    with ScriptedServer([CONNACK, puback(1)]) as server:
        sending = sender(server.port)
        for message in [*messages(b"1"), *messages(b"2", b"3", qos=0)]:
            sending.send(message)
        sending.finish()
        sending.close()
    assert published(server) == [b"1", b"2", b"3"]


def test_the_wait_for_a_server_that_is_away_is_bounded() -> None:
    with ReservedPort() as nobody, pytest.raises(ConnectError, match="cannot connect"):
        sender(nobody.port, wait_seconds=0).send(messages(b"1")[0])
    taken_over = b"\xe0\x01\x8e"
    with ScriptedServer([CONNACK, taken_over]) as server:
        sending = sender(server.port)
        sending.send(messages(b"1")[0])
        with pytest.raises(ConnectionLostError, match="session taken over"):
            sending.finish()
