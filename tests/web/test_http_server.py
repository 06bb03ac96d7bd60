"""The HTTP server with real requests, in a loop that does other work too."""

import asyncio
import functools
import http.client
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
import uvloop
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from dovetail import __version__
from dovetail.api.engine import MEDIA_TYPE
from dovetail.api.reports import ClusterReport, RouteReport, SpacesReport
from dovetail.errors import DovetailError
from dovetail.stats import Counters, Gauges
from dovetail.web import HttpServer, uvicorn_server
from support.brokers.web_views import cluster, route, spaces, views
from support.processes.broker_process import WAIT_SECONDS
from support.processes.ports import ReservedPort


def in_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: object, **named: object) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@dataclass
class Node:
    """What a server is handed, and where it listens."""

    counters: Counters = field(default_factory=Counters)
    gauges: Gauges = field(default_factory=Gauges)
    health: tuple[bool, str] = (True, "")
    port: int = 0

    async def ask(self, path: str, method: str = "GET", **headers: str) -> "Answer":
        return await asyncio.to_thread(self._ask, path, method, headers)

    def _ask(self, path: str, method: str, headers: dict[str, str]) -> "Answer":
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        answer = Answer(response.status, dict(response.getheaders()), response.read())
        connection.close()
        return answer


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@asynccontextmanager
async def serve(host: str = "127.0.0.1", *, port: int = 0, **other: object) -> AsyncIterator[Node]:
    """`other`: views."""
    node = Node()
    node_views = views(
        stats=lambda: (node.counters, node.gauges), health=lambda: node.health, **other
    )
    server = HttpServer(host, port, node_views)
    _, node.port = await server.start()
    try:
        yield node
    finally:
        await asyncio.wait_for(server.stop(), WAIT_SECONDS)
        await server.stop()


@in_loop
async def test_metrics() -> None:
    async with serve() as node:
        node.counters.publishes_received = 42
        node.gauges.clients_connected = 7
        answer = await node.ask("/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {
            family.name: family for family in text_string_to_metric_families(answer.body.decode())
        }
        assert families["dovetail_publishes_received"].samples[0].value == 42
        assert families["dovetail_clients_connected"].samples[0].value == 7
        if sys.platform == "linux":
            assert families["process_resident_memory_bytes"].samples[0].value > 1 << 20
        answer = await node.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        read = openmetrics.text_string_to_metric_families(answer.body.decode())  # type: ignore[no-untyped-call]
        names = {family.name for family in read}
        assert "dovetail_publishes_received" in names


@in_loop
async def test_health() -> None:
    async with serve() as node:
        answer = await node.ask("/healthz")
        assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok"})
        node.health = (False, "the data folder is full")
        answer = await node.ask("/healthz")
        assert answer.status == 503
        assert json.loads(answer.body) == {
            "status": "failing",
            "reason": "the data folder is full",
        }
        assert (await node.ask("/healthz", "HEAD")).status == 503


@in_loop
async def test_a_route_with_attributes() -> None:
    asked: list[tuple[str, Mapping[str, str]]] = []

    async def told(topic: str, attributes: Mapping[str, str]) -> RouteReport:
        asked.append((topic, attributes))
        return route(topic)

    async with serve(route=told) as node:
        assert (await node.ask("/route?topic=a&attr=lat=40.5&attr=x=1&attr=x=a%3Db")).status == 200
    assert asked == [("a", {"lat": "40.5", "x": "a=b"})]


@in_loop
async def test_cluster_route_and_spaces_are_json() -> None:
    async with serve() as node:
        answer = await node.ask("/cluster")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert msgspec.json.decode(answer.body, type=ClusterReport) == cluster()
        answer = await node.ask("/route?topic=a%2Fb%26c")
        assert answer.status == 200
        assert msgspec.json.decode(answer.body, type=RouteReport) == route("a/b&c")
        answer = await node.ask("/route?topic=a%2F%2B")
        assert (answer.status, json.loads(answer.body)) == (400, {"error": "'+' is a wildcard"})
        assert (await node.ask("/cluster", "POST")).status == 405
        answer = await node.ask("/route?topic=a%2Fb&attr=x")
        words = "attr=x: it takes a name and a value, as in attr=lat=40.7"
        assert (answer.status, json.loads(answer.body)) == (400, {"error": words})
        answer = await node.ask("/spaces")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert msgspec.json.decode(answer.body, type=SpacesReport) == spaces()


@in_loop
async def test_the_rest_of_http() -> None:
    async with serve() as node:
        index = await node.ask("/")
        assert index.status == 200
        assert index.body.startswith(f"Dovetail {__version__}\n".encode())
        assert b"/healthz" in index.body
        assert b"/metrics" in index.body
        head = await node.ask("/", "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(index.body))
        assert "date" in index.headers
        assert "server" not in index.headers
        assert (await node.ask("/metrics/")).status == 404
        assert (await node.ask("/no/such/page")).status == 404
        refused = await node.ask("/metrics", "POST")
        assert refused.status == 405
        assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}


