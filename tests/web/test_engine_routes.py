"""`POST /engine/...`: who may, what a request looks like, and what a running broker says to it."""

import asyncio
import http.client
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from dovetail.api.engine import MEDIA_TYPE, Handover, Listed, Matched, Question, Taken
from dovetail.codec.packets import Ack, Publish
from dovetail.errors import ClientError, ReasonCode
from dovetail.web import Claim, HttpServer
from support.brokers.harness import attributes
from support.brokers.web_views import views
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until

T = TypeVar("T")

MSGPACK = {"content-type": MEDIA_TYPE}


class Engine:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def tell(self, question: Question) -> Listed:
        self.asked.append(question)
        return Listed("one", 1, 2, True, False, 3, [], [])

    async def take(self, handover: Handover) -> Taken:
        self.asked.append(handover)
        return Taken([(0, [7])])


def ask(
    *requests: tuple[str, bytes, dict[str, str]],
    administer: Callable[[], None] = lambda: None,
    engine: Engine | None = None,
) -> list[tuple[int, bytes]]:
    async def judge(_claim: Claim) -> None:
        administer()

    async def work() -> Sequence[tuple[int, bytes]]:
        made = views(administer=judge, engine=engine or Engine())
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


def test_questions_and_answers() -> None:
    engine = Engine()
    question = Question("traffic", 1, 2, 3)
    matched = Matched("one", 1, b"traffic/1", b"", 1, False, b"", None, "c", [-7, 7])
    handover = Handover("e", "traffic", [matched], ends={"one": 5})
    (status, listed), (_, taken) = ask(
        ("/engine/subscriptions", msgspec.msgpack.encode(question), MSGPACK),
        ("/engine/deliveries", msgspec.msgpack.encode(handover), MSGPACK),
        engine=engine,
    )
    assert status == 200
    assert msgspec.msgpack.decode(listed, type=Listed).served == 3
    assert msgspec.msgpack.decode(taken, type=Taken).unknown == [(0, [7])]
    assert engine.asked == [question, handover]


def test_requests_that_are_none() -> None:
    engine = Engine()
    good = msgspec.msgpack.encode(Question("traffic"))
    found = ask(
        ("/engine/subscriptions", good, {"content-type": "application/json"}),
        ("/engine/subscriptions", b"\xff\xff", MSGPACK),
        ("/engine/subscriptions", good, {**MSGPACK, "origin": "http://page"}),
        ("/engine/deliveries", good, MSGPACK),
        engine=engine,
    )
    assert [status for status, _ in found] == [415, 400, 403, 400]
    assert engine.asked == []


@pytest.mark.parametrize("path", ["/engine/subscriptions", "/engine/deliveries"])
def test_administrators_only(path: str) -> None:
    engine = Engine()

    def refuse() -> None:
        raise ClientError(ReasonCode.NOT_AUTHORIZED, "no")

    ((status, _),) = ask(
        (path, msgspec.msgpack.encode(Question("traffic")), MSGPACK),
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
            listed = said("/engine/subscriptions", Question("traffic"), Listed)
            (entry,) = listed.put
            assert (listed.broker, entry.filter, entry.where) == ("one", "traffic/#", "speed >= 30")
            again = Question("traffic", listed.life, listed.version)
            assert said("/engine/subscriptions", again, Listed).put == []
            client.send(
                Publish(b"traffic/1", b"!", 1, packet_id=1, properties=attributes(speed=50))
            )
            assert isinstance(client.receive(), Ack)
            wait_until(
                lambda: broker.metric("engine_rows_waiting") == 1, "a publication that waits"
            )
            matched = Matched(
                "one", 1 << 60, b"traffic/1", b"!", 1, False, b"", None, "c", [entry.id, 5]
            )
            handover = Handover("e", "traffic", [matched])
            assert said("/engine/deliveries", handover, Taken).unknown == [(0, [5])]
            assert said("/engine/deliveries", handover, Taken).unknown == []
            assert reader.receive_message().payload == b"!"
            assert broker.metric("engine_repeats_total") == 1
        status, body = send(
            port, "/engine/subscriptions", msgspec.msgpack.encode(Question("elsewhere")), MSGPACK
        )
        assert status == 404
        assert b"there are traffic" in body
