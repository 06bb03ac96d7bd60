"""Messages by handle over HTTP: a real server and broker in one loop, and all kinds of requests.

Each answer and each accepted request is checked against the OpenAPI description.
"""

import asyncio
import base64
import contextlib
import functools
import http.client
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import parse_qsl

import pytest

from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.handle_requests import HandleRequests
from dovetail.broker.limits import RETAINED_LOOKS_PER_PIECE
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.shared_state import SharedState
from dovetail.codec.properties import forwardable_properties
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.settings import AccessRule, MqttSettings
from dovetail.web import HttpCredentials, HttpServer, uvicorn_server
from dovetail.web.limits import HTTP_BODY_BYTES_MAX
from dovetail.web.openapi import DOCUMENT
from dovetail.web.pages import make_application
from dovetail.web.requests import STATUSES
from support.brokers.web_views import views
from support.oracles.openapi import ApiDescription
from support.processes.broker_process import WAIT_SECONDS

JSON = {"content-type": "application/json"}
DESCRIPTION = ApiDescription(json.loads(DOCUMENT))


def in_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: object, **named: object) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)

    @property
    def payloads(self) -> list[str]:
        assert self.status == 200, self
        return [message["payload"] for message in self.json["messages"]]

    def refuses(self, status: int, words: str) -> bool:
        assert (self.status, list(self.json)) == (status, ["error"]), self
        assert words in self.json["error"], self
        return True


class Site:
    """A broker that serves HTTP."""

    def __init__(self, server: BrokerServer, polling: HandleRequests, port: int) -> None:
        self.server = server
        self.polling = polling
        self.port = port

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = json.dumps(body).encode() if isinstance(body, dict) else body or b""
        given = dict(JSON if headers is None and body is not None else headers or {})
        answer = await asyncio.to_thread(self._ask, method, path, sent, given)
        place, _, query = path.partition("?")
        operation = DESCRIPTION.find(method, place)
        if operation is not None:
            DESCRIPTION.check_answer(operation, answer.status, answer.body)
            if answer.status < 300:
                DESCRIPTION.check_request(operation, dict(parse_qsl(query)), sent)
                assert method == "DELETE" or answer.headers["cache-control"] == "no-store"
        return answer

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        answer = Answer(response.status, dict(response.getheaders()), response.read())
        connection.close()
        return answer

    async def subscribe(self, *filters: str, **fields: object) -> str:
        """The path of the handle."""
        answer = await self.ask("POST", "/subscriptions", {"filters": list(filters), **fields})
        assert answer.status == 201, answer
        path = answer.headers["location"]
        assert path == f"/subscriptions/{answer.json['handle']}"
        return path

    async def poll(self, path: str, query: str = "") -> Answer:
        return await self.ask("GET", f"{path}/messages{query}")

    async def acknowledge(self, path: str, *ids: int) -> Answer:
        return await self.ask("POST", f"{path}/acknowledgements", {"ids": list(ids)})

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        self.server.update_clock()
        self.server.broker.publish(Message(topic.encode(), payload, qos))
        self.server.schedule_commit()

    async def until_waiting(self, count: int = 1) -> None:
        await until(lambda: self.server.shared.gauges.clients_connected == count)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def log_in(credentials: HttpCredentials) -> str | None:
    """Anna's password is secret; others on this machine need none."""
    if credentials.user is None and credentials.is_local:
        return None
    if (credentials.user, credentials.password) == ("anna", b"secret"):
        return credentials.user
    raise ClientError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the name or the password is wrong")


@asynccontextmanager
async def site(
    *, polls_max: int = 10, rules: tuple[AccessRule, ...] = (), **limits: object
) -> AsyncIterator[Site]:
    server = BrokerServer(
        SharedState(MqttSettings(**limits)),  # type: ignore[arg-type]
        None,
        authenticate=lambda _link, _packet: None,
        random=Random(1),
        clock=time.time,
        rules=AccessRules(rules),
    )
    polling = HandleRequests(server, polls_max)
    serves = HttpServer("127.0.0.1", 0, views(handles=polling, log_in=log_in), polls_max)
    _, port = await serves.start()
    try:
        yield Site(server, polling, port)
    finally:
        polling.stop()
        await server.stop()
        await asyncio.wait_for(serves.stop(), WAIT_SECONDS)


