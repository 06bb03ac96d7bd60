"""Checks the publications of a client and passes them on. Pure.

A publication comes as a packet, or as a run that packet_reader.py has found. The intake resolves
topic aliases, checks what the client may publish, and hands a publication to dispatch.py, or a run
to run_dispatch.py. The outcome goes to acknowledgements.py. It never sends to the client by itself.
"""

from typing import TYPE_CHECKING

from dovetail import codec
from dovetail.broker.acknowledgements import Acknowledgements
from dovetail.broker.client_link import ClientLink
from dovetail.broker.pending_publication import PendingPublication
from dovetail.broker.piece import Piece
from dovetail.broker.publication_point import NO_ATTRIBUTES
from dovetail.broker.route import Route
from dovetail.broker.run_dispatch import RunOutcome
from dovetail.broker.session import Session
from dovetail.codec.packets import MQTT_5, PacketType, Publish
from dovetail.codec.run import Run, pubacks_of
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.slices import Work
from dovetail.topics.names import SYS_PREFIX

if TYPE_CHECKING:
    from dovetail.broker.core import Broker

_SEARCHES_MAX = 3
"""Searches for the route of a retained message while subscriptions change. After these the broker
searches once more, in one piece."""
_DOLLAR = 0x24
_RETAINED_QOS_0 = 0x31


