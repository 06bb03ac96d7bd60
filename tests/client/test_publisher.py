"""`dovetail pub` against Mosquitto, with mosquitto_sub at the other end."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from dovetail.client import connection
from dovetail.client.publisher import answer_seconds_max
from support.processes.broker_process import WAIT_SECONDS
from support.processes.client_commands import refusal, run, start
from support.processes.mosquitto import Mosquitto
from support.processes.scripted_server import CONNACK, ScriptedServer


def printed(subscriber: "subprocess.Popen[str]") -> list[str]:
    output, _ = subscriber.communicate(timeout=WAIT_SECONDS)
    assert subscriber.returncode == 0
    return output.splitlines()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_arrives(version: str, qos: int, mosquitto: Mosquitto) -> None:
    subscriber = mosquitto.subscriber("-t", "a/#", "-q", "2", "-C", "1", "-F", "%t %q %r %p")
    done = run(
        *("pub", "a/b", "21.5 °C", "--qos", qos, "--mqtt", version, "--port", mosquitto.port)
    )
    assert done.text == ""
    assert printed(subscriber) == [f"a/b {qos} 0 21.5 °C"]


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        (["21.5"], b"", b"21.5"),
        (["--", "-5"], b"", b"-5"),
        ([""], b"", b""),
        (["\udcff\udcfe"], b"", b"\xff\xfe"),  # bytes that are no UTF-8, as Python hands them on
        (["-"], b"two\nlines\n", b"two\nlines\n"),
        (["--stdin"], bytes(range(256)), bytes(range(256))),
        (["--stdin"], b"", b""),
        (["--null"], b"not read", b""),
    ],
)
def test_payloads(
    arguments: list[str], given: bytes, expected: bytes, mosquitto: Mosquitto
) -> None:
    subscriber = mosquitto.subscriber("-t", "payload", "-C", "1", "-F", "%l %x")
    run("pub", "--port", mosquitto.port, "payload", *arguments, given=given)
    assert printed(subscriber) == [f"{len(expected)} {expected.hex()}"]


def test_a_file(mosquitto: Mosquitto, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(os.urandom(300_000))
    subscriber = mosquitto.subscriber("-t", "file", "-C", "1", "-F", "%x")
    assert run("pub", "file", "--file", file, "--port", mosquitto.port).text == ""
    assert printed(subscriber) == [file.read_bytes().hex()]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_lines(qos: int, mosquitto: Mosquitto) -> None:
    lines = [f"line {number}" for number in range(500)]
    given = "\n".join(["", *lines[:250], "", *lines[250:]]).encode()
    subscriber = mosquitto.subscriber("-t", "lines", "-q", str(qos), "-C", "500")
    pub = ["pub", "lines", "--lines", "--qos", qos, "--port", mosquitto.port]
    assert run(*pub, given=given).text == ""
    assert printed(subscriber) == lines


def test_lines_go_out_as_they_come(mosquitto: Mosquitto) -> None:
    subscriber = mosquitto.subscriber("-t", "live", "-C", "3")
    assert subscriber.stdout is not None
    with start("pub", "live", "--lines", "--qos", "1", "--port", mosquitto.port) as publisher:
        assert publisher.stdin is not None
        for text in ("one\r\n", "two\n"):
            publisher.stdin.write(text)
            publisher.stdin.flush()
            assert subscriber.stdout.readline().strip() == text.strip()
        publisher.stdin.write("without an end")
        output, errors = publisher.communicate(timeout=WAIT_SECONDS)
    assert (publisher.returncode, output, errors) == (0, "", "")
    assert printed(subscriber) == ["without an end"]


def test_repeat_and_interval(mosquitto: Mosquitto) -> None:
    subscriber = mosquitto.subscriber("-t", "repeat", "-C", "3")
    options = ["--repeat", "3", "--interval", "0.05", "--port", mosquitto.port]
    began = time.monotonic()
    assert run("pub", "repeat", "x", *options).text == ""
    assert time.monotonic() - began >= 2 * 0.05
    assert printed(subscriber) == ["x"] * 3


def test_properties(mosquitto: Mosquitto) -> None:
    shown = "%P|%C|%R|%D|%E|%p"
    subscriber = mosquitto.subscriber("-t", "p", "-V", "5", "-C", "1", "-F", shown)
    done = run(
        *("pub", "p", "x", "--port", mosquitto.port, "--qos", "1"),
        *("--property", "unit=°C", "--property", "a=b=c", "--content-type", "text/plain"),
        *("--attr", "lat=40.5", "--attr", "road=A1"),
        *("--response-topic", "answers/1", "--correlation-data", "42", "--expiry", "60"),
    )
    assert done.text == ""
    assert printed(subscriber) == ["lat:40.5 road:A1 unit:°C a:b=c|text/plain|answers/1|42|60|x"]


def test_retained_and_cleared(mosquitto: Mosquitto) -> None:
    pub = ["pub", "kept", "--retain", "--port", mosquitto.port]
    assert run(*pub, "x").text == ""
    subscriber = mosquitto.subscriber("-t", "kept", "-C", "1", "-F", "%p %r")
    assert printed(subscriber) == ["x 1"]
    assert run(*pub, "--null").text == ""
    subscriber = mosquitto.subscriber("-t", "kept", "-C", "1", "-F", "%p %r")
    assert run("pub", "kept", "y", "--port", mosquitto.port).text == ""
    assert printed(subscriber) == ["y 0"]


def test_verbose_notes_a_message_without_subscriber(mosquitto: Mosquitto) -> None:
    pub = ["pub", "nobody/there", "x", "--qos", "1", "--port", mosquitto.port]
    assert run(*pub).text == ""
    done = run(*pub, "-v")
    assert done.returncode == 0
    assert done.errors == "dovetail: note: no matching subscribers (0x10)\n"


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("source", [["x"], ["--lines"], ["x", "--repeat", "5"]])
def test_a_refused_publication_is_an_error(qos: int, source: list[str], tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic read #\ntopic write open/#\n")
    with Mosquitto(tmp_path, f"acl_file {rules}") as broker:
        options = [*source, "--qos", str(qos), "--port", str(broker.port)]
        assert run("pub", "open/a", *options, given=b"x\ny\n").text == ""
        message = refusal(run("pub", "closed/a", *options, given=b"x\ny\n"))
    assert message == (
        f"localhost:{broker.port} refused the publication to closed/a: not authorised (0x87)\n"
    )


@pytest.mark.parametrize(
    ("limit", "arguments", "expected"),
    [
        ("max_packet_size 1000", ["x" * 2_000], "takes packets of 1,000 bytes at most"),
        ("max_packet_size 1000", ["x" * 999], "ended the connection: packet too large (0x95)"),
        ("max_qos 1", ["x", "--qos", "2"], "takes QoS 1 at most"),
        ("retain_available false", ["x", "--retain"], "retains no messages"),
    ],
)
def test_limits_of_the_server(
    limit: str, arguments: list[str], expected: str, tmp_path: Path
) -> None:
    with Mosquitto(tmp_path, limit) as broker:
        options = ["--port", str(broker.port)]
        message = refusal(run("pub", "a", "--qos", "1", *arguments, *options))
    assert message == f"localhost:{broker.port} {expected}" + ("\n" if ")" in expected else ".\n")


def test_the_server_stops_meanwhile(tmp_path: Path) -> None:
    with Mosquitto(tmp_path) as broker:
        subscriber = broker.subscriber("-t", "a", "-C", "1")
        with start("pub", "a", "--lines", "--qos", "1", "--port", broker.port) as publisher:
            assert publisher.stdin is not None
            publisher.stdin.write("one\ntwo\n")
            publisher.stdin.flush()
            assert printed(subscriber) == ["one"]
            broker.wait_for_log(lambda line: "Sending PUBACK" in line and "m2" in line)
            broker.stop()
            _, errors = publisher.communicate(timeout=WAIT_SECONDS)
    assert publisher.returncode == 2
    assert errors == (
        f"dovetail: error: the connection to localhost:{broker.port} was lost. "
        "2 of 2 messages arrived.\n"
    )


def test_a_server_that_does_not_acknowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.client.publisher.ANSWER_SECONDS_MAX", 0.1)
    monkeypatch.setattr(connection, "CLOSE_SECONDS_MAX", 0.1)
    with ScriptedServer([CONNACK]) as server:
        options = ["--host", "127.0.0.1", "--port", server.port, "--qos", "1"]
        message = refusal(run("pub", "a", "b", *options))
    assert message == f"127.0.0.1:{server.port} has not answered for 0.1 seconds.\n"


def test_the_window_follows_the_servers_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.client.publisher.ANSWER_SECONDS_MAX", 0.1)
    monkeypatch.setattr(connection, "CLOSE_SECONDS_MAX", 0.1)
    receive_maximum_2 = b"\x20\x06\x00\x00\x03\x21\x00\x02"
    with ScriptedServer([receive_maximum_2]) as server:
        options = ["--host", "127.0.0.1", "--port", server.port, "--qos", "1", "--repeat", "5"]
        message = refusal(run("pub", "a", "b", *options))
    assert message.endswith("0 of 2 messages arrived.\n")
    assert [packet[0] >> 4 for packet in server.packets[:3]] == [1, 3, 3]
    assert all(packet[0] >> 4 != 3 for packet in server.packets[3:])


def test_a_will_is_published_only_if_the_client_vanishes(mosquitto: Mosquitto) -> None:
    subscriber = mosquitto.subscriber("-t", "will", "-q", "1", "-C", "1", "-F", "%q %p")
    will = ["--will-topic", "will", "--will-payload", "gone", "--will-qos", "1"]
    assert run("pub", "a", "b", "--port", mosquitto.port, *will).text == ""
    name = "the-one-that-vanishes"
    options = ["--port", mosquitto.port, *will, "--will-retain", "--client-id", name]
    with start("pub", "a", "--lines", *options) as publisher:
        mosquitto.wait_for_log(lambda line: "Sending CONNACK" in line and name in line)
        publisher.kill()
    assert printed(subscriber) == ["1 gone"]

    def is_will(line: str) -> bool:
        return "'will'" in line and "Sending" in line

    mosquitto.wait_for_log(is_will)
    assert len([*filter(is_will, mosquitto.log())]) == 1


def test_more_unanswered_bytes_get_more_time() -> None:
    assert answer_seconds_max(0) == 30
    assert answer_seconds_max(1 << 20) == 30 + 64
