"""`dovetail sub` against Mosquitto, with mosquitto_pub at the other end."""

import json
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.client import subscriber
from support.processes.broker_process import WAIT_SECONDS
from support.processes.client_commands import CommandResult, refusal, run, start
from support.processes.mosquitto import Mosquitto
from support.processes.scripted_server import CLOSE, CONNACK, ScriptedServer


def subscribed(broker: Mosquitto, *arguments: object, name: str) -> "subprocess.Popen[str]":
    """Start `dovetail sub`, and wait until it has subscribed."""
    options = ["--port", broker.port, "--client-id", name]
    process = start("sub", *arguments, *options)
    broker.wait_for_log(lambda line: "Sending SUBACK" in line and line.endswith(name))
    return process


def finished(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    with process:
        output, errors = process.communicate(timeout=WAIT_SECONDS)
    return process.returncode, output, errors


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_are_printed(version: str, qos: int, mosquitto: Mosquitto) -> None:
    name = f"printed-{version}-{qos}"
    options = ["--count", "2", "--qos", qos, "--mqtt", version]
    process = subscribed(mosquitto, "a/+", "b", *options, "-v", name=name)
    mosquitto.publish("a/x", "21.5 °C", "-q", "2")
    mosquitto.publish("b", b"\xff", "-q", "2")
    assert finished(process) == (0, "a/x 21.5 °C\nb \\xff\n", "")


def retained(
    broker: Mosquitto, topic: str, payload: bytes | str, *options: object
) -> CommandResult:
    broker.publish(topic, payload, "-r")
    return run("sub", topic, "--count", "1", "--port", broker.port, *options)


def test_formats(mosquitto: Mosquitto) -> None:
    assert retained(mosquitto, "f", "é").text == "é\n"
    assert retained(mosquitto, "f", b"\xff\n", "--format", "raw").output == b"\xff\n"
    assert retained(mosquitto, "f", b"\xff\n", "--format", "hex").text == "ff0a\n"
    assert retained(mosquitto, "f", b"\xff\n", "--format", "base64", "-v").text == "f /wo=\n"


def test_json(mosquitto: Mosquitto) -> None:
    name = "json"
    options = ["--json", "--count", "2", "--qos", "1", "--identifier", "300"]
    process = subscribed(mosquitto, "j/#", *options, name=name)
    properties = [
        *("-V", "5", "-D", "publish", "user-property", "unit", "°C"),
        *("-D", "publish", "user-property", "unit", "K"),
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "response-topic", "answers"),
        *("-D", "publish", "correlation-data", "42"),
        *("-D", "publish", "message-expiry-interval", "60"),
    ]
    mosquitto.publish("j/a", "text", "-q", "1", *properties)
    mosquitto.publish("j/b", b"\xff\x00")
    code, output, errors = finished(process)
    assert (code, errors) == (0, "")
    first, second = map(json.loads, output.splitlines())
    for message in (first, second):
        age = datetime.now(UTC) - datetime.fromisoformat(message.pop("time"))
        assert timedelta(0) <= age < timedelta(minutes=5)
    assert first == {
        "topic": "j/a",
        "payload": "text",
        "qos": 1,
        "retain": False,
        "user_properties": [["unit", "°C"], ["unit", "K"]],
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": "42",
        "subscription_identifiers": [300],
        "expiry_seconds": 60,
    }
    assert second == {
        "topic": "j/b",
        "payload": "/wA=",
        "encoding": "base64",
        "qos": 0,
        "retain": False,
        "subscription_identifiers": [300],
    }


def test_every_message_is_flushed(mosquitto: Mosquitto) -> None:
    with subscribed(mosquitto, "flush", name="flush") as process:
        assert process.stdout is not None
        for text in ("one", "two"):
            mosquitto.publish("flush", text)
            assert process.stdout.readline() == f"{text}\n"
        process.send_signal(signal.SIGINT)
        assert finished(process) == (0, "", "")


def test_retained_messages_can_be_left_out(mosquitto: Mosquitto) -> None:
    mosquitto.publish("old", "retained", "-r")
    process = subscribed(mosquitto, "old", "--no-retained", "--count", "1", name="no-retained")
    mosquitto.publish("old", "new")
    assert finished(process) == (0, "new\n", "")


def test_an_interrupt_is_an_error_only_with_a_count(mosquitto: Mosquitto) -> None:
    for options, code in (([], 0), (["--count", "3"], 130)):
        name = f"interrupted-{code}"
        process = subscribed(mosquitto, "x", *options, name=name)
        process.send_signal(signal.SIGINT)
        assert finished(process) == (code, "", "")
        mosquitto.wait_for_log(
            lambda line: "Received DISCONNECT" in line and line.endswith(name)  # noqa: B023
        )


