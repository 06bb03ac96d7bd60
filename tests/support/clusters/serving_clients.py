"""Paho clients of a cluster with a space, and what each of them receives."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from support.processes.broker_process import WAIT_SECONDS, wait_until

KEPT_SECONDS = 3_600
Wants = Callable[[Mapping[str, Any]], bool]


class PahoClient:
    """A client that records what it receives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[tuple[str, bytes, int]] = []
        self.has_ended = False
        self._answered = threading.Event()
        self._client = Client(
            CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5
        )
        self._client.on_message = self._note
        self._client.on_subscribe = lambda *_: self._answered.set()

    def connect(self, port: int) -> None:
        properties = _properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = KEPT_SECONDS
        self._client.connect("127.0.0.1", port, clean_start=False, properties=properties)
        self._client.loop_start()
        wait_until(self._client.is_connected, f"{self.name} is connected")

    def disconnect(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _note(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        if message.topic == f"end/{self.name}":
            self.has_ended = True
        else:
            self.got.append((message.topic, bytes(message.payload), message.qos))

    def subscribe(self, topics: str, where: str | None, qos: int) -> None:
        given = {} if where is None else {"where": where}
        properties = _properties(PacketTypes.SUBSCRIBE, given)
        self._answered.clear()
        self._client.subscribe(topics, qos, properties=properties)
        assert self._answered.wait(WAIT_SECONDS)

    def publish(self, topic: str, payload: bytes, qos: int, attributes: Mapping[str, Any]) -> None:
        """Publish, and wait for the acknowledgement."""
        properties = _properties(PacketTypes.PUBLISH, attributes)
        self._client.publish(topic, payload, qos, properties=properties).wait_for_publish(
            WAIT_SECONDS
        )


def _properties(packet: int, user: Mapping[str, Any] | None = None) -> Properties:
    made = Properties(packet)  # type: ignore[no-untyped-call]
    if user:
        made.UserProperty = [(name, str(value)) for name, value in user.items()]
    return made


class ServingClients:
    """The same clients at any cluster of two brokers, and the same messages for them."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self.members: dict[str, PahoClient] = {}
        self._publishers = [self._join(f"publisher-{number}", number) for number in (0, 1)]
        narrow = self._join("narrow", 0)
        narrow.subscribe("traffic/#", "speed < 50", 1)
        narrow.subscribe("traffic/+/b", 'road == "A1" or speed >= 150', 2)
        self._join("wide", 1).subscribe("traffic/#", "speed >= 50", 2)
        self._join("plain", 1).subscribe("traffic/#", None, 1)
        for number in (0, 1):
            member = self._join(f"member-{number}", number)
            member.subscribe("$share/group/traffic/#", "speed >= 20", 1)
        self._away = self._join("mover", 0)
        self._away.subscribe("traffic/1/#", "speed in [20, 120)", 2)
        self._away.disconnect()

    def _join(self, name: str, at: int) -> PahoClient:
        member = self.members[name] = PahoClient(name)
        member.connect(self._ports[at])
        return member

    def publish(self, first: int, last: int) -> None:
        for number in range(first, last):
            self._publishers[number % 2].publish(
                f"traffic/{number % 3}/{'ab'[number % 5 == 0]}",
                b"%d" % number,
                1 + number % 2,
                {"speed": number * 7 % 200, "road": f"A{number % 4}"},
            )

    def end(self) -> None:
        """Reconnect the absent client at the other broker, and wait until all have everything."""
        self._away.connect(self._ports[1])
        for name, member in self.members.items():
            member.subscribe(f"end/{name}", None, 1)
            self._publishers[0].publish(f"end/{name}", b"", 1, {})
        for member in self.members.values():
            wait_until(lambda member=member: member.has_ended, member.name)  # type: ignore[misc]
            member.disconnect()

    def got(self) -> dict[str, Counter[tuple[str, bytes, int]]]:
        """Return what each client has received; members of the group count together."""
        found: dict[str, Counter[tuple[str, bytes, int]]] = {}
        for name, member in self.members.items():
            kept = found.setdefault("group" if name.startswith("member") else name, Counter())
            kept.update(member.got)
        return found
