"""`POST /drain`: permissions, invalid requests, and the answers."""

import asyncio
import http.client
import json
from collections.abc import Callable
from typing import get_args

import pytest

from dovetail.api.reports import DrainReport, DrainVerdict
from dovetail.errors import ClientError, ReasonCode
from dovetail.web import HttpCredentials, HttpServer
from support.brokers.web_views import views
from support.processes.broker_process import WAIT_SECONDS

JSON = {"content-type": "application/json"}
ORDER = b'{"name": "m"}'


def ask(
    *requests: tuple[bytes, dict[str, str]],
    verdict: DrainVerdict = "leaves",
    others: tuple[str, ...] = ("a", "b"),
    administer: Callable[[HttpCredentials], None] = lambda _credentials: None,
) -> list[tuple[int, dict[str, object]]]:
    """Statuses and bodies of the answers."""

    async def judge(credentials: HttpCredentials) -> None:
        administer(credentials)

    async def drain(name: str) -> DrainReport:
        return DrainReport(name, verdict, others)

    def send(port: int, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, object]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        connection.request("POST", "/drain", body, headers)
        response = connection.getresponse()
        answer = response.status, json.loads(response.read())
        connection.close()
        return answer

    async def work() -> list[tuple[int, dict[str, object]]]:
        server = HttpServer("127.0.0.1", 0, views(administer=judge, drain=drain))
        _, port = await server.start()
        try:
            return [await asyncio.to_thread(send, port, *request) for request in requests]
        finally:
            await server.stop()

    return asyncio.run(work())


def test_a_matcher_leaves() -> None:
    assert ask((ORDER, JSON)) == [
        (202, {"name": "m", "verdict": "leaves", "others": ["a", "b"]}),
    ]


def test_permission_is_checked_first() -> None:
    asked: list[HttpCredentials] = []

    def judge(credentials: HttpCredentials) -> None:
        asked.append(credentials)
        if credentials.password != b"secret":
            raise ClientError(ReasonCode.NOT_AUTHORIZED, "not you")

    basic = {"authorization": "Basic YW5uYTpzZWNyZXQ="}
    answers = ask(
        (b"?", JSON),
        (ORDER, {**JSON, "x-forwarded-for": "192.0.2.1"}),
        (ORDER, {**JSON, **basic}),
        administer=judge,
    )
    assert answers[:2] == [(403, {"error": "not you"})] * 2
    assert answers[2][0] == 202
    here = "127.0.0.1"
    assert asked == [
        HttpCredentials(None, None, here, is_local=True),
        HttpCredentials(None, None, here, is_local=False),
        HttpCredentials("anna", b"secret", here, is_local=True),
    ]


def test_pages_in_browsers_cannot_ask() -> None:
    answers = ask(
        (ORDER, {"content-type": "text/plain"}),
        (ORDER, {}),
        (ORDER, {**JSON, "origin": "http://127.0.0.1"}),
    )
    assert [status for status, _ in answers] == [415, 415, 403]


def test_invalid_bodies() -> None:
    bodies = [b"", b"{}", b'{"name": ""}', b'{"name": 1}', b'{"name": "m", "also": 1}']
    bodies.append(json.dumps({"name": "m" * 1_000}).encode())
    assert [status for status, _ in ask(*((body, JSON) for body in bodies))] == [400] * 6


REFUSALS = {
    "unknown": (404, "there is no node m here; its matchers are a, b"),
    "broker": (409, "m is a broker, and only matchers are drained."),
    "left": (409, "m has left already"),
    "dead": (409, "m is not heard any more, and cannot hand over."),
    "silent": (504, "m does not answer."),
}


@pytest.mark.parametrize("verdict", sorted({*get_args(DrainVerdict)} - {"leaves"}))
def test_refusals(verdict: DrainVerdict) -> None:
    ((status, body),) = ask((ORDER, JSON), verdict=verdict)
    expected, words = REFUSALS[verdict]
    assert status == expected
    assert words in str(body["error"])


def test_a_cluster_without_matchers() -> None:
    ((_, body),) = ask((ORDER, JSON), verdict="unknown", others=())
    assert body == {"error": "there is no node m here; there are no matchers"}
