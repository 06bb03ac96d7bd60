"""When file descriptors run out, new connections are closed, and nothing else breaks."""

import contextlib
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.node.limits import DESCRIPTORS_MIN
from dovetail.process.descriptors import shares_of
from dovetail.process.limits import FILE_DESCRIPTORS_RESERVED
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until
from support.processes.fleet_process import ANY_PORTS, FleetProcess

CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
FEW = 256
STORM = 400
"""Clients that come at once, more than there are descriptors."""


@given(st.integers(DESCRIPTORS_MIN, 1 << 60))
def test_every_kind_of_connection_has_a_share(limit: int) -> None:
    shares = shares_of(limit)
    assert limit // 2 < shares.clients < shares.http < shares.links < limit
    assert limit - shares.links == FILE_DESCRIPTORS_RESERVED


# Clients ------------------------------------------------------------------------------------------


class Storm(contextlib.ExitStack):
    """Connections that a test has opened, all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[socket.socket] = []

    def come(self, port: int, count: int, words: bytes = CONNECT) -> None:
        """As soon as somebody listens there."""
        wait_until(lambda: _is_open(port), "a port that is open")
        clients = [self.enter_context(socket.socket()) for _ in range(count)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        for client in clients:
            client.settimeout(WAIT_SECONDS)
            with contextlib.suppress(OSError):
                client.sendall(words)
        self.clients += clients

    def answered(self) -> int:
        """How many got a CONNACK; all others were closed."""
        return sum(map(_answer, self.clients))


def _answer(client: socket.socket) -> bool:
    try:
        return client.recv(4) == b"\x20\x02\x00\x00"
    except ConnectionError:
        return False


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), WAIT_SECONDS).close()
    except ConnectionError:
        return False
    return True


def is_served(port: int) -> bool:
    try:
        with WireClient(port) as client:
            client.publish("a", b"x", 1)
    except ConnectionError:
        return False
    return True


def limited(limit: int) -> tuple[str, ...]:
    """A launcher of processes that may have so many descriptors."""
    return ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh")


def descriptors(pid: int) -> list[int]:
    return [int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()]


# A start under load -------------------------------------------------------------------------------

CONFIGURATION = """
[[listeners]]
kind = "tcp"
port = 0
[[listeners]]
kind = "websocket"
port = 0
[http]
port = 0
[cluster]
enabled = true
port = 0
[access]
password_file = "users"
[archive]
topics = ["#"]
"""


class FewDescriptors(BrokerProcess):
    launcher = limited(FEW)

    def start(self) -> None:  # type: ignore[override]
        self.launch()


def test_a_start_under_load(tmp_path: Path) -> None:
    """And all else that a node does, while strangers hold every descriptor that they can have."""
    (tmp_path / "users").touch(0o600)
    with Storm() as storm, FewDescriptors(tmp_path, CONFIGURATION) as broker:
        storm.come(broker.port, STORM)
        broker.wait_for_start(lambda: "Ctrl-C stops" in broker.printed())
        assert FEW // 4 < storm.answered() < FEW
        broker.wait_for_log("clients have all file descriptors that they may have")
        places = dict(
            re.findall(r"^  (\w+) +(?:\w+://)?\S+?:(\d+)", broker.printed(), re.MULTILINE)
        )
        (links,) = re.findall(r"node --join \S+?:(\d+)", broker.printed())
        # Strangers come to the other ports, and say nothing.
        for kind in ("HTTP", "WebSocket"):
            storm.come(int(places[kind]), 100, b"")
        assert "reloaded passwords" in broker.reload()
        first = storm.clients[0]
        first.sendall(b"\x32\x06\x00\x01a\x00\x01x")  # at QoS 1: on disk, and archived
        assert first.recv(4) == b"\x40\x02\x00\x01"
        secret = broker.data / "cluster.secret"
        joining = ("node", "--join", f"127.0.0.1:{links}", "--secret-file", secret)
        with FleetProcess(tmp_path, *joining, "--name", "other", "--port", 0):
            broker.wait_for_log("other is alive")
        storm.come(int(links), STORM, b"")
        assert "reloaded passwords" in broker.reload()
        assert len(descriptors(broker.pid)) < FEW - FILE_DESCRIPTORS_RESERVED / 2
        storm.close()
        wait_until(lambda: is_served(broker.port), "room for a client")
        broker.stop()
    assert "Traceback" not in broker.log()


class FewEach(FleetProcess):
    launcher = limited(FEW)

    def start(self) -> None:
        self.run(*self._arguments, folder=self.folder)


def test_workers_start_under_load(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(ANY_PORTS)
    with socket.socket() as reserved, Storm() as storm:
        reserved.bind(("127.0.0.1", 0))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the workers', too
        port = reserved.getsockname()[1]
        arguments = ("up", "--workers", 2, "--config", tmp_path / "f", "--port", port)
        with FewEach(tmp_path, *arguments) as workers:
            storm.come(port, 2 * STORM)
            workers.wait_for_start(lambda: "Ctrl-C stops" in workers.printed())
            children = workers.children()
            assert FEW // 4 < storm.answered() < 2 * FEW
            assert [workers.get_json("/healthz", number) for number in (0, 1)] == [OK, OK]
            storm.close()
            wait_until(lambda: is_served(port), "room for a client")
            assert workers.children() == children
            assert "Traceback" not in workers.log()


OK = {"status": "ok"}


# Later --------------------------------------------------------------------------------------------


def test_not_one_descriptor_is_left(tmp_path: Path) -> None:
    """Not even for ourselves, as if others had taken our reserve: the system has no more either."""
    with BrokerProcess(tmp_path) as broker, WireClient(broker.port) as client:
        client.subscribe("a", 1)
        limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        few = max(descriptors(broker.pid)) + 1
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (few, limits[1]))
        for _ in range(20):
            with pytest.raises(ConnectionError):
                WireClient(broker.port)
        assert "settings not reloaded, nothing has changed" in broker.reload()
        with pytest.raises(ConnectionError):
            broker.health()
        # Who is there is served as ever.
        client.publish("a", b"x")
        assert client.receive_message().payload == b"x"
        client.publish("b", b"", 1, retain=True)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        assert broker.health() == (200, OK)
        assert "reloaded passwords" in broker.reload()
        with WireClient(broker.port) as late:
            late.publish("a", b"y", 1)
        broker.stop()
    assert "Traceback" not in broker.log()


def test_a_limit_that_leaves_nothing_for_clients(tmp_path: Path) -> None:
    class TooFew(BrokerProcess):
        launcher = limited(80)

    broker = TooFew(tmp_path)
    broker.launch()
    assert broker.wait() == 2
    broker.wait_for_log("the limit of 80 file descriptors leaves none for clients.")
    broker.wait_for_log(f"has to be at least {DESCRIPTORS_MIN}.")


def test_nothing_is_imported_once_strangers_can_connect(tmp_path: Path) -> None:
    """An import opens files: there may be no descriptor for them."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK_FOR_IMPORTS, CONFIGURATION, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert done.stdout == "[]\n"


LOOK_FOR_IMPORTS = """
import asyncio, sys
from pathlib import Path

import uvloop
from msgspec.structs import replace

from dovetail.node.broker import BrokerNode
from dovetail.settings import parse_settings


async def ask(port, words):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    assert await reader.read(1)
    writer.close()


async def main(text, folder):
    Path("users").touch(0o600)
    node = BrokerNode(replace(parse_settings(text, "test"), data=folder))
    await node.start()
    before = {*sys.modules}
    await node.start_http()
    for path in ("healthz", "metrics", "cluster", "route?topic=a", "spaces", "openapi.json", "no"):
        words = f"GET /{path} HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n"
        await ask(node.http_address[1], words.encode())
    tcp, websocket = node.listeners
    await ask(tcp.port, b"\\x10\\x0c\\x00\\x04MQTT\\x04\\x02\\x00\\x00\\x00\\x00")
    await ask(websocket.port, b"GET /mqtt HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n")
    node.reload()
    print(sorted({*sys.modules} - before))
    await node.stop()


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main(*sys.argv[1:]))
"""
