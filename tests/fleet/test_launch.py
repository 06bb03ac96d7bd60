"""`dovetail up` as a user sees it: what it prints, and how it reacts to signals."""

import contextlib
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import __version__
from dovetail.codec.packets import MQTT_3_1_1
from dovetail.errors import ReasonCode
from dovetail.fleet.launch import _try_line
from support.brokers.wire_client import WireClient, certificate_serial
from support.certificates import Authority
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess

TCP = """
[[listeners]]
kind = "tcp"
port = 0
"""
HTTP = """
[http]
port = 0
"""
NO_HTTP = """
[http]
enabled = false
"""


def up(*options: object) -> "subprocess.CompletedProcess[str]":
    """One that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "dovetail", "up", *map(str, options)],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def refusal(done: "subprocess.CompletedProcess[str]") -> str:
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr.removeprefix("dovetail: error: ")


def set_password(file: Path, user: str, password: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "dovetail", "passwd", "--stdin", file, user],
        input=password,
        text=True,
        check=True,
        capture_output=True,
        timeout=WAIT_SECONDS,
    )


# The start ----------------------------------------------------------------------------------------


def test_the_announcement_says_where_everything_is(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        first, *lines, last = broker.printed().splitlines()
        assert first.startswith(f"Dovetail {__version__} is up, as node ")
        assert last == "Ctrl-C stops it."
        assert f"  MQTT       127.0.0.1:{broker.port}" in lines
        assert (
            f"  HTTP       http://127.0.0.1:{broker.port_of('http')} (/metrics, /healthz)" in lines
        )
        assert f"  data       {broker.data} (survives a crash of the process)" in lines
        assert f"sub --port {broker.port} 'hello/#'" in lines[-1]
        with WireClient(broker.port) as client:
            assert client.connack.reason == ReasonCode.SUCCESS
        assert broker.health() == (200, {"status": "ok"})
        assert broker.log() == ""


def test_lines_to_try_can_be_given_to_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "my checkout" / "dovetail"
    monkeypatch.setenv("DOVETAIL_COMMAND", str(launcher))
    with BrokerProcess(tmp_path) as broker:
        (line,) = re.findall("^Try: +(.*)$", broker.printed(), re.MULTILINE)
    words = shlex.split(line)
    port = str(broker.port)
    assert words[:5] == [str(launcher), "sub", "--port", port, "hello/#"]
    assert words[-6:] == [str(launcher), "pub", "--port", port, "hello/world", "Hi there"]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1", ["sub", "--port", "5"]),
        ("", ["sub", "--port", "5"]),
        ("0.0.0.0", ["sub", "--port", "5"]),  # noqa: S104
        ("::", ["sub", "--host", "::1", "--port", "5"]),
        ("192.0.2.7", ["sub", "--host", "192.0.2.7", "--port", "5"]),
    ],
)
def test_lines_to_try_lead_to_where_it_listens(host: str, words: list[str]) -> None:
    line = _try_line((host, 5), (host, 1883))
    assert shlex.split(line)[2 : 2 + len(words)] == words
    assert ("--host" in words) == ("--host" in shlex.split(line)[-4:])


def test_quiet_is_quiet(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, TCP + NO_HTTP)
    broker.start("--quiet", announced=False)
    broker.stop()
    assert broker.output() == "--- printed\n--- logged\n"


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refusal(up("--port", port, "--data", tmp_path / "data"))
    assert message == (
        f"cannot listen on 127.0.0.1, port {port} (tcp): the port is taken by another program\n"
        "Choose another with --port, or `port` in the configuration.\n"
    )


def test_ports_that_nobody_asked_for_move(tmp_path: Path) -> None:
    with held(1883, 8083, 8080) as ours:
        broker = BrokerProcess(tmp_path)
        broker.start_with_defaults()
        try:
            chosen = [broker.port_of(kind) for kind in ("tcp", "websocket", "http")]
            moved = [port != own for port, own in zip(chosen, (1883, 8083, 8080), strict=True)]
            assert not ours & {*chosen}
            assert broker.printed().count("is taken by another program") == sum(moved[:2])
            if moved[2]:
                broker.wait_for_log("HTTP moved to port")
            else:
                assert "HTTP moved to port" not in broker.log()
            with WireClient(broker.port_of("tcp")) as client:
                assert client.connack.reason == ReasonCode.SUCCESS
        finally:
            broker.stop()


def test_ports_that_move_do_not_meet(tmp_path: Path) -> None:
    """Beside three brokers of this machine the next free port is the same for two of them."""
    with held(1883, *range(8080, 8086)) as ours:
        broker = BrokerProcess(tmp_path)
        broker.start_with_defaults()
        try:
            chosen = {broker.port_of(kind) for kind in ("tcp", "websocket", "http")}
            assert len(chosen) == 3
            assert not ours & chosen
        finally:
            broker.stop()


@contextlib.contextmanager
def held(*ports: int) -> Iterator[set[int]]:
    """Those that the test has now. Another test may have them too, and go at any time.

    What another program has may be free again before the broker asks for it.
    """
    ours = set()
    with contextlib.ExitStack() as stack:
        for port in ports:
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port), reuse_port=True))
                ours.add(port)
        yield ours


def test_a_mistake_in_the_configuration_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    file.write_text("\n[mqtt]\nreceive_max = 0\nretain = true\n")
    message = refusal(up("--config", file))
    assert f"{file}:3: mqtt.receive_max: " in message
    assert f"{file}:4: mqtt.retain: " in message


def test_a_certificate_that_is_missing_is_told(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    file.write_text('[[listeners]]\nkind = "tls"\nport = 0\ncertificate = "server.crt"\n')
    message = refusal(up("--config", file))
    assert f"cannot read {tmp_path / 'server.crt'}: No such file or directory." in message


def test_a_data_folder_has_one_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, TCP + NO_HTTP) as broker:
        message = refusal(up("--port", 0, "--data", broker.data))
        assert message.startswith(f"Another Dovetail uses the data folder {broker.data}.\n")
        with WireClient(broker.port) as client:  # the first is not troubled
            assert client.connack.reason == ReasonCode.SUCCESS


# The end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_says_goodbye_and_keeps_everything(tmp_path: Path, number: signal.Signals) -> None:
    broker = BrokerProcess(tmp_path, TCP + NO_HTTP)
    broker.start()
    with (
        WireClient(broker.port, "away", persistent=True) as away,
        WireClient(broker.port, "here", persistent=True) as here,
        WireClient(broker.port, version=MQTT_3_1_1) as old,
        WireClient(broker.port, receive_buffer_bytes=4_096) as deaf,
    ):
        for client in (away, here):
            client.subscribe("news", 2)
        away.disconnect()
        deaf.subscribe("news")
        for _ in range(100):
            assert old.publish("news", bytes(100_000), 1) == 0
        assert old.publish("news", b"last", 2, retain=True) == 0
        received = [here.receive_message() for _ in range(101)]  # none is acknowledged
        broker.signal(number)
        assert here.receive_end() == ReasonCode.SERVER_SHUTTING_DOWN
        assert old.receive_end() is None
        # `deaf` takes nothing, and nobody waits for it.
        assert broker.wait() == 0
    assert "Traceback" not in broker.log()
    broker.start()
    for name in ("away", "here"):
        with WireClient(broker.port, name, persistent=True) as client:
            assert client.connack.session_present
            messages = [client.receive_message() for _ in received]
            for message, before in zip(messages, received, strict=True):
                assert message.payload == before.payload
                assert message.duplicate == (name == "here")
    with WireClient(broker.port) as client:
        client.subscribe("news")
        assert client.receive_message().payload == b"last"
    broker.stop()


# SIGHUP -------------------------------------------------------------------------------------------


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with a user, a rule and a certificate, all of which a reload may change."""
    authority = Authority(tmp_path)
    authority.issue("server")
    set_password(tmp_path / "users", "anna", "first")
    with BrokerProcess(tmp_path, SECURED) as broker:
        yield broker


