"""Connecting to a server: TLS, websockets, passwords, and every kind of failure."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.client import connection
from dovetail.client.connection import describe_reason
from support.certificates import Authority
from support.processes.client_commands import refusal, run
from support.processes.mosquitto import Mosquitto
from support.processes.ports import ReservedPort
from support.processes.scripted_server import CLOSE, ScriptedServer
from support.processes.servers import program


def test_no_server() -> None:
    with ReservedPort() as nobody:
        place = ["--host", "127.0.0.1", "--port", nobody.port]
        message = refusal(run("pub", "a", "b", *place))
        assert message == (
            f"cannot connect to 127.0.0.1:{nobody.port}: Connection refused.\n"
            "Is a broker running there? `dovetail up` starts one.\n"
        )
        assert f"127.0.0.1:{nobody.port}" in refusal(run("sub", "a", *place))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 100, "a..b"])
def test_unknown_host(host: str) -> None:
    assert f"cannot connect to {host}:1883: " in refusal(run("pub", "a", "b", "--host", host))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (CLOSE, "the connection to 127.0.0.1:{} was lost."),
        (b"\x15\x03\x03\x00\x02\x02\x46", "127.0.0.1:{} sent what is not MQTT."),
    ],
)
def test_a_server_without_mqtt(answer: bytes, expected: str) -> None:
    with ScriptedServer([answer]) as server:
        message = refusal(run("pub", "a", "b", "--host", "127.0.0.1", "--port", server.port))
    assert message.splitlines() == [
        f"no answer of MQTT from 127.0.0.1:{server.port}: {expected.format(server.port)}",
        "Does it want --tls, --websocket or another --mqtt version?",
    ]


def test_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS_MAX", 0.1)
    with ScriptedServer([]) as server:
        message = refusal(run("sub", "a", "--host", "127.0.0.1", "--port", server.port))
    assert "has not answered for 0.1 seconds" in message


@pytest.mark.parametrize(
    ("version", "connack", "expected"),
    [
        ("5", b"\x20\x03\x00\x87\x00", "not authorised (0x87)\n--user and --password-file"),
        ("5", b"\x20\x09\x00\x8a\x06\x1f\x00\x03bad", "banned (0x8A): bad\n"),
        ("5", b"\x20\x09\x00\x8a\x06\x1f\x00\x03\x1b[m", "banned (0x8A): \\x1b[m\n"),
        ("5", b"\x20\x02\x00\x01", "unsupported protocol version (0x84)\nTry --mqtt 3.1.1."),
        ("3.1.1", b"\x20\x02\x00\x05", "not authorised (0x87)\n"),
        ("3.1.1", b"\x20\x02\x00\x03", "server unavailable (0x88)\n"),
    ],
)
def test_a_server_that_refuses(version: str, connack: bytes, expected: str) -> None:
    with ScriptedServer([connack]) as server:
        options = ["--host", "127.0.0.1", "--port", server.port, "--mqtt", version]
        message = refusal(run("pub", "a", "b", *options))
    assert message.startswith(f"127.0.0.1:{server.port} refused the connection: {expected}")


def test_reason_codes_as_text() -> None:
    assert describe_reason(0x87) == "not authorised (0x87)"
    assert describe_reason(0x97, "only five a day") == "quota exceeded (0x97): only five a day"
    assert describe_reason(0xEE) == "a reason that MQTT does not know (0xEE)"


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_users(version: str, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    tool = program("mosquitto_passwd")
    subprocess.run([tool, "-b", "-c", str(passwords), "alice", "sécret"], check=True)
    file = tmp_path / "password"
    file.write_text("sécret\n")
    with Mosquitto(tmp_path, f"password_file {passwords}", anonymous=False) as broker:
        pub = ["pub", "a", "b", "--qos", "1", "--port", broker.port, "--mqtt", version]
        assert run(*pub, "--user", "alice", "--password", "sécret").text == ""
        assert run(*pub, "--user", "alice", "--password-file", file).text == ""
        for wrong in (["--user", "alice", "--password", "x"], ["--user", "bob"], []):
            assert "refused the connection: not authorised (0x87)" in refusal(run(*pub, *wrong))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Mosquitto, int]]:
    """A broker with TLS, and a second port that requires client certificates."""
    certificate, key = authority.issue("server")
    tls = [f"cafile {authority.file}", f"certfile {certificate}", f"keyfile {key}"]
    folder = tmp_path_factory.mktemp("mosquitto")
    with ReservedPort() as second:
        strict = [f"listener {second.port} 127.0.0.1", *tls, "require_certificate true"]
        with Mosquitto(folder, *tls, *strict) as broker:
            yield broker, second.port


def test_tls(secure: tuple[Mosquitto, int], authority: Authority, tmp_path: Path) -> None:
    broker, _ = secure
    pub = ["pub", "a", "b" * 100_000, "--qos", "1", "--retain", "--port", broker.port]
    assert run(*pub, "--ca", authority.file).text == ""
    assert run(*pub, "--insecure").text == ""
    read = run("sub", "a", "--count", "1", "--port", broker.port, "--ca", authority.file)
    assert read.text == "b" * 100_000 + "\n"
    distrust = refusal(run(*pub, "--tls"))
    assert distrust.startswith(f"cannot trust localhost:{broker.port}: ")
    assert "--ca names the authority" in distrust
    other = Authority(tmp_path, "another")
    assert "cannot trust" in refusal(run(*pub, "--ca", other.file))
    assert "no answer of MQTT" in refusal(run(*pub))


def test_tls_with_a_plain_port(mosquitto: Mosquitto) -> None:
    message = refusal(run("pub", "a", "b", "--port", mosquitto.port, "--tls"))
    assert f"localhost:{mosquitto.port}" in message


def test_client_certificates(secure: tuple[Mosquitto, int], authority: Authority) -> None:
    _, port = secure
    certificate, key = authority.issue("client")
    pub = ["pub", "a", "b", "--qos", "1", "--port", port, "--ca", authority.file]
    assert run(*pub, "--certificate", certificate, "--key", key).text == ""
    both = certificate.with_suffix(".pem")
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    assert run(*pub, "--certificate", both).text == ""
    assert f"localhost:{port}" in refusal(run(*pub))
    _, other_key = authority.issue("another")
    mixed = refusal(run(*pub, "--certificate", certificate, "--key", other_key))
    assert mixed.startswith(f"cannot use {certificate} and {other_key}: ")


@pytest.mark.parametrize("secured", [False, True])
def test_websockets(secured: bool, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("server")
    tls = [f"cafile {authority.file}", f"certfile {certificate}", f"keyfile {key}"]
    trust = ["--ca", authority.file] if secured else []
    with ReservedPort() as second:
        # In addition to TCP: Mosquitto does not start with a websocket listener alone.
        listener = [f"listener {second.port} 127.0.0.1", "protocol websockets"]
        with Mosquitto(tmp_path, *listener, *(tls if secured else [])):
            options = ["--host", "127.0.0.1", "--port", second.port, "--websocket", *trust]
            assert run("pub", "a", "b" * 10_000, "--qos", "2", "--retain", *options).text == ""
            assert run("sub", "a", "--count", "1", *options).text == "b" * 10_000 + "\n"


def test_a_server_without_websockets(mosquitto: Mosquitto) -> None:
    message = refusal(run("pub", "a", "b", "--port", mosquitto.port, "--websocket"))
    assert f"cannot connect to localhost:{mosquitto.port}: WebSocket handshake" in message
