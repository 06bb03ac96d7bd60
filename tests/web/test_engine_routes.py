"""`POST /engine/...`: permissions, bodies, and the answers of a running broker."""

import asyncio
import http.client
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from dovetail.api.engine import (
    MEDIA_TYPE,
    ClauseChanges,
    ClauseQuery,
    DeliveryBatch,
    DeliveryReceipt,
    EngineMatch,
)
from dovetail.codec.packets import Ack, Publish
from dovetail.errors import ClientError, ReasonCode
from dovetail.web import HttpCredentials, HttpServer
from dovetail.web.limits import HTTP_BODY_BYTES_MAX
from support.brokers.harness import attributes
from support.brokers.web_views import views
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until

T = TypeVar("T")

MSGPACK = {"content-type": MEDIA_TYPE}


class FakeEngine:
    """Records its requests."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def list_clauses(self, query: ClauseQuery) -> ClauseChanges:
        self.asked.append(query)
        return ClauseChanges("one", 1, 2, True, False, 3, [], [])

    async def deliver(self, batch: DeliveryBatch) -> DeliveryReceipt:
        self.asked.append(batch)
        return DeliveryReceipt([(0, [7])])


def ask(
    *requests: tuple[str, bytes, dict[str, str]],
    administer: Callable[[], None] = lambda: None,
    engine: FakeEngine | None = None,
) -> list[tuple[int, bytes]]:
    async def judge(_credentials: HttpCredentials) -> None:
        administer()

    async def work() -> Sequence[tuple[int, bytes]]:
        made = views(administer=judge, engine=engine or FakeEngine())
        server = HttpServer("127.0.0.1", 0, made)
        _, port = await server.start()
        try:
            return [await asyncio.to_thread(send, port, *request) for request in requests]
        finally:
            await server.stop()

    return [*asyncio.run(work())]


def send(port: int, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_requests_and_answers() -> None:
    engine = FakeEngine()
    query = ClauseQuery("traffic", 1, 2, 3)
    matched = EngineMatch("one", 1, b"traffic/1", b"", 1, False, b"", None, "c", [-7, 7])
    batch = DeliveryBatch("e", "traffic", [matched], ends={"one": 5})
    (status, listed), (_, taken) = ask(
        ("/engine/subscriptions", msgspec.msgpack.encode(query), MSGPACK),
        ("/engine/deliveries", msgspec.msgpack.encode(batch), MSGPACK),
        engine=engine,
    )
    assert status == 200
    assert msgspec.msgpack.decode(listed, type=ClauseChanges).served == 3
    assert msgspec.msgpack.decode(taken, type=DeliveryReceipt).unknown == [(0, [7])]
    assert engine.asked == [query, batch]


def test_invalid_requests() -> None:
    engine = FakeEngine()
    good = msgspec.msgpack.encode(ClauseQuery("traffic"))
    found = ask(
        ("/engine/subscriptions", good, {"content-type": "application/json"}),
        ("/engine/subscriptions", b"\xff\xff", MSGPACK),
        ("/engine/subscriptions", good, {**MSGPACK, "origin": "http://page"}),
        ("/engine/deliveries", good, MSGPACK),
        engine=engine,
    )
    assert [status for status, _ in found] == [415, 400, 403, 400]
    assert engine.asked == []


def test_a_body_may_be_larger_than_those_of_other_requests() -> None:
    engine = FakeEngine()
    payload = bytes(4 * HTTP_BODY_BYTES_MAX)
    match = EngineMatch("one", 1, b"traffic/1", payload, 1, False, b"", None, "c", [7])
    batch = DeliveryBatch("e", "traffic", [match])
    ((status, _),) = ask(
        ("/engine/deliveries", msgspec.msgpack.encode(batch), MSGPACK), engine=engine
    )
    assert status == 200
    assert engine.asked == [batch]


@pytest.mark.parametrize("path", ["/engine/subscriptions", "/engine/deliveries"])
def test_administrators_only(path: str) -> None:
    engine = FakeEngine()

    def refuse() -> None:
        raise ClientError(ReasonCode.NOT_AUTHORIZED, "no")

    ((status, _),) = ask(
        (path, msgspec.msgpack.encode(ClauseQuery("traffic")), MSGPACK),
        administer=refuse,
        engine=engine,
    )
    assert status == 403
    assert engine.asked == []


CONFIGURATION = """
name = "one"
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[archive]
folder = "archive"
[spaces.traffic]
topics = "traffic/#"
engine = "spark"
[spaces.traffic.dimensions]
speed = [0, 200]
"""


def test_a_running_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, CONFIGURATION) as broker:
        port = broker.port_of("http")

        def said(path: str, what: msgspec.Struct, kind: type[T]) -> T:
            status, body = send(port, path, msgspec.msgpack.encode(what), MSGPACK)
            assert status == 200, body
            return msgspec.msgpack.decode(body, type=kind)

        with WireClient(broker.port, "reader") as reader, WireClient(broker.port, "c") as client:
            assert reader.subscribe("traffic/#?speed>=30", 1) == 1
            changes = said("/engine/subscriptions", ClauseQuery("traffic"), ClauseChanges)
            (entry,) = changes.put
            assert (changes.broker, entry.filter, entry.where) == (
                "one",
                "traffic/#",
                "speed >= 30",
            )
            again = ClauseQuery("traffic", changes.life, changes.version)
            assert said("/engine/subscriptions", again, ClauseChanges).put == []
            client.send(
                Publish(b"traffic/1", b"!", 1, packet_id=1, properties=attributes(speed=50))
            )
            assert isinstance(client.receive(), Ack)
            wait_until(
                lambda: broker.metric("engine_rows_waiting") == 1, "a publication that waits"
            )
            matched = EngineMatch(
                "one", 1 << 60, b"traffic/1", b"!", 1, False, b"", None, "c", [entry.id, 5]
            )
            batch = DeliveryBatch("e", "traffic", [matched])
            assert said("/engine/deliveries", batch, DeliveryReceipt).unknown == [(0, [5])]
            assert said("/engine/deliveries", batch, DeliveryReceipt).unknown == []
            assert reader.receive_message().payload == b"!"
            assert broker.metric("engine_repeats_total") == 1
        status, body = send(
            port, "/engine/subscriptions", msgspec.msgpack.encode(ClauseQuery("elsewhere")), MSGPACK
        )
        assert status == 404
        assert b"there are traffic" in body
