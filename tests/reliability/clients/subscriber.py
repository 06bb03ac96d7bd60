"""The role of a subscriber: it subscribes once, and acknowledges and records its messages.

A message at QoS 2 counts when its first PUBLISH arrives. Until PUBREL the same packet identifier is
the same message. A new session forgets these identifiers.
"""

from reliability import boxes, mqtt, payload
from reliability.clients.client import Client
from reliability.history import Delivered, Subscribe, Unsubscribe
from reliability.mqtt import Packet
from reliability.workload import MQTT_5, SubscriberPlan

_PACKET_ID = 1
"""A subscriber has one unanswered SUBSCRIBE or UNSUBSCRIBE at a time."""


class Subscriber:
    def __init__(self, client: Client, plan: SubscriberPlan) -> None:
        self.granted = False
        self.left = False
        self._client = client
        self._plan = plan
        self._open: set[int] = set()
        """Packet identifiers of QoS 2 messages in flight."""
        self._operation = 0
        """The number of the unanswered SUBSCRIBE or UNSUBSCRIBE."""

    @property
    def is_done(self) -> bool:
        return self.granted and not self._open

    def connected(self, *, session_present: bool) -> None:
        if not session_present:
            self._open.clear()
            self.granted = False
        if not self.granted:
            self.subscribe()

    def subscribe(self) -> None:
        plan, client = self._plan, self._client
        assert client.connection is not None
        self._operation = client.world.invoke(
            client.name,
            client.connection.node,
            Subscribe(plan.filter, plan.qos, plan.no_local, plan.group, plan.where),
        )
        properties = []
        if plan.where is not None and client.version == MQTT_5:
            properties = [("where", boxes.clause(plan.where))]
        client.send(
            mqtt.subscribe(
                client.version,
                _PACKET_ID,
                self._filter,
                plan.qos,
                no_local=plan.no_local,
                user_properties=properties,
            )
        )

    def unsubscribe(self) -> None:
        client = self._client
        assert client.connection is not None
        action = Unsubscribe(self._plan.filter)
        self._operation = client.world.invoke(client.name, client.connection.node, action)
        client.send(mqtt.unsubscribe(client.version, _PACKET_ID, self._filter))

    @property
    def _filter(self) -> str:
        """Return the filter as it goes over the wire."""
        plan = self._plan
        text = f"$share/{plan.group}/{plan.filter}" if plan.group else plan.filter
        if plan.where is not None and self._client.version != MQTT_5:
            text += boxes.query(plan.where)
        return text

    def lost(self) -> None:
        if self._operation:
            self._client.world.complete(self._operation, "unknown")
            self._operation = 0

    def take(self, packet: Packet) -> bool:
        match packet.kind:
            case mqtt.PUBLISH:
                self._take_message(packet)
            case mqtt.PUBREL:
                self._open.discard(packet.packet_id)
                self._client.send(mqtt.acknowledgement(mqtt.PUBCOMP, packet.packet_id))
            case mqtt.SUBACK | mqtt.UNSUBACK if self._operation:
                self._answered(packet)
            case _:
                return False
        return True

    def _answered(self, packet: Packet) -> None:
        reason = packet.reasons[0] if packet.reasons else 0
        outcome = "fail" if packet.is_refusal else "ok"
        self._client.world.complete(self._operation, outcome, reason)  # type: ignore[arg-type]
        self._operation = 0
        if outcome == "ok":
            self.granted = packet.kind == mqtt.SUBACK
            self.left = not self.granted
        elif packet.kind == mqtt.SUBACK and self._client.connection is not None:
            self._client.drop()  # as with a full disk: it comes again

    def _take_message(self, packet: Packet) -> None:
        client = self._client
        if packet.qos == 2:
            if packet.packet_id not in self._open:
                self._open.add(packet.packet_id)
                self._record(packet)
            client.send(mqtt.acknowledgement(mqtt.PUBREC, packet.packet_id))
            return
        self._record(packet)
        if packet.qos:
            client.send(mqtt.acknowledgement(mqtt.PUBACK, packet.packet_id))

    def _record(self, packet: Packet) -> None:
        if not packet.payload:
            return  # a retained message was cleared
        world, connection = self._client.world, self._client.connection
        assert connection is not None
        message, is_damaged = payload.decode(packet.payload)
        world.delivered += 1
        world.record(
            Delivered(
                world.now(),
                self._client.name,
                connection.node,
                connection.number,
                message,
                packet.topic,
                packet.qos,
                packet.retain,
                packet.duplicate,
                is_damaged,
            )
        )