# From the first request to the last ---------------------------------------------------------------


@in_loop
async def test_subscribe_poll_acknowledge_unsubscribe() -> None:
    async with site() as node:
        path = await node.subscribe("a/+", "b", "b", expiry_seconds=60)
        node.publish("a/1", "grüße".encode())
        node.publish("b", b"\xff", 0)
        about = await node.ask("GET", path)
        assert about.json == {
            "handle": path.rpartition("/")[2],
            "subscriptions": [{"filter": "a/+"}, {"filter": "b"}],
            "expiry_seconds": 60,
            "queued_messages": 2,
        }
        first = await node.poll(path, "?max=1")
        assert first.payloads == ["grüße"]
        both = (await node.poll(path)).json["messages"]
        assert [one["duplicate"] for one in both] == [True, False]
        assert [one["encoding"] for one in both] == ["utf-8", "base64"]
        done = await node.acknowledge(path, both[0]["id"], both[0]["id"])
        assert done.json == {"acknowledged": [both[0]["id"]], "unknown": []}
        done = await node.acknowledge(path, both[0]["id"], both[1]["id"])
        assert done.json == {"acknowledged": [both[1]["id"]], "unknown": [both[0]["id"]]}
        assert (await node.poll(path)).payloads == []
        gone = await node.ask("DELETE", path)
        assert (gone.status, gone.body) == (204, b"")
        for method, place in (("GET", path), ("GET", f"{path}/messages"), ("DELETE", path)):
            assert (await node.ask(method, place)).refuses(404, "there is no such handle")
        assert (await node.acknowledge(path, 1)).refuses(404, "there is no such handle")
        assert node.server.broker.sessions == {}


@in_loop
async def test_a_poll_that_waits_is_woken() -> None:
    async with site() as node:
        path = await node.subscribe("t")
        polling = asyncio.create_task(node.poll(path, "?wait=30"))
        await node.until_waiting()
        node.publish("t", b"1")
        node.publish("t", b"2")
        assert (await polling).payloads == ["1", "2"]


@in_loop
async def test_acknowledging_does_not_end_a_poll_that_waits() -> None:
    async with site() as node:
        path = await node.subscribe("t")
        node.publish("t", b"1")
        (one,) = (await node.poll(path)).json["messages"]
        await node.acknowledge(path, one["id"])
        polling = asyncio.create_task(node.poll(path, "?wait=30"))
        await node.until_waiting()
        assert (await node.acknowledge(path, one["id"])).json["unknown"] == [one["id"]]
        assert (await node.ask("GET", path)).json["queued_messages"] == 0
        node.publish("t", b"2")
        assert (await polling).payloads == ["2"]


@in_loop
async def test_a_where_clause() -> None:
    async with site() as node:
        traffic = Space("traffic", "traffic/#", (Dimension("speed", 0, 200),), frozenset({"road"}))
        node.server.broker.change_spaces(SpaceRegistry((traffic,)))
        path = await node.subscribe("traffic/#", "traffic/a?speed>100", where=None)
        about = await node.ask("GET", path)
        assert about.json["subscriptions"] == [
            {"filter": "traffic/#"},
            {"filter": "traffic/a", "where": "speed > 100"},
        ]
        path = await node.subscribe("traffic/#", where="speed   <25")
        about = await node.ask("GET", path)
        assert about.json["subscriptions"] == [{"filter": "traffic/#", "where": "speed < 25"}]
        order: dict[str, object] = {"filters": ["traffic/#"], "where": "speed < 25 andd"}
        refused = await node.ask("POST", "/subscriptions", order)
        assert refused.refuses(400, "speed < 25 andd\n")
        order = {"filters": ["traffic/#"], "where": 'road == "a\0"'}
        refused = await node.ask("POST", "/subscriptions", order)
        assert refused.refuses(400, "no null character")
        order = {"filters": ["traffic/#?road=%00"]}
        refused = await node.ask("POST", "/subscriptions", order)
        assert refused.refuses(400, "no null character")


