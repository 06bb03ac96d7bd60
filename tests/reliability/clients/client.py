"""A client with a session: it connects, and reconnects whenever its connection is lost.

Its roles decide what it does with a connection (publisher.py, subscriber.py). A client that roams
connects to another broker each time. It moves in three ways: it drops its connection, it sends
DISCONNECT, or it connects elsewhere while the old connection is open.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Protocol

from reliability import mqtt
from reliability.connection import Connection, connect
from reliability.history import Connect, Delivered, Ended, Outcome
from reliability.mqtt import Packet, PacketError, Will
from reliability.workload import ClientPlan
from reliability.world import World

EXPIRY_SECONDS = 30 * 86_400
"""Longer than any jump of a clock."""

CONNACK_SECONDS_MAX = 15.0
"""A broker may wait 5 s for another one before it answers."""

_RETRY_SECONDS = 0.2
_TICK_SECONDS = 0.5
_PING_SECONDS = 2.0
_PAUSE_SECONDS_MAX = 3.0


class Role(Protocol):
    """What a client does with its connection. `take` returns whether a packet was for this role."""

    def connected(self, *, session_present: bool) -> None: ...

    def take(self, packet: Packet) -> bool: ...

    def lost(self) -> None: ...

    @property
    def is_done(self) -> bool:
        """Return whether all its operations are complete."""


class Client:
    def __init__(self, plan: ClientPlan, world: World) -> None:
        self.plan = plan
        self.name = plan.name
        self.version = plan.version
        self.world = world
        self.random = Random(plan.seed)
        self.roles: Sequence[Role] = ()
        self.node = plan.home
        self.connection: Connection | None = None
        """The connection that is accepted and not lost."""
        self._trying: Connection | None = None
        self._answer: asyncio.Future[bool] | None = None
        self._over = asyncio.Event()
        self._disrupt_at = 0.0

    @property
    def is_done(self) -> bool:
        return self.connection is not None and all(role.is_done for role in self.roles)

    def send(self, data: bytes) -> None:
        if self.connection is not None:
            self.connection.send(data)

    def connect_action(self) -> Connect:
        return Connect(self.version, expiry_seconds=EXPIRY_SECONDS)

    def will_of(self, _action: Connect) -> Will | None:
        return None

    def drop(self) -> None:
        """Lose the connection, and reconnect later."""
        if self.connection is not None:
            self._end_connection(self.connection, lost=True)

    # Life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect again and again until cancelled."""
        while True:
            with contextlib.suppress(OSError):
                await self._live()
            await asyncio.sleep(_RETRY_SECONDS * self.random.uniform(0.5, 1.5))
            if self.plan.roams:
                self.node = self.random.choice(self.world.nodes)

    async def _live(self) -> None:
        """Connect once, and stay until the connection is lost or left."""
        if await self._connect():
            self._plan_disruption()
            while self.connection is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_SECONDS):
                        await self._over.wait()
                if self.connection is not None:
                    await self._tick(self.connection)

    async def _connect(self) -> bool:
        place = self.world.places.get(self.node)
        if place is None:
            return False
        connection = await connect(place.host, place.mqtt_port, self.version, self._take, self._end)
        action = self.connect_action()
        connection.node = self.node
        connection.number = self.world.invoke(self.name, self.node, action)
        self._trying = connection
        self._answer = asyncio.get_running_loop().create_future()
        connection.send(
            mqtt.connect(
                self.version,
                self.name,
                clean_start=action.clean_start,
                expiry_seconds=action.expiry_seconds,
                will=self.will_of(action),
            )
        )
        self._end_old_connection()
        try:
            async with asyncio.timeout(CONNACK_SECONDS_MAX):
                return await self._answer
        except TimeoutError:
            self._fail(connection, "unknown")
            return False

    def _accept(self, connection: Connection, connack: Packet) -> None:
        assert self._answer is not None
        self.world.complete(connection.number, "ok", session_present=connack.session_present)
        self._trying = None
        self._over.clear()
        self.connection = connection
        for role in self.roles:
            role.connected(session_present=connack.session_present)
        if not self._answer.done():
            self._answer.set_result(True)

    def _fail(self, connection: Connection, outcome: Outcome, reason: int = 0) -> None:
        """End a connection that was not accepted."""
        self.world.complete(connection.number, outcome, reason)
        self._trying = None
        connection.silence()
        self._record_end(connection)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(False)

    def _end_old_connection(self) -> None:
        """End an old connection whose session the new one takes over."""
        if self.connection is not None:
            self._end_connection(self.connection, lost=True)

    def _end_connection(self, connection: Connection, *, lost: bool) -> None:
        connection.silence()
        self._record_end(connection, lost=lost)
        self.connection = None
        self._over.set()
        for role in self.roles:
            role.lost()

    def _record_end(self, connection: Connection, *, lost: bool = True) -> None:
        self.world.record(Ended(self.world.now(), self.name, connection.number, lost))

    # Disruptions ----------------------------------------------------------------------------------

    def _plan_disruption(self) -> None:
        seconds = self.random.expovariate(1 / self.plan.loss_seconds)
        self._disrupt_at = asyncio.get_running_loop().time() + seconds

    async def _tick(self, connection: Connection) -> None:
        now = asyncio.get_running_loop().time()
        silent_seconds = now - connection.heard_at
        if silent_seconds > self.plan.patience_seconds:
            self._end_connection(connection, lost=True)
        elif silent_seconds > _PING_SECONDS:
            connection.send(mqtt.ping())
        if now > self._disrupt_at and self.world.is_disrupting and not connection.is_over:
            await self._disrupt(connection)

    async def _disrupt(self, connection: Connection) -> None:
        self._plan_disruption()
        draw = self.random.random()
        if draw < 0.4:
            self._end_connection(connection, lost=True)
        elif draw < 0.6:
            connection.send(mqtt.disconnect(self.version))
            self._end_connection(connection, lost=False)
        elif draw < 0.8 or not self.plan.roams:
            connection.pause()
            await asyncio.sleep(self.random.uniform(0, _PAUSE_SECONDS_MAX))
            connection.resume()
        else:
            self.node = self.random.choice(self.world.nodes)
            await self._connect()

    # Packets --------------------------------------------------------------------------------------

    def _take(self, connection: Connection, packet: Packet) -> None:
        if connection is self.connection:
            self._pass_on(connection, packet)
        elif connection is not self._trying:
            return
        elif packet.kind != mqtt.CONNACK:
            self._damaged(connection, f"packet {packet.kind} before CONNACK")
        elif packet.reason:
            self._fail(connection, "fail", packet.reason)
        else:
            self._accept(connection, packet)

    def _pass_on(self, connection: Connection, packet: Packet) -> None:
        if packet.kind == mqtt.DISCONNECT:
            self._end_connection(connection, lost=True)
        elif packet.kind != mqtt.PINGRESP and not any(role.take(packet) for role in self.roles):
            self._damaged(connection, f"packet {packet.kind} that nobody waits for")

    def _damaged(self, connection: Connection, what: str) -> None:
        self.world.record(
            Delivered(
                self.world.now(),
                self.name,
                connection.node,
                connection.number,
                "",
                what,
                0,
                damaged=True,
            )
        )

    def _end(self, connection: Connection, error: PacketError | None) -> None:
        if error is not None:
            self._damaged(connection, str(error))
        if connection is self._trying:
            self._fail(connection, "unknown")
        elif connection is self.connection:
            self._end_connection(connection, lost=True)
