"""TLS with clients that are refused: they get an alert, and the log names them and the reason."""

import re
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail import codec
from dovetail.codec.packets import MQTT_5, Connect
from support.brokers.wire_client import WireClient
from support.certificates import Authority
from support.processes.broker_process import TCP_AND_TLS, WAIT_SECONDS, BrokerProcess
from support.processes.servers import program

REQUIRED = f"""{TCP_AND_TLS}\
client_ca = "authority.pem"
client_certificate = "required"

[[listeners]]
kind = "secure-websocket"
port = 0
certificate = "server.crt"
key = "server.key"
client_ca = "authority.pem"
client_certificate = "required"

[http]
port = 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority) -> Iterator[BrokerProcess]:
    authority.issue("server")
    with BrokerProcess(folder, REQUIRED) as process:
        yield process


def say_hello(context: ssl.SSLContext, plain: socket.socket) -> None:
    """With TLS 1.3 a client believes in its handshake until it reads."""
    with context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.sendall(codec.encode(MQTT_5, Connect(MQTT_5, "")))
        secure.recv(1)


Certificate = Callable[[Authority, Path], tuple[Path, Path] | None]

REFUSED: dict[str, tuple[Certificate, str, str]] = {
    "not signed": (
        lambda _, folder: Authority(folder, "stranger").issue("anna"),
        "ALERT_UNKNOWN_CA",
        r"its certificate is not accepted \((unable to get local issuer|self.signed) certificate",
    ),
    "expired": (
        lambda authority, _: authority.issue("anna", has_expired=True),
        "ALERT_CERTIFICATE_EXPIRED",
        r"its certificate is not accepted \(certificate has expired\)",
    ),
    "missing": (
        lambda _authority, _folder: None,
        "ALERT_CERTIFICATE_REQUIRED|ALERT_HANDSHAKE_FAILURE",
        r"it has shown no certificate, which this listener requires",
    ),
}
"""What a client shows, the alert that it gets, and what the log says."""


@pytest.mark.parametrize("kind", ["tls", "secure-websocket"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("certificate", "alert", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_refused_client_gets_an_alert(
    broker: BrokerProcess,
    authority: Authority,
    tmp_path: Path,
    kind: str,
    version: ssl.TLSVersion,
    certificate: Certificate,
    alert: str,
    reason: str,
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.minimum_version = context.maximum_version = version
    files = certificate(authority, tmp_path)
    if files is not None:
        context.load_cert_chain(*files)
    refused = broker.metric("connections_refused_total")
    with socket.create_connection(("127.0.0.1", broker.port_of(kind)), WAIT_SECONDS) as plain:
        host, port = plain.getsockname()
        with pytest.raises(ssl.SSLError) as failed:
            say_hello(context, plain)
        assert failed.value.reason is not None
        assert re.search(alert, failed.value.reason)
    broker.wait_for_log(f"refused a client from {host}:{port}: ")
    (line,) = [line for line in broker.log().splitlines() if f":{port}: " in line]
    assert re.search(reason, line), line
    assert broker.metric("connections_refused_total") == refused + 1


def test_openssl_shows_the_alert(broker: BrokerProcess, authority: Authority) -> None:
    address = f"127.0.0.1:{broker.port_of('tls')}"
    found = subprocess.run(
        [
            program("openssl"),
            "s_client",
            "-ign_eof",
            "-connect",
            address,
            "-CAfile",
            authority.file,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert "certificate required" in found.stdout + found.stderr


def test_others_are_served_meanwhile(broker: BrokerProcess, authority: Authority) -> None:
    """Refused clients that do not go, and one that comes with its first packets at once."""
    context = ssl.create_default_context(cafile=str(authority.file))
    waiting = [context.wrap_socket(socket.socket(), server_hostname="localhost") for _ in range(5)]
    for refused in waiting:
        refused.settimeout(WAIT_SECONDS)
        refused.connect(("127.0.0.1", broker.port_of("tls")))
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*authority.issue("bert"))
    for _ in range(20):
        with WireClient(broker.port_of("tls"), tls=context) as client:
            assert client.subscribe("a") == 0
            client.publish("a", bytes(100_000))
            assert client.receive_message().payload == bytes(100_000)
    for refused in waiting:
        with refused, pytest.raises(ssl.SSLError):
            refused.recv(1)


def test_a_client_without_tls_is_named(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port_of("tls")), WAIT_SECONDS) as plain:
        host, port = plain.getsockname()
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while plain.recv(100):
            pass
    broker.wait_for_log(f"refused a client from {host}:{port}: the TLS handshake failed")
