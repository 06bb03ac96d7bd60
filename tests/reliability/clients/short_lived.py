"""Short-lived clients with a will. Each has a new name, so that no reconnect cancels its will.

A client ends in one of three ways: its connection is lost, it sends DISCONNECT, or it sends
DISCONNECT and asks for its will nevertheless (MQTT 5).
"""

import asyncio
import contextlib

from reliability import mqtt, payload
from reliability.clients.client import Client
from reliability.history import Connect, Disconnect
from reliability.mqtt import Will
from reliability.workload import MQTT_5, ClientPlan
from reliability.world import World

_LIFE_SECONDS_MAX = 6.0
_LEAVE_SECONDS_MAX = 3.0


class ShortLivedClient(Client):
    def __init__(self, plan: ClientPlan, world: World) -> None:
        super().__init__(plan, world)
        self._lives = 0

    @property
    def is_done(self) -> bool:
        return self.connection is None

    def connect_action(self) -> Connect:
        return Connect(
            self.version,
            clean_start=True,
            will=f"{self.name}:1",
            will_topic=f"w/{self.name}",
            will_qos=2,
        )

    def will_of(self, action: Connect) -> Will | None:
        return Will(action.will_topic, payload.encode(action.will), action.will_qos)

    async def _live(self) -> None:
        if not self.world.is_publishing:
            return
        self._lives += 1
        self.name = f"{self.plan.name}.{self._lives}"
        if not await self._connect():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.random.uniform(0.2, _LIFE_SECONDS_MAX)):
                await self._over.wait()
        if self.connection is None:
            return
        draw = self.random.random()
        if draw < 0.4:
            self._end_connection(self.connection, lost=True)
        else:
            await self._leave(with_will=draw > 0.8 and self.version == MQTT_5)

    async def _leave(self, *, with_will: bool) -> None:
        """Send DISCONNECT, and wait until the broker closes the connection."""
        assert self.connection is not None
        connection = self.connection
        number = self.world.invoke(self.name, connection.node, Disconnect(with_will=with_will))
        reason = mqtt.DISCONNECT_WITH_WILL if with_will else 0
        connection.send(mqtt.disconnect(self.version, reason))
        try:
            async with asyncio.timeout(_LEAVE_SECONDS_MAX):
                await self._over.wait()
        except TimeoutError:
            self.world.complete(number, "unknown")
            self._end_connection(connection, lost=False)
        else:
            self.world.complete(number, "unknown" if connection.was_reset else "ok")
