"""The role of a publisher: it numbers its messages, and resends unacknowledged ones.

If its session is gone, it resends messages at QoS 1. It cannot know whether a message at QoS 2 has
arrived: the outcome is unknown, and it does not resend that message.
"""

import asyncio
from dataclasses import dataclass

from reliability import boxes, mqtt, payload
from reliability.clients.client import Client
from reliability.history import Publish, Resent
from reliability.mqtt import Packet
from reliability.workload import MQTT_5, PublisherPlan

WINDOW_MESSAGES_MAX = 10
_PACKET_IDS = 60_000
_FIRST_PACKET_ID = 100
_CLEARS_ONE_IN = 12
"""The share of retained publications that clear their topic."""


@dataclass
class _PendingPublish:
    number: int
    action: Publish
    is_received: bool = False
    """QoS 2: PUBREC has come."""


class Publisher:
    def __init__(self, client: Client, plan: PublisherPlan, share: float) -> None:
        """Make a publisher of a `share` of all publications of the run, from 0 to 1."""
        self._client = client
        self._plan = plan
        self._share = share
        self._sent = 0
        self._pending: dict[int, _PendingPublish] = {}
        """By packet identifier, in the order of the first sends."""

    @property
    def is_done(self) -> bool:
        return not self._pending

    async def run(self) -> None:
        """Publish at its rate until it is cancelled."""
        client, random = self._client, self._client.random
        while True:
            rate = max(client.world.rate * self._share, 0.01)
            await asyncio.sleep(random.uniform(0.2, 1.8) / rate)
            if (
                client.world.is_publishing
                and client.connection is not None
                and not client.connection.is_clogged
                and len(self._pending) < WINDOW_MESSAGES_MAX
            ):
                self.publish()

    def publish(self) -> None:
        client, plan, random = self._client, self._plan, self._client.random
        assert client.connection is not None
        world = client.world
        self._sent += 1
        action = Publish(
            f"{client.name}:{self._sent}",
            random.choice(plan.topics),
            plan.qos,
            plan.retain,
            clears=plan.retain and random.randrange(_CLEARS_ONE_IN) == 0,
            attributes=boxes.draw_point(random) if plan.has_attributes else {},
        )
        number = world.invoke(client.name, client.connection.node, action)
        world.published += 1
        if not plan.qos:
            self._send(action, 0)
            world.complete(number, "ok")
            return
        packet_id = self._next_packet_id()
        self._pending[packet_id] = _PendingPublish(number, action)
        self._send(action, packet_id)

    def _next_packet_id(self) -> int:
        return self._sent % _PACKET_IDS + _FIRST_PACKET_ID

    def _send(self, action: Publish, packet_id: int, *, duplicate: bool = False) -> None:
        """Send a PUBLISH, with attributes in the payload and in MQTT 5 as user properties."""
        client = self._client
        pairs = [(name, f"{value:g}") for name, value in action.attributes.items()]
        client.send(
            mqtt.publish(
                client.version,
                action.topic,
                b"" if action.clears else payload.encode(action.message, action.attributes),
                action.qos,
                packet_id=packet_id,
                retain=action.retain,
                duplicate=duplicate,
                user_properties=pairs if client.version == MQTT_5 else (),
            )
        )

    def connected(self, *, session_present: bool) -> None:
        client = self._client
        assert client.connection is not None
        for packet_id, one in [*self._pending.items()]:
            if session_present and one.is_received:
                client.send(mqtt.acknowledgement(mqtt.PUBREL, packet_id))
            elif session_present or one.action.qos == 1:
                node = client.connection.node
                client.world.record(Resent(client.world.now(), one.number, node))
                self._send(one.action, packet_id, duplicate=session_present)
            else:
                if not one.is_received:
                    client.world.complete(one.number, "unknown")
                del self._pending[packet_id]

    def lost(self) -> None:
        pass

    def take(self, packet: Packet) -> bool:
        if packet.kind not in {mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBCOMP}:
            return False
        one = self._pending.get(packet.packet_id)
        if one is None:
            if packet.kind == mqtt.PUBREC:
                self._client.send(mqtt.acknowledgement(mqtt.PUBREL, packet.packet_id))
            return True
        if packet.kind == mqtt.PUBCOMP:
            # 0x92: the broker had its PUBREL before.
            del self._pending[packet.packet_id]
            return True
        self._acknowledged(one, packet)
        if packet.kind == mqtt.PUBREC and not packet.is_refusal:
            one.is_received = True
            self._client.send(mqtt.acknowledgement(mqtt.PUBREL, packet.packet_id))
        else:
            del self._pending[packet.packet_id]
        return True

    def _acknowledged(self, one: _PendingPublish, packet: Packet) -> None:
        if one.is_received:
            return
        world = self._client.world
        if packet.is_refusal:
            world.complete(one.number, "fail", packet.reason)
        else:
            world.acknowledged += 1
            world.complete(one.number, "ok", packet.reason)