def test_a_reader_that_leaves_ends_it_at_once(mosquitto: Mosquitto) -> None:
    process = subscribed(mosquitto, "quiet/topic", name="left-alone")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 1
    assert process.stderr.read() == ""
    process.stderr.close()
    mosquitto.wait_for_log(
        lambda line: "Received DISCONNECT" in line and line.endswith("left-alone")
    )


def test_output_that_cannot_be_written(mosquitto: Mosquitto) -> None:
    mosquitto.publish("full", "x", "-r")
    command = [sys.executable, "-m", "dovetail", "sub", "full", "--port", str(mosquitto.port)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
    assert done.returncode == 1
    assert "cannot write to standard output" in done.stderr
    assert "Traceback" not in done.stderr


def test_time_out(mosquitto: Mosquitto) -> None:
    sub = ["sub", "never", "--port", mosquitto.port, "--timeout", "0.1"]
    assert run(*sub).text == ""
    assert refusal(run(*sub, "--count", "2")) == "0 of 2 messages came in 0.1 seconds.\n"


def test_a_lost_connection_is_reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "RETRY_SECONDS_MIN", 0.1)
    with Mosquitto(tmp_path) as broker:
        done: list[CommandResult] = []

        def subscribe() -> None:
            options = ["--client-id", "again", "--qos", "1", "--port", broker.port]
            done.append(run("sub", "a", "--count", "2", *options))

        thread = threading.Thread(target=subscribe)
        thread.start()
        for text in ("before", "after"):
            broker.wait_for_log(lambda line: "Sending SUBACK" in line and "again" in line)
            broker.publish("a", text, "-q", "1")
            broker.wait_for_log(lambda line: "Received PUBACK from again" in line)
            if text == "before":
                broker.stop()
                broker.start()
        thread.join(WAIT_SECONDS)
    assert (done[0].returncode, done[0].output) == (0, b"before\nafter\n")
    address = f"localhost:{broker.port}"
    assert done[0].errors.splitlines() == [
        f"dovetail: the connection to {address} was lost. Connecting again.",
        f"dovetail: connected to {address} again.",
    ]


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_persistent_session_loses_nothing(version: str, qos: int, mosquitto: Mosquitto) -> None:
    name = f"kept-{version}-{qos}"
    options = ["--keep-session", "--client-id", name, "--qos", qos, "--mqtt", version]
    sub = ["sub", name, "--port", mosquitto.port, *options]
    assert run(*sub, "--timeout", "0").text == ""
    for number in range(4):
        mosquitto.publish(name, f"message {number}", "-q", "2")
    # At QoS 2, and with 3.1.1, which cannot bound messages in flight, some are half delivered when
    # the first run ends; then the second run has fewer.
    assert run(*sub, "--count", "1").text == "message 0\n"
    if qos == 1 or version == "5":
        assert run(*sub, "--count", "3").text == "message 1\nmessage 2\nmessage 3\n"


def test_a_clean_start_discards_the_session(mosquitto: Mosquitto) -> None:
    sub = ["sub", "clean", "--port", mosquitto.port, "--client-id", "clean", "--qos", "1"]
    assert run(*sub, "--keep-session", "--timeout", "0").text == ""
    mosquitto.publish("clean", "lost", "-q", "1")
    assert run(*sub, "--timeout", "0.1").text == ""
    assert run(*sub, "--keep-session", "--timeout", "0.1").text == ""


SUBACK = b"\x90\x04\x00\x01\x00\x00"


def scripted(server: ScriptedServer, *arguments: object) -> CommandResult:
    return run("sub", "a/b", "--host", "127.0.0.1", "--port", server.port, *arguments)


