"""A reader over HTTP: it creates a handle, polls it, and acknowledges most of its messages.

In the history a handle is a client. It "connects" when it first asks another broker than before.
Messages that it does not acknowledge must come again, under the same number.
"""

import asyncio
import contextlib
from random import Random
from typing import Any

from reliability import payload
from reliability.clients.http import request
from reliability.history import Acknowledge, Connect, Delivered, Invoked, Subscribe
from reliability.workload import MQTT_5, ClientPlan
from reliability.world import Place, World

EXPIRY_SECONDS = 30 * 86_400
"""Longer than any jump of a clock."""

_POLL_SECONDS = 1
_ANSWER_SECONDS_MAX = 15.0
_RETRY_SECONDS = 0.3
_FORGETS_ONE_IN = 5
_MOVES_ONE_IN = 4


class HandleReader:
    def __init__(self, plan: ClientPlan, world: World) -> None:
        assert plan.subscriber_plan is not None
        self.name = plan.name
        self.plan = plan
        self._subscribing = plan.subscriber_plan
        self._world = world
        self._random = Random(plan.seed)
        self._handle = ""
        self._node = plan.home
        self._connected: tuple[str, int] = ("", 0)
        """The broker that last answered for the handle, and the number of that operation."""
        self._last_was_empty = False

    @property
    def is_done(self) -> bool:
        return bool(self._handle) and self._last_was_empty

    async def run(self) -> None:
        """Create the handle and poll it until cancelled."""
        while True:
            place = self._world.places.get(self._node)
            try:
                if place is not None:
                    await self._turn(place)
            except OSError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await asyncio.sleep(0 if place is not None else _RETRY_SECONDS)
            if self.plan.roams and self._random.randrange(_MOVES_ONE_IN) == 0:
                self._node = self._random.choice(self._world.nodes)

    async def _turn(self, place: Place) -> None:
        if self._handle:
            await self._poll(place)
        else:
            await self._create(place)

    async def _create(self, place: Place) -> None:
        world, plan = self._world, self._subscribing
        connection = world.invoke(
            self.name, self._node, Connect(MQTT_5, expiry_seconds=EXPIRY_SECONDS)
        )
        asked_at = world.now()
        order = {"filters": [plan.filter], "expiry_seconds": EXPIRY_SECONDS}
        status, answer = await self._ask(place, "POST", "/subscriptions", order)
        if status not in {200, 201}:
            world.complete(connection, "fail", status)
            raise OSError(f"no handle: {status}")
        world.complete(connection, "ok")
        # The same request has subscribed.
        action = Subscribe(plan.filter, plan.qos, is_handle=True)
        number = world.recorder.next_number()
        world.record(Invoked(asked_at, number, self.name, self._node, action))
        world.complete(number, "ok")
        self._handle = answer["handle"]
        self._connected = (self._node, connection)

    async def _poll(self, place: Place) -> None:
        node, connection = self._connected
        if node != self._node:
            action = Connect(MQTT_5, expiry_seconds=EXPIRY_SECONDS)
            connection = self._world.invoke(self.name, self._node, action)
        path = f"/subscriptions/{self._handle}/messages?wait={_POLL_SECONDS}"
        status, answer = await self._ask(place, "GET", path)
        if status != 200:
            if node != self._node:
                self._world.complete(connection, "fail", status)
            raise OSError(f"no messages: {status}")
        if node != self._node:
            self._world.complete(connection, "ok", session_present=True)
            self._connected = (self._node, connection)
        messages = answer["messages"]
        self._last_was_empty = not messages
        for message in messages:
            self._record(message, connection)
        if messages and self._random.randrange(_FORGETS_ONE_IN):
            await self._acknowledge(place, messages)

    def _record(self, message: dict[str, Any], connection: int) -> None:
        name, is_damaged = payload.decode(message["payload"].encode())
        self._world.delivered += 1
        self._world.record(
            Delivered(
                self._world.now(),
                self.name,
                self._node,
                connection,
                name,
                message["topic"],
                message["qos"],
                message["retain"],
                message["duplicate"],
                is_damaged,
            )
        )

    async def _acknowledge(self, place: Place, messages: list[dict[str, Any]]) -> None:
        world = self._world
        names = tuple(payload.decode(one["payload"].encode())[0] for one in messages)
        number = world.invoke(self.name, self._node, Acknowledge(names))
        path = f"/subscriptions/{self._handle}/acknowledgements"
        try:
            status, _ = await self._ask(
                place, "POST", path, {"ids": [one["id"] for one in messages]}
            )
        except OSError:
            world.complete(number, "unknown")
            raise
        world.complete(number, "ok" if status == 200 else "fail", status if status != 200 else 0)

    async def _ask(
        self, place: Place, method: str, path: str, body: object = None
    ) -> tuple[int, Any]:
        with contextlib.suppress(asyncio.IncompleteReadError):
            return await request(
                place.host, place.http_port, method, path, body, seconds=_ANSWER_SECONDS_MAX
            )
        raise OSError("the answer was cut off")