@in_loop
async def test_garbage_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serve() as node:
        for garbage in (b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\r\n\r\n", b"A" * 100_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(garbage)
            # A server that closes with bytes unread resets the connection: that is an answer too.
            try:
                answer = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
                assert answer.startswith(b"HTTP/1.1 400 ")
            except ConnectionResetError:
                pass
            writer.close()
        await node.ask("/healthz")
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


@in_loop
async def test_a_request_evicts_the_oldest_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uvicorn_server, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(uvicorn_server, "REQUEST_SECONDS_MAX", 3_600)
    began, end = asyncio.Event(), asyncio.Event()

    async def slow() -> ClusterReport:
        began.set()
        await end.wait()
        return cluster()

    async with serve(cluster=slow) as node:
        asking = asyncio.create_task(node.ask("/cluster"))
        await began.wait()
        idle = []
        for _ in range(5):
            idle.append(await asyncio.open_connection("127.0.0.1", node.port))
            idle[-1][1].write(b"GET / HTTP/1.1\r\nHost: a\r\nX-")
        for reader, _ in idle[:3]:
            assert await ended(reader)
        assert (await node.ask("/healthz")).status == 200
        for _, writer in idle:
            writer.close()
        end.set()
        assert (await asking).status == 200  # it was at work all the time


@pytest.mark.parametrize(
    "head",
    [
        b"POST /drain HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"POST /drain HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"POST /drain HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
    ],
)
@in_loop
async def test_a_request_with_two_lengths_is_refused(head: bytes) -> None:
    async with serve() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(head + b"Host: a\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), WAIT_SECONDS)  # to its end
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1") == 1
        assert b"a request has Transfer-Encoding or " in answer
        writer.close()


@pytest.mark.parametrize("path", ["/drain", "/engine/deliveries", "/subscriptions"])
@in_loop
async def test_a_client_that_leaves_within_its_body_is_not_logged(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kind = MEDIA_TYPE if path.startswith("/engine") else "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: 9\r\n\r\n"
    judged = asyncio.Event()

    async def judge(*_: object) -> None:
        judged.set()

    nobody = SimpleNamespace(take=None, subscribe=None)
    async with serve(administer=judge, log_in=judge, engine=nobody, handles=nobody) as node:
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(head.encode() + b"{")
        await judged.wait()
        writer.close()
        await node.ask("/healthz")
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


READ = {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/", READ),
        ("/healthz", READ),
        ("/metrics", READ),
        ("/cluster", READ),
        ("/route", READ),
        ("/spaces", READ),
        ("/archive", READ),
        ("/archive/rows", READ),
        ("/archive/subscriptions", READ),
        ("/openapi.json", READ),
        ("/drain", {"POST"}),
        ("/plan", {"POST"}),
        ("/engine/subscriptions", {"POST"}),
        ("/engine/deliveries", {"POST"}),
        ("/subscriptions", {"POST"}),
        ("/subscriptions/x", READ | {"DELETE"}),
        ("/subscriptions/x/messages", READ),
        ("/subscriptions/x/acknowledgements", {"POST"}),
    ],
)
@in_loop
async def test_a_wrong_method_is_answered_with_the_allowed_ones(
    path: str, methods: set[str]
) -> None:
    async with serve() as node:
        for method in ("OPTIONS", "PUT", "PATCH", "TRACE", "GET", "HEAD", "POST", "DELETE"):
            if method not in methods:
                refused = await node.ask(path, method)
                assert (refused.status, method) == (405, method)
                assert set(refused.headers["allow"].split(", ")) == methods
                assert method == "HEAD" or json.loads(refused.body) == {
                    "error": "Method Not Allowed"
                }


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"GET / HTTP/1.1\r\nHost:"]
)
@in_loop
async def test_an_idle_connection_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "REQUEST_SECONDS_MAX", 0.05)
    async with serve() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(sent)
        assert await ended(reader)
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
    except ConnectionResetError:
        return True


@in_loop
async def test_a_connection_with_new_requests_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[uvicorn_server.BoundedProtocol] = []

    def watch(protocol: uvicorn_server.BoundedProtocol) -> None:
        watched.append(protocol)

    monkeypatch.setattr(uvicorn_server.BoundedProtocol, "_watch", watch)
    async with serve() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        cycles = []
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 OK\r\n")
            cycles.append(watched[0].cycle)
        # The hands of the clock: since the first request a second one came, and then none.
        watched[0]._end_if_idle(cycles[0])
        assert watched == [watched[0]] * 2
        assert not watched[0].transport.is_closing()
        watched[0]._end_if_idle(cycles[1])
        assert await ended(reader)
        writer.close()


@in_loop
async def test_the_error_names_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = HttpServer("127.0.0.1", port, views())
        with pytest.raises(
            DovetailError,
            match=rf"HTTP on 127\.0\.0\.1:{port}: the port is taken by another program",
        ):
            await server.start()
        await server.stop()


@in_loop
async def test_the_error_names_a_host_of_another_machine() -> None:
    server = HttpServer("192.0.2.1", 0, views())
    with pytest.raises(DovetailError, match=r"HTTP on 192\.0\.2\.1:0: cannot assign"):
        await server.start()


@in_loop
async def test_localhost_binds_all_its_addresses() -> None:
    async with serve("localhost") as node:
        for _, _, _, _, (host, *_) in socket.getaddrinfo("localhost", node.port):
            try:
                socket.create_connection((str(host), node.port), timeout=WAIT_SECONDS).close()
            except OSError:
                # Some machines have the name ::1 and not the address.
                assert ":" in str(host)
        assert (await node.ask("/healthz")).status == 200


@in_loop
async def test_signal_handlers_do_not_change() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serve() as node:
        await node.ask("/")
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert before == during


@in_loop
async def test_a_stop_frees_the_port_despite_idle_connections() -> None:
    with ReservedPort() as reserved:
        async with serve(port=reserved.port) as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        with socket.create_server(("127.0.0.1", reserved.port)):
            pass
    writer.close()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_loops(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def go() -> None:
        async with serve() as node:
            assert (await node.ask("/healthz")).status == 200

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(go())


def test_slow_libraries_are_imported_at_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import dovetail.web"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "dovetail.web.http_server" in imported
    assert not imported & {"uvicorn", "starlette", "prometheus_client", "h11"}
