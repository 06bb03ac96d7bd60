"""A client without a persistent session: it subscribes, listens, unsubscribes, and leaves.

It detects a broker that still sends after UNSUBSCRIBE or DISCONNECT.
"""

import asyncio
import contextlib
from collections.abc import Callable

from reliability import mqtt
from reliability.clients.client import CONNACK_SECONDS_MAX, Client
from reliability.clients.subscriber import Subscriber
from reliability.history import Connect
from reliability.workload import ClientPlan
from reliability.world import World

_STAY_SECONDS_MAX = 6.0
_LINGER_SECONDS = 1.0
_TURN_SECONDS = 0.1


class TransientClient(Client):
    def __init__(self, plan: ClientPlan, world: World) -> None:
        super().__init__(plan, world)
        assert plan.subscriber_plan is not None
        self._subscriber = Subscriber(self, plan.subscriber_plan)
        self.roles = (self._subscriber,)

    @property
    def is_done(self) -> bool:
        return True

    def connect_action(self) -> Connect:
        return Connect(self.version, clean_start=True)

    async def _live(self) -> None:
        if not await self._connect():
            return
        await self._until(lambda: self._subscriber.granted)
        await asyncio.sleep(self.random.uniform(0, _STAY_SECONDS_MAX))
        if self.connection is not None and self._subscriber.granted:
            self._subscriber.unsubscribe()
            await self._until(lambda: self._subscriber.left)
            await asyncio.sleep(_LINGER_SECONDS)
        if self.connection is not None:
            if self.random.random() < 0.5:
                self.send(mqtt.disconnect(self.version))
            self._end_connection(self.connection, lost=False)

    async def _until(self, condition: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNACK_SECONDS_MAX):
                while self.connection is not None and not condition():  # noqa: ASYNC110
                    await asyncio.sleep(_TURN_SECONDS)