def test_a_refused_subscription_is_an_error() -> None:
    with ScriptedServer([CONNACK, b"\x90\x09\x00\x01\x05\x1f\x00\x02no\x87"]) as server:
        message = refusal(scripted(server))
    assert message == (
        f"127.0.0.1:{server.port} refused the subscription to a/b: not authorised (0x87): no\n"
    )
    with ScriptedServer([b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x80"]) as server:
        message = refusal(scripted(server, "--mqtt", "3.1.1"))
    assert "unspecified error (0x80)\nMQTT 3.1.1 has no words for the reason" in message


def test_a_reason_string_of_several_lines() -> None:
    said = b"no attribute 'x\x1b'\nx < 1\n^"
    properties = b"\x1f" + len(said).to_bytes(2, "big") + said
    body = b"\x00\x01" + bytes([len(properties)]) + properties + b"\x83"
    with ScriptedServer([CONNACK, b"\x90" + bytes([len(body)]) + body]) as server:
        done = scripted(server, "--where", "x < 1")
    first, *more = done.errors.splitlines()
    assert first == (
        f"dovetail: error: 127.0.0.1:{server.port} refused the subscription to a/b: "
        "implementation specific error (0x83): no attribute 'x\\x1b'"
    )
    assert more == ["x < 1", "^"]


def test_a_clause_is_a_user_property_of_subscribe() -> None:
    clause = "40 <= lat < 41"
    with ScriptedServer([CONNACK, b"\x90\x05\x00\x01\x00\x00\x00"]) as server:
        done = scripted(server, "c/#", "--where", clause, "--timeout", "0")
    assert done.text == ""
    pair = b"\x26\x00\x05where" + len(clause).to_bytes(2, "big") + clause.encode()
    body = b"\x00\x01" + bytes([len(pair)]) + pair + b"\x00\x03a/b\x00\x00\x03c/#\x00"
    assert server.packets[1] == b"\x82" + bytes([len(body)]) + body


@pytest.mark.parametrize("topic_filter", ["c/#?lat<41&road=A1", "c/+?lat<+41", "c?x=%23/#"])
def test_a_clause_behind_a_filter_is_sent_as_it_is(topic_filter: str) -> None:
    """Only the server knows where a clause may be."""
    with ScriptedServer([b"\x20\x02\x00\x00", b"\x90\x04\x00\x01\x00\x00"]) as server:
        done = scripted(server, topic_filter, "--mqtt", "3.1.1", "--timeout", "0")
    assert done.text == ""
    assert server.packets[1].endswith(topic_filter.encode() + b"\x00")


def test_a_lesser_qos_is_noted() -> None:
    with ScriptedServer([CONNACK, SUBACK]) as server:
        done = scripted(server, "--qos", "2", "--timeout", "0")
    assert done.returncode == 0
    assert done.errors == f"dovetail: 127.0.0.1:{server.port} grants a/b QoS 0 only.\n"


@pytest.mark.parametrize(
    ("arguments", "properties", "options"),
    [
        ([], b"\x00", 0b0000_0000),
        (["--qos", "2"], b"\x00", 0b0000_0010),
        (["--no-local"], b"\x00", 0b0000_0100),
        (["--retain-as-published"], b"\x00", 0b0000_1000),
        (["--no-retained"], b"\x00", 0b0010_0000),
        (["--identifier", "300"], b"\x03\x0b\xac\x02", 0b0000_0000),
    ],
)
def test_subscription_options(arguments: list[str], properties: bytes, options: int) -> None:
    with ScriptedServer([CONNACK, b"\x90\x04\x00\x01\x00\x02"]) as server:
        assert scripted(server, "--timeout", "0", *arguments).returncode == 0
    body = b"\x00\x01" + properties + b"\x00\x03a/b" + bytes([options])
    assert server.packets[1] == bytes([0x82, len(body)]) + body


TAKEN_OVER = b"\xe0\x01\x8e"
SHUTTING_DOWN = b"\xe0\x01\x8b"
MESSAGE = b"\x30\x08\x00\x03a/b\x00hi"


def test_a_client_does_not_reconnect_after_a_take_over() -> None:
    with ScriptedServer([CONNACK, SUBACK + TAKEN_OVER]) as server:
        message = refusal(scripted(server))
    assert message == f"127.0.0.1:{server.port} ended the connection: session taken over (0x8E)\n"


def test_a_server_may_be_busy_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "RETRY_SECONDS_MIN", 0.01)
    busy = b"\x20\x03\x00\x89\x00"
    with ScriptedServer(
        [CONNACK, SUBACK + SHUTTING_DOWN],
        [busy],
        [CLOSE],
        [CONNACK, b"\x90\x04\x00\x02\x00\x00" + MESSAGE],
    ) as server:
        done = scripted(server, "--count", "1")
    assert (done.returncode, done.output) == (0, b"hi\n")
    lost, again = done.errors.splitlines()
    assert "server shutting down (0x8B)" in lost
    assert again.endswith("again.")


def test_a_server_that_refuses_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "RETRY_SECONDS_MIN", 0.01)
    with ScriptedServer([CONNACK, SUBACK + SHUTTING_DOWN], [b"\x20\x03\x00\x8a\x00"]) as server:
        done = scripted(server)
    assert done.returncode == 2
    assert done.errors.endswith("refused the connection: banned (0x8A)\n")


def test_a_present_session_is_not_subscribed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriber, "RETRY_SECONDS_MIN", 0.01)
    present = b"\x20\x03\x01\x00\x00"
    with ScriptedServer([CONNACK, SUBACK + SHUTTING_DOWN], [present + MESSAGE]) as server:
        options = ["--session-expiry", "60", "--client-id", "x", "--count", "1"]
        assert scripted(server, *options).output == b"hi\n"
    kinds = [packet[0] >> 4 for packet in server.packets]
    assert kinds == [1, 8, 1, 14]
    clean_starts = [bool(packet[9] & 0x02) for packet in server.packets if packet[0] >> 4 == 1]
    assert clean_starts == [True, False]