@in_loop
async def test_a_where_clause_and_many_retained_messages() -> None:
    """More than are looked at in one turn (broker/retained_delivery.py)."""
    async with site() as node:
        node.server.broker.change_spaces(
            SpaceRegistry((Space("s", "s/#", (Dimension("x", 0, 9),)),))
        )
        last = 3 * RETAINED_LOOKS_PER_PIECE
        for number in range(last + 1):
            values = forwardable_properties(user=(("x", str(number)),))
            message = Message(b"s/%d" % number, b"%d" % number, retain=True, properties=values)
            node.server.broker.publish(message)
        path = await node.subscribe("s/#", where=f"x in (0, {last})")
        answer = await node.poll(path)
        assert {one["payload"] for one in answer.json["messages"]} == {"0", str(last)}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@in_loop
async def test_a_later_request_takes_the_handle_over(method: str) -> None:
    async with site() as node:
        path = await node.subscribe("t")
        earlier = asyncio.create_task(node.poll(path, "?wait=30"))
        await node.until_waiting()
        later = await node.ask(method, path if method == "DELETE" else f"{path}/messages")
        assert later.status in (200, 204)
        assert (await earlier).refuses(409, "another request has this handle")


@in_loop
async def test_a_client_that_leaves_frees_its_poll() -> None:
    async with site(polls_max=1) as node:
        path = await node.subscribe("t")
        client = socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS)
        request = f"GET {path}/messages?wait=60 HTTP/1.1\r\nHost: a\r\n\r\n"
        client.sendall(request.encode())
        await node.until_waiting()
        assert (await node.poll(path)).refuses(503, "1 polls wait already")
        client.close()
        await node.until_waiting(0)
        node.publish("t", b"1")
        assert (await node.poll(path)).json["messages"][0]["duplicate"] is False


@in_loop
async def test_a_waiting_poll_is_not_an_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uvicorn_server, "REQUEST_SECONDS_MAX", 0.01)
    looks = 0
    look = uvicorn_server.BoundedProtocol._end_if_idle

    def count(protocol: uvicorn_server.BoundedProtocol, *arguments: Any) -> None:  # noqa: ANN401
        nonlocal looks
        looks += 1
        look(protocol, *arguments)

    monkeypatch.setattr(uvicorn_server.BoundedProtocol, "_end_if_idle", count)
    async with site() as node:
        path = await node.subscribe("t")
        polling = asyncio.create_task(node.poll(path, "?wait=30"))
        await node.until_waiting()
        seen = looks
        await until(lambda: looks >= seen + 3)
        node.publish("t", b"1")
        assert (await polling).payloads == ["1"]


@in_loop
async def test_a_stop_answers_waiting_polls() -> None:
    async with site() as node:
        path = await node.subscribe("t")
        polling = asyncio.create_task(node.poll(path, "?wait=30"))
        await node.until_waiting()
        node.polling.stop()
        node.server.broker.stop(time.time())
        assert (await polling).refuses(503, "the broker stops")
        assert (await node.ask("GET", path)).refuses(503, "the broker stops")
        assert (await node.ask("POST", "/subscriptions", {"filters": ["t"]})).status == 503


# Who may ------------------------------------------------------------------------------------------


def basic(text: bytes) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text).decode()}", **JSON}


@in_loop
async def test_users_log_in_and_have_their_own_handles() -> None:
    async with site(rules=(AccessRule(user="anna", subscribe=("t",)),)) as node:
        order: dict[str, object] = {"filters": ["t"]}
        anna = basic(b"anna:secret")
        made = await node.ask("POST", "/subscriptions", order, anna)
        path = made.headers["location"]
        assert (await node.ask("GET", path, headers=anna)).status == 200
        assert (await node.ask("GET", path)).refuses(404, "no such handle")
        wrong = await node.ask("GET", path, headers=basic(b"anna:secrets"))
        assert wrong.refuses(401, "password is wrong")
        assert wrong.headers["www-authenticate"].startswith("Basic realm=")
        assert (await node.ask("POST", "/subscriptions", order)).refuses(403, "'t' is not allowed")
        order = {"filters": ["t", "#"]}
        refused = await node.ask("POST", "/subscriptions", order, anna)
        assert refused.refuses(403, "'#' is not allowed")
        assert len(node.server.broker.sessions) == 1