SECURED = f"""
{TCP}
[[listeners]]
kind = "tls"
port = 0
certificate = "server.crt"
key = "server.key"
{NO_HTTP}
[access]
anonymous = "never"
password_file = "users"
[[access.rules]]
publish = ["old/#"]
subscribe = ["#"]
"""


def log_in(broker: BrokerProcess, password: str) -> WireClient:
    return WireClient(broker.port, user="anna", password=password.encode())


def test_a_reload_brings_new_passwords_rules_and_certificates(
    secured: BrokerProcess, tmp_path: Path
) -> None:
    serial = certificate_serial(secured.port_of("tls"))
    with log_in(secured, "first") as client:
        assert client.publish("old/a", b"", 1) != ReasonCode.NOT_AUTHORIZED
        assert client.publish("new/a", b"", 1) == ReasonCode.NOT_AUTHORIZED
        set_password(tmp_path / "users", "anna", "second")
        secured.file.write_text(SECURED.replace("old/#", "new/#"))
        Authority(tmp_path).issue("server")
        assert "reloaded passwords, access rules, spaces and certificates" in secured.reload()
        # Who is connected stays so, under the new rules.
        assert client.publish("old/a", b"", 1) == ReasonCode.NOT_AUTHORIZED
        assert client.publish("new/a", b"", 1) != ReasonCode.NOT_AUTHORIZED
    with log_in(secured, "first") as client:
        assert client.connack.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    with log_in(secured, "second") as client:
        assert client.connack.reason == ReasonCode.SUCCESS
    assert certificate_serial(secured.port_of("tls")) != serial


