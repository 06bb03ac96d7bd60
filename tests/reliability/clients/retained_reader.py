"""Reads the retained messages of each broker after the last fault."""

import asyncio
import contextlib

from reliability import mqtt, payload
from reliability.connection import Connection, connect
from reliability.history import Read
from reliability.mqtt import Packet
from reliability.workload import MQTT_5
from reliability.world import World

_ANSWER_SECONDS_MAX = 10.0
_QUIET_SECONDS = 0.5
"""How long to wait for the last retained message after SUBACK."""

_NAME = "inspector"


async def retained_at(world: World, node: str, topic_filter: str) -> dict[str, str]:
    """Return a broker's retained messages by topic. Raise an OSError if it is away."""
    place = world.places.get(node)
    if place is None:
        raise OSError(f"{node} is not up")
    packets: asyncio.Queue[Packet] = asyncio.Queue()
    connection = await connect(
        place.host,
        place.mqtt_port,
        MQTT_5,
        lambda _, packet: packets.put_nowait(packet),
        lambda _connection, _error: None,
    )
    try:
        connection.send(mqtt.connect(MQTT_5, f"{_NAME}-{node}", clean_start=True))
        await _expect(packets, mqtt.CONNACK)
        connection.send(mqtt.subscribe(MQTT_5, 1, topic_filter, 0))
        found = await _expect(packets, mqtt.SUBACK)
        found += await _rest(connection, packets)
    finally:
        connection.silence()
    return {one.topic: payload.decode(one.payload)[0] for one in found if one.retain}


async def _expect(packets: "asyncio.Queue[Packet]", kind: int) -> list[Packet]:
    """Wait for a packet of a kind; return the packets before it."""
    early = []
    async with asyncio.timeout(_ANSWER_SECONDS_MAX):
        while (packet := await packets.get()).kind != kind:
            early.append(packet)
    return early


async def _rest(connection: Connection, packets: "asyncio.Queue[Packet]") -> list[Packet]:
    rest = []
    with contextlib.suppress(TimeoutError):
        while not connection.is_over:
            async with asyncio.timeout(_QUIET_SECONDS):
                rest.append(await packets.get())
    return rest


async def read_all(world: World, topics: tuple[str, ...], seconds: float) -> bool:
    """Read every topic at every broker, and record it. Return whether all brokers agree.

    Brokers that differ are read again until they agree or the time is over.
    """
    until = world.now() + seconds
    while True:
        with contextlib.suppress(OSError):
            values = {node: await retained_at(world, node, "r/#") for node in world.nodes}
            first, *others = values.values()
            if all(first == other for other in others) or world.now() > until:
                _record(world, topics, values)
                return all(first == other for other in others)
        if world.now() > until:
            return False
        await asyncio.sleep(_QUIET_SECONDS)


def _record(world: World, topics: tuple[str, ...], values: dict[str, dict[str, str]]) -> None:
    for node, retained in values.items():
        for topic in topics:
            number = world.invoke(_NAME, node, Read(topic))
            world.complete(number, "ok", message=retained.get(topic, ""))