@in_loop
async def test_invalid_authorization_headers() -> None:
    unreadable = ["Bearer abc", "Basic", "Basic !", "Basic YW5uYQ==", "Basic /////zp4", ""]
    async with site() as node:
        for given in unreadable:
            answer = await node.ask(
                "POST", "/subscriptions", {"filters": ["t"]}, {"authorization": given, **JSON}
            )
            assert answer.refuses(401, "has to be Basic")
            assert "www-authenticate" in answer.headers


@in_loop
async def test_a_request_through_a_proxy_is_not_local() -> None:
    async with site() as node:
        for name in ("Forwarded", "X-Forwarded-For", "Via"):
            headers = {name: "for=192.0.2.1", **JSON}
            answer = await node.ask("POST", "/subscriptions", {"filters": ["t"]}, headers)
            assert answer.status == 401


@in_loop
async def test_requests_of_web_pages_are_refused() -> None:
    async with site() as node:
        order: dict[str, object] = {"filters": ["t"]}
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            headers = {"content-type": kind} if kind else {}
            answer = await node.ask("POST", "/subscriptions", order, headers)
            assert answer.refuses(415, "application/json")
        headers = {"Origin": "http://example.org", **JSON}
        answer = await node.ask("POST", "/subscriptions", order, headers)
        assert answer.refuses(403, "web pages")
        answer = await node.ask("OPTIONS", "/subscriptions", headers=headers)
        assert answer.status == 405
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert node.server.broker.sessions == {}


# What cannot be taken -----------------------------------------------------------------------------


UNREADABLE = [
    (b"", "the body"),
    (b"{", "the body"),
    (b"[]", "Expected `object`"),
    (b"null", "Expected `object`"),
    (b"{}", "missing required field `filters`"),
    (b'{"filters": []}', "length >= 1"),
    (b'{"filters": "t"}', "Expected `array`"),
    (b'{"filters": [1]}', "Expected `str`"),
    (b'{"filters": [""]}', "length >= 1"),
    (b'{"filters": ["a/#/b"]}', "'#' must be the last level"),
    (b'{"filters": ["a\\u0000"]}', "null character"),
    (b'{"filters": ["t"], "where": ""}', "length >= 1"),
    (b'{"filters": ["t"], "where": "a <"}', "no space governs all topics of 't'"),
    (b'{"filters": ["\\ud800"]}', ""),
    (b'{"filters": ["\xff"]}', "the body"),
    (b'{"filters": ["$share/g"]}', "shared subscription"),
    (json.dumps({"filters": ["x"] * 101}).encode(), "length <= 100"),
    (json.dumps({"filters": ["a/" * 200]}).encode(), "128 levels"),
    (b'{"filters": ["t"], "expiry_seconds": 0}', ">= 1"),
    (b'{"filters": ["t"], "expiry_seconds": 31536001}', "<= 31536000"),
    (b'{"filters": ["t"], "expiry_seconds": 1e400}', ""),
    (b'{"filters": ["t"], "expiry_seconds": true}', "Expected `int`"),
    (b'{"filters": ["t"], "qos": 1}', "unknown field `qos`"),
    (b'{"filters": ' + b"[" * 50_000, "Expected `str`"),
    (b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "unknown field"),
]


@in_loop
async def test_invalid_bodies_of_subscribe() -> None:
    async with site() as node:
        for body, words in UNREADABLE:
            answer = await node.ask("POST", "/subscriptions", body, JSON)
            assert answer.refuses(400, words)
        assert node.server.broker.sessions == {}


@in_loop
async def test_invalid_queries() -> None:
    wrong = [
        "wait=61",
        "wait=-1",
        "wait=x",
        "wait=1e9",
        "wait=",
        "max=0",
        "max=1001",
        "a=1",
        "max=1&max=2",
    ]
    async with site() as node:
        path = await node.subscribe("t")
        for query in wrong:
            assert (await node.poll(path, f"?{query}")).refuses(400, "the query of the URL")