def test_a_reload_that_fails_changes_nothing(secured: BrokerProcess, tmp_path: Path) -> None:
    serial = certificate_serial(secured.port_of("tls"))

    def check() -> None:
        with log_in(secured, "first") as client:
            assert client.connack.reason == ReasonCode.SUCCESS
            assert client.publish("old/a", b"", 1) != ReasonCode.NOT_AUTHORIZED
            assert client.publish("new/a", b"", 1) == ReasonCode.NOT_AUTHORIZED
        assert certificate_serial(secured.port_of("tls")) == serial

    # Each time something else is wrong, and all the rest is new.
    secured.file.write_text(SECURED.replace("old/#", "new/#") + "publisch = 1\n")
    answer = secured.reload()
    assert "settings not reloaded, nothing has changed: " in answer
    assert f"{secured.file}:" in answer
    check()
    secured.file.write_text(SECURED.replace("old/#", "new/#"))
    kept = (tmp_path / "users").read_text()
    set_password(tmp_path / "users", "anna", "second")
    (tmp_path / "server.key").write_text("no key")
    assert "server.key are no PEM certificate and its key" in secured.reload()
    check()
    Authority(tmp_path).issue("server")
    (tmp_path / "users").write_text("neither a user nor a password\n")
    assert "settings not reloaded" in secured.reload()
    check()
    (tmp_path / "users").write_text(kept)
    assert "reloaded passwords" in secured.reload()


def test_a_reload_takes_the_files_that_the_configuration_names_now(
    secured: BrokerProcess, tmp_path: Path
) -> None:
    serial = certificate_serial(secured.port_of("tls"))
    Authority(tmp_path).issue("renewed")
    (tmp_path / "server.crt").unlink()
    secured.file.write_text(SECURED.replace("server.", "renewed."))
    assert "reloaded passwords" in secured.reload()
    assert certificate_serial(secured.port_of("tls")) != serial


def test_a_reload_takes_authorities_away(tmp_path: Path) -> None:
    Authority(tmp_path).issue("server")
    names = ("once", "now")
    contexts = {}
    for name in names:
        authority = Authority(tmp_path, name)
        contexts[name] = ssl.create_default_context()
        contexts[name].check_hostname = False
        contexts[name].verify_mode = ssl.CERT_NONE
        contexts[name].load_cert_chain(*authority.issue(f"client-{name}"))
    clients = tmp_path / "clients.pem"
    clients.write_bytes((tmp_path / "once.pem").read_bytes())
    required = f'client_ca = "{clients}"\nclient_certificate = "required"\n'
    configuration = SECURED.replace(NO_HTTP, required + NO_HTTP)

    def admitted(broker: BrokerProcess) -> list[str]:
        found = []
        for name, context in contexts.items():
            with (
                contextlib.suppress(ssl.SSLError, ConnectionError),
                WireClient(broker.port_of("tls"), tls=context) as client,
            ):
                assert client.connack.reason == ReasonCode.SUCCESS
                found.append(name)
        return found

    set_password(tmp_path / "users", "anna", "first")
    with BrokerProcess(tmp_path, configuration) as broker:
        assert admitted(broker) == ["once"]
        clients.write_bytes((tmp_path / "now.pem").read_bytes())
        assert "reloaded" in broker.reload()
        assert admitted(broker) == ["now"]
