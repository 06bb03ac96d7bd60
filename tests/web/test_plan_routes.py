"""`POST /plan`: permissions and invalid requests."""

import asyncio
import http.client
import json

from dovetail.api.reports import PlanReport, PlanRequest
from dovetail.errors import ClientError, ReasonCode
from dovetail.web import HttpCredentials, HttpServer
from support.brokers.web_views import views
from support.processes.broker_process import WAIT_SECONDS

JSON = {"content-type": "application/json"}
ORDER = {"spaces": [{"space": "s", "layout": "s#1", "places": [[0.0], [5.0]]}]}


def ask(*bodies: object, may: bool = True, refuses: str = "") -> list[tuple[int, object]]:
    async def judge(_credentials: HttpCredentials) -> None:
        if not may:
            raise ClientError(ReasonCode.NOT_AUTHORIZED, "not you")

    async def plan(order: PlanRequest) -> PlanReport:
        if refuses:
            raise ClientError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, refuses)
        (space,) = order.spaces
        return PlanReport(7, {"m": {space.space: tuple(space.places[0])}}, ("n",))

    def send(port: int, body: object) -> tuple[int, object]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        connection.request("POST", "/plan", json.dumps(body).encode(), JSON)
        response = connection.getresponse()
        answer = response.status, json.loads(response.read())
        connection.close()
        return answer

    async def work() -> list[tuple[int, object]]:
        server = HttpServer("127.0.0.1", 0, views(administer=judge, plan=plan))
        _, port = await server.start()
        try:
            return [await asyncio.to_thread(send, port, body) for body in bodies]
        finally:
            await server.stop()

    return asyncio.run(work())


def test_matchers_get_places() -> None:
    assert ask(ORDER) == [(202, {"number": 7, "places": {"m": {"s": [0.0]}}, "silent": ["n"]})]


def test_users_without_permission_are_refused() -> None:
    assert ask(ORDER, may=False) == [(403, {"error": "not you"})]


def test_invalid_plans_are_refused_with_a_sentence() -> None:
    answers = ask({}, {"spaces": []}, {"spaces": [{"space": "s", "layout": "s", "places": [[]]}]})
    assert [status for status, _ in answers] == [400] * 3
    assert all(str(answer).startswith("{'error': 'the body: ") for _, answer in answers)
    assert ask(ORDER, refuses="two are there") == [(400, {"error": "two are there"})]
