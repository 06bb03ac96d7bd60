"""Foreign MQTT clients connect to the broker over real sockets.

Also what a connection may cost: one that says nothing, takes nothing, or never ends.
"""

import queue
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode as PahoReason
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from dovetail import codec
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Connect, Publish
from dovetail.errors import ReasonCode
from support.brokers.wire_client import WireClient
from support.certificates import Authority
from support.clusters.closing_context import ClosingContext
from support.processes.broker_process import TCP_AND_TLS, WAIT_SECONDS, BrokerProcess, wait_until
from support.processes.servers import needs_mosquitto, program

KINDS = ["tcp", "tls", "websocket", "secure-websocket"]
PASSWORD = "correct horse"
ORIGIN = "https://example.org"

EVERYTHING = f"""{TCP_AND_TLS}\
client_ca = "authority.pem"
client_certificate = "optional"

[[listeners]]
kind = "websocket"
port = 0

[[listeners]]
kind = "secure-websocket"
port = 0
certificate = "server.crt"
key = "server.key"

[http]
port = 0

[mqtt]
sys_interval_seconds = 0.2

[access]
password_file = "users"

[[access.rules]]
publish = ["public/#"]
subscribe = ["public/#", "$SYS/#"]

[[access.rules]]
user = "?*"
publish = ["user/%u/#", "client/%c/#"]
subscribe = ["user/%u/#", "client/%c/#"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("everything")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority) -> Iterator[BrokerProcess]:
    """One with every kind of listener, users and rules."""
    authority.issue("server")
    command = [sys.executable, "-m", "dovetail", "passwd", "--stdin", str(folder / "users"), "anna"]
    subprocess.run(
        command, input=PASSWORD, text=True, check=True, capture_output=True, timeout=WAIT_SECONDS
    )
    with BrokerProcess(folder, EVERYTHING) as process:
        yield process


@pytest.fixture(scope="module")
def trusting(authority: Authority, broker: BrokerProcess) -> ssl.SSLContext:
    """A client's view: the broker's authority is known."""
    del broker
    return ssl.create_default_context(cafile=str(authority.file))


class PahoClient(ClosingContext):
    """A paho client that is connected when made."""

    def __init__(
        self,
        broker: BrokerProcess,
        kind: str = "tcp",
        version: int = MQTT_5,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.received: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._answers: queue.Queue[PahoReason] = queue.Queue()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            protocol=paho.MQTTv5 if version == MQTT_5 else paho.MQTTv311,
            transport="websockets" if "websocket" in kind else "tcp",
        )
        if kind in {"tls", "secure-websocket"}:
            assert tls is not None
            self._client.tls_set_context(tls)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = lambda _client, _data, message: self.received.put(message)
        self._client.connect("127.0.0.1", broker.port_of(kind))
        self._client.loop_start()
        reason = self._answers.get(timeout=WAIT_SECONDS)
        assert not reason.is_failure, reason

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(
        self,
        _client: paho.Client,
        _data: object,
        _flags: object,
        reason: PahoReason,
        _properties: Properties | None,
    ) -> None:
        self._answers.put(reason)

    def _subscribed(
        self,
        _client: paho.Client,
        _data: object,
        _id: int,
        reasons: list[PahoReason],
        _properties: Properties | None,
    ) -> None:
        self._answers.put(reasons[0])

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self._client.subscribe(topic_filter, qos)
        assert self._answers.get(timeout=WAIT_SECONDS).value == qos

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self._client.publish(topic, payload, qos).wait_for_publish(WAIT_SECONDS)


# Listeners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("kind", KINDS)
def test_every_listener_serves_paho(
    broker: BrokerProcess, trusting: ssl.SSLContext, kind: str, version: int
) -> None:
    payload = bytes(range(256)) * 1_000
    with PahoClient(broker, kind, version, trusting) as client, PahoClient(broker) as other:
        client.subscribe("public/one", 2)
        other.subscribe("public/other", 1)
        for qos in (0, 1, 2):
            other.publish("public/one", payload, qos)
            message = client.received.get(timeout=WAIT_SECONDS)
            assert (message.topic, message.payload, message.qos) == ("public/one", payload, qos)
        client.publish("public/other", b"back", 2)
        assert other.received.get(timeout=WAIT_SECONDS).payload == b"back"


@needs_mosquitto
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_mosquitto_clients(broker: BrokerProcess, authority: Authority, kind: str) -> None:
    where = ["-h", "localhost" if kind == "tls" else "127.0.0.1", "-p", str(broker.port_of(kind))]
    if kind == "tls":
        where += ["--cafile", str(authority.file)]
    topic = f"public/mosquitto/{kind}"

    def run(name: str, *options: str) -> str:
        return subprocess.run(
            [program(name), *where, "-q", "2", "-t", topic, *options],
            check=True,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        ).stdout

    run("mosquitto_pub", "-V", "5", "-r", "-m", "kept for you")
    assert run("mosquitto_sub", "-C", "1", "-F", "%t %q %r %p") == f"{topic} 2 1 kept for you\n"


def test_a_tls_listener_takes_no_plain_client(broker: BrokerProcess) -> None:
    with pytest.raises(ConnectionError):
        WireClient(broker.port_of("tls"))


# Who a client is ----------------------------------------------------------------------------------


def test_a_password_opens_the_users_own_topics(broker: BrokerProcess) -> None:
    with WireClient(broker.port, "c1", user="anna", password=PASSWORD.encode()) as client:
        assert client.connack.reason == ReasonCode.SUCCESS
        assert client.subscribe("user/anna/#") == 0
        assert client.subscribe("client/c1/#") == 0
        assert client.subscribe("user/bert/#") == ReasonCode.NOT_AUTHORIZED
        assert client.subscribe("user/+/#") == ReasonCode.NOT_AUTHORIZED
        assert client.subscribe("client/c2/#") == ReasonCode.NOT_AUTHORIZED
        assert client.publish("user/bert/x", b"", 1) == ReasonCode.NOT_AUTHORIZED
        client.publish("user/anna/x", b"mine")
        assert client.receive_message().payload == b"mine"
        client.publish("client/c1/x", b"mine too")
        assert client.receive_message().payload == b"mine too"


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize(("user", "password"), [("anna", "wrong"), ("nobody", PASSWORD)])
def test_a_wrong_password_keeps_out(
    broker: BrokerProcess, version: int, user: str, password: str
) -> None:
    with WireClient(broker.port, version=version, user=user, password=password.encode()) as client:
        assert client.connack.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD
        assert client.receive() is None


def test_without_a_name_only_what_is_public(broker: BrokerProcess) -> None:
    with WireClient(broker.port, "anna") as client:
        assert client.connack.reason == ReasonCode.SUCCESS
        assert client.subscribe("public/empty/#") == 0
        assert client.subscribe("user/anna/#") == ReasonCode.NOT_AUTHORIZED
        assert client.subscribe("user//#") == ReasonCode.NOT_AUTHORIZED
        assert client.publish("client/anna/x", b"", 1) == ReasonCode.NOT_AUTHORIZED


def test_a_client_certificate_is_a_name(broker: BrokerProcess, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*authority.issue("bert"))
    # What the CONNECT says does not count beside it.
    with WireClient(broker.port_of("tls"), tls=context, user="anna") as client:
        assert client.connack.reason == ReasonCode.SUCCESS
        assert client.subscribe("user/bert/#") == 0
        assert client.subscribe("user/anna/#") == ReasonCode.NOT_AUTHORIZED


def test_without_a_certificate_a_name_needs_its_password(
    broker: BrokerProcess, trusting: ssl.SSLContext
) -> None:
    with WireClient(broker.port_of("tls"), tls=trusting, user="bert") as client:
        assert client.connack.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_a_certificate_of_a_stranger_keeps_out(
    broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*Authority(tmp_path).issue("anna"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        WireClient(broker.port_of("tls"), tls=context)


# WebSocket ----------------------------------------------------------------------------------------


def open_websocket(
    broker: BrokerProcess,
    *,
    path: str = "/mqtt",
    origin: str | None = None,
    subprotocols: tuple[str, ...] = ("mqtt",),
) -> ClientConnection:
    return connect(
        f"ws://127.0.0.1:{broker.port_of('websocket')}{path}",
        origin=None if origin is None else Origin(origin),
        subprotocols=[Subprotocol(name) for name in subprotocols] or None,
        open_timeout=WAIT_SECONDS,
        close_timeout=WAIT_SECONDS,
    )


@pytest.mark.parametrize(
    ("options", "status"),
    [({"path": "/other"}, 404), ({"path": "/"}, 404), ({"origin": "https://example.com"}, 403)],
)
def test_a_websocket_that_is_refused(
    strict: BrokerProcess, options: dict[str, Any], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        open_websocket(strict, **options)
    assert refused.value.response.status_code == status


@pytest.mark.parametrize(
    "options", [{}, {"origin": ORIGIN}, {"path": "/mqtt?a=b"}, {"subprotocols": ("x", "mqtt")}]
)
def test_a_websocket_that_is_taken(strict: BrokerProcess, options: dict[str, Any]) -> None:
    with open_websocket(strict, **options) as websocket:
        assert websocket.subprotocol == "mqtt"
        websocket.send(codec.encode(MQTT_5, Connect(MQTT_5, "")))
        answer = websocket.recv(WAIT_SECONDS)
        assert isinstance(answer, bytes)
        assert answer[0] == 0x20


def test_packets_need_not_be_frames(broker: BrokerProcess) -> None:
    """[MQTT-6.0.0-2]: a byte a frame, fragments, and several packets in one."""
    hello = codec.encode(MQTT_5, Connect(MQTT_5, ""))
    with open_websocket(broker) as websocket, WireClient(broker.port) as receiver:
        receiver.subscribe("public/frames")
        for number in range(len(hello)):
            websocket.send(hello[number : number + 1])
        assert websocket.recv(WAIT_SECONDS)[0] == 0x20
        packets = [
            codec.encode(MQTT_5, Publish(b"public/frames", b"%d" % number)) for number in range(100)
        ]
        joined = b"".join(packets)
        websocket.send([joined[:7], joined[7:1_000]])
        websocket.send(joined[1_000:])
        assert [receiver.receive_message().payload for _ in packets] == [
            b"%d" % number for number in range(100)
        ]


def test_a_text_frame_ends_the_connection(broker: BrokerProcess) -> None:
    with open_websocket(broker) as websocket:  # [MQTT-6.0.0-1]
        websocket.send("hello")
        with pytest.raises(ConnectionClosedError) as ended:
            websocket.recv(WAIT_SECONDS)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1003


# What the broker tells of itself ------------------------------------------------------------------


def test_sys_topics_metrics_and_health_agree(broker: BrokerProcess) -> None:
    assert broker.health() == (200, {"status": "ok"})
    with WireClient(broker.port) as client:
        assert client.subscribe("$SYS/#") == 0
        topics: dict[str, str] = {}
        while (
            topics.get("$SYS/broker/clients/connected") != "1"
            or "$SYS/broker/version" not in topics
            or len(topics) < 30
        ):
            message = client.receive_message()
            topics[message.topic.decode()] = message.payload.decode()
        assert topics["$SYS/broker/version"].startswith("dovetail version ")
        assert broker.metric("clients_connected") == 1
        assert broker.metric("process_resident_memory_bytes") > 1e6
    with WireClient(broker.port) as client:  # nobody but the broker speaks there
        assert client.publish("$SYS/broker/version", b"mine", 1) == ReasonCode.NOT_AUTHORIZED


# What a connection may cost -----------------------------------------------------------------------

BACKLOG_BYTES_MAX = 200_000

STRICT = f"""
{TCP_AND_TLS}
[[listeners]]
kind = "websocket"
port = 0
allowed_origins = ["{ORIGIN}"]