class Intake:
    """A client as the source of publications."""

    __slots__ = (
        "_acks",
        "_aliases",
        "_broker",
        "_dispatch",
        "_link",
        "_piece",
        "_pressure",
        "_router",
        "_runs",
        "_shared",
    )

    def __init__(
        self, broker: "Broker", link: ClientLink, acks: Acknowledgements, piece: Piece
    ) -> None:
        self._broker = broker
        self._shared = broker.shared
        self._router = broker.router
        self._dispatch = broker.dispatch
        self._runs = broker.runs
        self._pressure = broker.back_pressure
        self._link = link
        self._acks = acks
        self._piece = piece
        self._aliases: dict[int, bytes] = {}

    def take_publish(self, first: int, data: bytes, start: int, body: int, end: int) -> None:
        qos = first >> 1 & 3
        retain = first & 1
        limits = self._shared.limits
        version = self._link.version
        if qos in (1, 2) or first == _RETAINED_QOS_0:
            # The fast path, for packets without properties.
            topic_at = body + 2
            topic_end = topic_at + (data[body] << 8) + data[body + 1] if end > topic_at else end
            payload = topic_end + (2 if qos else 0) + (version == MQTT_5)
            if (
                topic_at < topic_end
                and payload <= end
                and (version != MQTT_5 or not data[payload - 1])
                and (limits.retain_available or not retain)
            ):
                packet_id = (data[topic_end] << 8) + data[topic_end + 1] if qos else 0
                if not qos or packet_id:
                    if not retain and self._pass_on(
                        data, start, topic_at, topic_end, end, packet_id
                    ):
                        return
                    topic = data[topic_at:topic_end]
                    self._accept(topic, data[payload:end], qos, retain > 0, packet_id, b"", None)
                    return
        packet = codec.decode_publish(version, first, data[body:end], from_client=True)
        if packet.identifiers:  # [MQTT-3.3.4-6]
            raise ClientError(
                ReasonCode.PROTOCOL_ERROR, "a client's PUBLISH has no subscription identifiers"
            )
        topic = self._resolve_alias(packet)
        if packet.retain and not limits.retain_available:  # [MQTT-3.2.2-14]
            raise ClientError(
                ReasonCode.RETAIN_NOT_SUPPORTED, "retained messages are switched off here"
            )
        expiry = packet.expiry_seconds
        self._accept(
            topic,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.packet_id,
            packet.properties,
            None if expiry is None else self._shared.now + expiry,
        )

    def _pass_on(
        self, data: bytes, start: int, topic_at: int, topic_end: int, end: int, packet_id: int
    ) -> bool:
        """Pass on a QoS 1 or 2 packet as bytes. Return False, with nothing done, if impossible."""
        session = self._link.session
        assert session is not None
        qos = data[start] >> 1 & 3
        limits = self._shared.limits
        route = self._router.cache.young.get(data[topic_at:topic_end])
        if (
            route is None
            or not self._link.access.everything
            or data[topic_at] == _DOLLAR
            or not data[topic_at - 3]  # a length encoded in more bytes than needed
            or qos > limits.maximum_qos
            or self._acks.receiving >= limits.receive_max
            or (qos == 2 and (session.expiry_seconds or packet_id in session.incoming))
            or not self._dispatch.pass_on(
                route, data, start, topic_end, end, self._link.version, session
            )
        ):
            return False
        self._acks.receiving += 1
        self._piece.spent += len(route.deliveries)
        if qos == 2:
            session.incoming.add(packet_id)
        self._acks.acknowledge(
            PacketType.PUBREC if qos == 2 else PacketType.PUBACK, packet_id, 0, None, wait=False
        )
        return True

    def has_to_wait(self, route: Route, qos: int) -> bool:
        """Must a publication wait because its receivers are behind? Then the piece ends."""
        awaited = self._pressure.awaited(self._link, route, qos)
        if awaited:
            self._piece.wait_for(awaited)
        return bool(awaited)

    def publish_run(self, route: Route, run: Run) -> int:
        """Publish a run, or its first packets. Return how many bytes of it.

        Return 0, with nothing done, if that is impossible.
        """
        session = self._link.session
        assert session is not None
        if run.qos and not (self._link.access.everything and self.has_room_for(run.packets)):
            return 0
        return self._published(self._runs.publish(route, run, session.client_id))

    def retain_run(self, run: Run) -> int:
        """Retain a run, or its first packets, like `publish_run`."""
        session = self._link.session
        assert session is not None
        if not self._link.access.everything or (run.qos and not self.has_room_for(run.packets)):
            return 0
        return self._published(self._broker.retained_runs.retain(run, session.client_id))

    def _published(self, published: RunOutcome | None) -> int:
        """Acknowledge what was published of a run. Return how many bytes of it that is."""
        if published is None:
            return 0
        self._piece.spent += published.effort
        if published.run.qos:
            self._acks.acknowledge_run(published, pubacks_of(published.run, published.matched))
        return len(published.run.data)

    def has_room_for(self, packets: int) -> bool:
        """Is there room in the client's window for so many publications at QoS 1?"""
        limits = self._shared.limits
        return limits.maximum_qos > 0 and self._acks.receiving + packets <= limits.receive_max

    def _resolve_alias(self, packet: Publish) -> bytes:
        alias = packet.alias
        if not alias:
            return packet.topic
        offered = self._shared.limits.alias_in_max
        if alias > offered:  # [MQTT-3.3.2-8], [MQTT-3.3.2-9]
            raise ClientError(
                ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias}; {offered} are offered"
            )
        if packet.topic:
            self._router.check(packet.topic)
            self._aliases[alias] = packet.topic
            return packet.topic
        topic = self._aliases.get(alias)
        if topic is None:  # section 3.3.2.3.4
            raise ClientError(
                ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} does not stand for a topic yet"
            )
        return topic

    def may_publish(self, topic: bytes) -> bool:
        return self._link.access.may_publish(topic) and not topic.startswith(SYS_PREFIX)

    def _accept(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        packet_id: int,
        properties: bytes,
        expires_at: float | None,
    ) -> None:
        shared = self._shared
        session = self._link.session
        assert session is not None
        counters = shared.counters
        counters.publishes_received += 1
        counters.publish_bytes_received += len(topic) + len(payload) + len(properties)
        if qos and not self._acks.begin_receiving(session, qos, packet_id):
            return
        route = self._router.cache.young.get(topic) or self._router.look_up(topic)
        is_free = self._link.access.everything and topic[0] != _DOLLAR
        if not is_free and not self.may_publish(topic):
            counters.publishes_dropped += 1
            self._acks.refuse(qos, packet_id, ReasonCode.NOT_AUTHORIZED)
            return
        message = Message(topic, payload, qos, retain, properties, expires_at, session.client_id)
        if route is None:
            self._piece.begin(self._publish_later(session, message, packet_id))
        else:
            self._publish(session, route, message, packet_id)

    def _publish_later(self, session: Session, message: Message, packet_id: int) -> Work:
        """Find in pieces the route that takes long to find, then publish.

        A client that subscribes meanwhile may miss the message, unless it is retained: then the
        client gets it now or with the retained messages.
        """
        router = self._router
        for _ in range(_SEARCHES_MAX):
            changes = router.changes
            route = yield from router.search(message.topic)
            if changes == router.changes or not message.retain:
                break
        else:
            route = router.route(message.topic)
        self._publish(session, route, message, packet_id)

    def _publish(self, session: Session, route: Route, message: Message, packet_id: int) -> None:
        shared = self._shared
        qos = message.qos
        if self._pressure.behind and not message.retain and self.has_to_wait(route, qos):
            self._piece.work = self._publish_later(session, message, packet_id)
            return
        point, fault = NO_ATTRIBUTES if route.space is None else self._dispatch.read(route, message)
        if fault is not None and qos and self._link.version == MQTT_5:
            # Otherwise its acknowledgement cannot carry the reason, and it goes to the subscribers
            # without a clause.
            shared.counters.publishes_dropped += 1
            self._acks.refuse(qos, packet_id, fault.reason, fault.message)
            return
        if message.retain or shared.journal.refuses_more:
            refusal = self._broker.refusal(route, message, point, session)
            if refusal is not None:
                shared.counters.publishes_dropped += 1
                self._acks.refuse_storage(qos, packet_id, refusal)
                return
        rows_before = shared.journal.rows_written
        entries, ticket = self._dispatch.publish_on(route, message, point)
        self._piece.spent += max(len(entries or ()), len(route.deliveries) + len(route.groups))
        if message.retain:
            self._broker.expire_retained(message)
        if not qos:
            return
        if qos == 2:
            session.hold_later(
                packet_id, ticket if isinstance(ticket, PendingPublication) else None
            )
        self._acks.acknowledge(
            PacketType.PUBREC if qos == 2 else PacketType.PUBACK,
            packet_id,
            ReasonCode.NO_MATCHING_SUBSCRIBERS if entries is None else 0,
            entries,
            wait=shared.journal.rows_written != rows_before,
            ticket=ticket,
        )