@in_loop
async def test_invalid_bodies_of_acknowledge() -> None:
    wrong: list[object] = [[], [0], [65_536], ["1"], [1.5], None, [1] * 10_001]
    async with site() as node:
        path = await node.subscribe("t")
        for ids in wrong:
            answer = await node.ask("POST", f"{path}/acknowledgements", {"ids": ids})
            assert answer.refuses(400, "the body")


@in_loop
async def test_invalid_handles() -> None:
    async with site() as node:
        for handle in ("x", "%00", "a" * 40, "a" * 5_000, "%ff", "..%2f..%2fx"):
            answer = await node.poll(f"/subscriptions/{handle}")
            assert (answer.status, list(answer.json)) == (404, ["error"])


@in_loop
async def test_a_body_is_bounded_before_it_is_read() -> None:
    async with site() as node:
        long = b" " * (HTTP_BODY_BYTES_MAX + 1)
        answer = await node.ask("POST", "/subscriptions", long, JSON)
        assert answer.refuses(413, "more than 262,144 bytes")
        head = b"POST /subscriptions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(head + b"Content-Length: 1000000000\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()


@in_loop
async def test_an_endless_body_is_not_read() -> None:
    head = b"POST /subscriptions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    chunks = b"1\r\n \r\n" * (2 * HTTP_BODY_BYTES_MAX // 6)
    async with site() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + chunks)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
        writer.close()
        # Who was answered may read that, whatever it still sends.
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(head + b"Content-Length: 1000000000\r\n\r\n")
        for _ in range(4):
            writer.write(chunks)
            await asyncio.wait_for(writer.drain(), WAIT_SECONDS)
        assert (await reader.readuntil(b'bytes"}')).startswith(b"HTTP/1.1 413 ")
        writer.close()


@in_loop
async def test_answers_name_the_limits_of_the_broker() -> None:
    async with site(sessions_max=1, session_expiry_max_seconds=5) as node:
        path = await node.subscribe("t")
        assert (await node.ask("GET", path)).json["expiry_seconds"] == 5
        answer = await node.ask("POST", "/subscriptions", {"filters": ["t"]})
        assert answer.refuses(503, "as many sessions as are allowed")
        assert answer.headers["retry-after"] == "1"
    async with site(session_expiry_max_seconds=0) as node:
        answer = await node.ask("POST", "/subscriptions", {"filters": ["t"]})
        assert answer.refuses(503, "mqtt.session_expiry_max_seconds")


@in_loop
async def test_other_paths_and_methods_are_refused_as_json_too() -> None:
    async with site() as node:
        path = await node.subscribe("t")
        assert (await node.ask("GET", "/nothing")).refuses(404, "Not Found")
        assert (await node.ask("PUT", path)).refuses(405, "Method Not Allowed")


# The description ----------------------------------------------------------------------------------


@in_loop
async def test_the_openapi_document_is_served() -> None:
    async with site() as node:
        answer = await node.ask("GET", "/openapi.json")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json == DESCRIPTION.document


def test_the_openapi_document_has_all_routes() -> None:
    application = make_application(views())
    routes = {
        (method, route.path)  # type: ignore[attr-defined]
        for route in application.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
        if route.path.startswith("/subscriptions")  # type: ignore[attr-defined]
    }
    operations = DESCRIPTION.operations()
    assert routes == operations.keys()
    assert len({one["operationId"] for one in operations.values()}) == len(operations)


def test_every_reference_resolves_and_every_error_has_a_status() -> None:
    for reference in {*_references(DESCRIPTION.document)}:
        assert DESCRIPTION.resolve(reference)
    described = {
        int(status) for one in DESCRIPTION.operations().values() for status in one["responses"]
    }
    assert {*STATUSES.values()} <= described


def _references(part: object) -> list[str]:
    if isinstance(part, dict):
        here = [part["$ref"]] if "$ref" in part else []
        return here + [one for inner in part.values() for one in _references(inner)]
    return [one for inner in part for one in _references(inner)] if isinstance(part, list) else []