[http]
port = 0

[log]
level = "debug"

[mqtt]
connect_timeout_seconds = 3
write_stall_seconds = 2
spin_microseconds = 10_000
backlog_bytes_max = {BACKLOG_BYTES_MAX}
publisher_wait_seconds = 0.1
"""


@pytest.fixture(scope="module")
def strict(folder: Path, authority: Authority) -> Iterator[BrokerProcess]:
    authority.issue("server")
    (folder / "strict").mkdir()
    for name in ("server.crt", "server.key"):
        (folder / "strict" / name).write_bytes((folder / name).read_bytes())
    with BrokerProcess(folder / "strict", STRICT) as process:
        yield process


def test_who_does_not_connect_in_time_is_closed(strict: BrokerProcess) -> None:
    """All wait at the same time: the time has to be long enough for others on a busy machine."""
    with ExitStack() as stack:
        clients = []
        for kind in ("tcp", "tls", "websocket"):
            for said in (b"", b"\x10", b"\x10\x20\x00\x04MQTT"):
                address = ("127.0.0.1", strict.port_of(kind))
                client = stack.enter_context(socket.create_connection(address, WAIT_SECONDS))
                client.sendall(said)
                clients.append(client)
        assert [client.recv(1) for client in clients] == [b""] * 9


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_who_is_silent_for_too_long_is_closed(strict: BrokerProcess, version: int) -> None:
    with WireClient(strict.port, version=version, keep_alive_seconds=1) as client:
        expected = ReasonCode.KEEP_ALIVE_TIMEOUT if version == MQTT_5 else None
        assert client.receive_end() == expected


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_who_does_not_read_harms_nobody_else_and_is_closed(
    strict: BrokerProcess, authority: Authority, kind: str
) -> None:
    tls = ssl.create_default_context(cafile=str(authority.file)) if kind == "tls" else None
    payload = bytes(10_000)
    dropped = strict.metric("publishes_dropped_total")
    lost = strict.metric("connections_lost_total")
    with (
        WireClient(strict.port) as publisher,
        WireClient(strict.port) as reader,
        WireClient(strict.port_of(kind), tls=tls, receive_buffer_bytes=4_096) as deaf,
    ):
        for client in (reader, deaf):
            assert client.subscribe("much") == 0
        before = strict.resident_bytes()
        # In portions that the one who reads has taken before the next.
        for _ in range(500):
            for _ in range(10):
                publisher.publish("much", payload)
            for _ in range(10):
                assert reader.receive_message().payload == payload
        assert strict.metric("publishes_dropped_total") > dropped
        assert strict.resident_bytes() - before < 20_000_000
        wait_until(lambda: strict.metric("connections_lost_total") == lost + 1, "the stalled one")
        assert strict.metric("clients_connected") == 2
        publisher.publish("much", b"still there")
        assert reader.receive_message().payload == b"still there"


def test_who_is_silent_and_does_not_read_is_closed_too(strict: BrokerProcess) -> None:
    """Its DISCONNECT cannot be written, and what it has open is given back all the same."""
    with WireClient(strict.port) as publisher:
        publisher.publish("much", b"")
        files = strict.metric("process_open_fds")
        with WireClient(strict.port, keep_alive_seconds=1, receive_buffer_bytes=4_096) as deaf:
            assert deaf.subscribe("much") == 0
            dropped = strict.metric("publishes_dropped_total")
            while strict.metric("publishes_dropped_total") == dropped:
                publisher.publish("much", bytes(200_000))
            wait_until(lambda: strict.metric("process_open_fds") == files, "its end")


def test_who_reads_slowly_gets_all_of_qos_1(strict: BrokerProcess) -> None:
    """Beyond the backlog messages wait in the queue, and go on when there is room."""
    count = 400
    with (
        WireClient(strict.port) as publisher,
        WireClient(strict.port, receive_buffer_bytes=4_096) as slow,
    ):
        assert slow.subscribe("much", 1) == 1
        for number in range(count):
            assert publisher.publish("much", b"%d " % number + bytes(20_000), 1) == 0
        for number in range(count):
            message = slow.receive_message()
            assert message.payload.startswith(b"%d " % number)
            slow.acknowledge(message)


def test_who_stays_awake_for_messages_sleeps_when_there_are_none(strict: BrokerProcess) -> None:
    with WireClient(strict.port) as subscriber, WireClient(strict.port) as publisher:
        subscriber.subscribe("spin")
        for number in range(20):  # each after a pause, as long as its way takes
            publisher.publish("spin", b"%d" % number)
            assert subscriber.receive_message().payload == b"%d" % number
        status = Path(f"/proc/{strict.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "S", "it sleeps")
