"""Checks, passes on and acknowledges the publications of a client, in their order. Pure.

    PUBLISH, QoS 0 -> dispatch
    PUBLISH, QoS 1 -> dispatch -> (disk) -> PUBACK
    PUBLISH, QoS 2 -> dispatch -> (disk) -> PUBREC;  PUBREL -> (disk) -> PUBCOMP

An acknowledgement goes out when the publication is on disk, if a persistent session needs it, and
when every other broker that needs it has it. If the disk refuses it, the deliveries are cancelled
and the client gets an error.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dovetail import codec
from dovetail.broker.client_link import LinkState, Outlet, PendingAcknowledgement
from dovetail.broker.dispatch import RunOutcome
from dovetail.broker.limits import RUN_DELIVERIES_PER_EFFORT
from dovetail.broker.local_delivery import OutgoingMessages
from dovetail.broker.matcher_client import PendingPublication
from dovetail.broker.route import Route
from dovetail.broker.session import Session
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, PacketType, Publish
from dovetail.codec.run import Run, packet_ids_of, pubacks_of
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.slices import Work, run_slice
from dovetail.topics.names import SYS_PREFIX

if TYPE_CHECKING:
    from dovetail.broker.peering.tickets import Ticket

_ACK_HEADS = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBCOMP: b"\x70\x02",
}
_NOT_STORED = "what cannot be stored is not acknowledged"
_FAILURE = 0x80
_SEARCHES_MAX = 3
"""Searches for the route of a retained message while subscriptions change. After these the broker
searches once more, in one piece."""
_DOLLAR = 0x24


class Intake(Outlet):
    """A connection as the source of publications."""

    __slots__ = ()

    def _take_publish(self, first: int, data: bytes, start: int, body: int, end: int) -> None:
        qos = first >> 1 & 3
        if end - body >= 5 and qos in (1, 2) and not (first & 1):
            # The fast path, for packets without properties or retain flag.
            topic_end = body + 2 + (data[body] << 8) + data[body + 1]
            payload = topic_end + 2
            if self.version == MQTT_5:
                payload += 1
            if (
                payload <= end
                and topic_end > body + 2
                and (payload == topic_end + 2 or not data[payload - 1])
            ):
                packet_id = (data[topic_end] << 8) + data[topic_end + 1]
                if packet_id and self._pass_on(data, start, body + 2, topic_end, end, packet_id):
                    return
                if packet_id:
                    self._accept(
                        data[body + 2 : topic_end],
                        data[payload:end],
                        qos,
                        False,
                        packet_id,
                        b"",
                        None,
                    )
                    return
        packet = codec.decode_publish(self.version, first, data[body:end], from_client=True)
        if packet.identifiers:  # [MQTT-3.3.4-6]
            raise ClientError(
                ReasonCode.PROTOCOL_ERROR, "a client's PUBLISH has no subscription identifiers"
            )
        topic = self._resolve_alias(packet)
        limits = self.broker.shared.limits
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
            None if expiry is None else self.broker.shared.now + expiry,
        )

    def _pass_on(
        self, data: bytes, start: int, topic_at: int, topic_end: int, end: int, packet_id: int
    ) -> bool:
        """Pass on a QoS 1 or 2 packet as bytes. Return False, with nothing done, if impossible."""
        session = self.session
        assert session is not None
        qos = data[start] >> 1 & 3
        limits = self._shared.limits
        route = self._router.cache.young.get(data[topic_at:topic_end])
        if (
            route is None
            or not self.access.everything
            or data[topic_at] == _DOLLAR
            or not data[topic_at - 3]  # a length encoded in more bytes than needed
            or qos > limits.maximum_qos
            or self._receiving >= limits.receive_max
            or (qos == 2 and (session.expiry_seconds or packet_id in session.incoming))
            or not self._dispatch.pass_on(route, data, start, topic_end, end, self.version, session)
        ):
            return False
        self._receiving += 1
        self._spent += len(route.deliveries)
        if qos == 2:
            session.incoming.add(packet_id)
        self._acknowledge(
            PacketType.PUBREC if qos == 2 else PacketType.PUBACK, packet_id, 0, None, wait=False
        )
        return True

    def _pass_on_run(self, route: Route, run: Run) -> int:
        """Pass on a run as bytes, or its first packets. Return how many bytes of it.

        Return 0, with nothing done, if that is impossible.
        """
        session = self.session
        assert session is not None
        limits = self._shared.limits
        if run.qos and (
            not self.access.everything
            or not limits.maximum_qos
            or self._receiving + run.packets > limits.receive_max
        ):
            return 0
        passed = self._dispatch.pass_on_run(route, run, session)
        if passed is None:
            return 0
        self._spent += passed.deliveries // RUN_DELIVERIES_PER_EFFORT
        if run.qos:
            self._acknowledge_run(passed)
        return len(passed.run.data)

    def _acknowledge_run(self, passed: RunOutcome) -> None:
        """Send the PUBACKs of a run once the disk has it."""
        run = passed.run
        pubacks = pubacks_of(run, passed.matched)
        if not (self._acks or passed.stored):
            self._shared.counters.packets_sent += run.packets - 1  # the shell counts pieces
            self.send(pubacks)
            return
        self._receiving += run.packets
        pending = PendingAcknowledgement(int(bool(passed.stored)))
        pending.data = pubacks
        pending.ends = pending.packets = run.packets
        self._acks.append(pending)
        if passed.stored:

            def settle(taken: bool) -> None:
                pending.waiting = 0
                if not taken:
                    self._take_back_run(pending, passed)
                self._send_acks()

            self._shared.journal.when_stored(settle)

    def _take_back_run(self, pending: PendingAcknowledgement, passed: RunOutcome) -> None:
        """Cancel a run that could not be stored, as if it had not come."""
        run = passed.run
        for session, outgoing in passed.stored:
            session.cancel_run(outgoing)
        pending.data = None
        if self.state is not LinkState.CONNECTED:
            return
        if self.version == MQTT_3_1_1:
            self.fail(ReasonCode.QUOTA_EXCEEDED, _NOT_STORED)
            return
        pending.data = b"".join(
            codec.encode_ack(self.version, PacketType.PUBACK, packet_id, ReasonCode.QUOTA_EXCEEDED)
            for packet_id in packet_ids_of(pubacks_of(run, np.ones(run.packets, np.uint8)))
        )

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
            self.broker.router.check(packet.topic)
            self._aliases_in[alias] = packet.topic
            return packet.topic
        topic = self._aliases_in.get(alias)
        if topic is None:  # section 3.3.2.3.4
            raise ClientError(
                ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} does not stand for a topic yet"
            )
        return topic

    def _may_publish(self, topic: bytes) -> bool:
        return self.access.may_publish(topic) and not topic.startswith(SYS_PREFIX)

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
        session = self.session
        assert session is not None
        counters = shared.counters
        counters.publishes_received += 1
        counters.publish_bytes_received += len(topic) + len(payload) + len(properties)
        if qos and not self._begin_receiving(session, qos, packet_id):
            return
        route = self._router.look_up(topic)
        is_free = self.access.everything and topic[0] != _DOLLAR
        if not is_free and not self._may_publish(topic):
            counters.publishes_dropped += 1
            self._refuse_publish(qos, packet_id, ReasonCode.NOT_AUTHORIZED)
            return
        message = Message(topic, payload, qos, retain, properties, expires_at, session.client_id)
        if route is None:
            self._begin(self._publish_later(session, message, packet_id))
        else:
            self._publish(session, route, message, packet_id)

    def _begin(self, work: Work) -> None:
        """Begin work that has to end before the next packet is taken."""
        if not run_slice(work):
            self._work = work

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
        point, fault = self._dispatch.read(route, message)
        if fault is not None and qos and self.version == MQTT_5:
            # Otherwise its acknowledgement cannot carry the reason, and it goes to the subscribers
            # without a clause.
            shared.counters.publishes_dropped += 1
            self._refuse_publish(qos, packet_id, fault.reason, fault.message)
            return
        if message.retain or shared.journal.refuses_more:
            refusal = self.broker.refusal(route, message, point, session)
            if refusal is not None:
                shared.counters.publishes_dropped += 1
                self._refuse_storage(qos, packet_id, refusal)
                return
        rows_before = shared.journal.rows_written
        entries, ticket = self._dispatch.publish_on(route, message, point)
        self._spent += max(len(entries or ()), len(route.deliveries) + len(route.groups))
        if message.retain:
            self.broker.expire_retained(message)
        if not qos:
            return
        if qos == 2:
            session.hold_later(
                packet_id, ticket if isinstance(ticket, PendingPublication) else None
            )
        self._acknowledge(
            PacketType.PUBREC if qos == 2 else PacketType.PUBACK,
            packet_id,
            ReasonCode.NO_MATCHING_SUBSCRIBERS if entries is None else 0,
            entries,
            wait=shared.journal.rows_written != rows_before,
            ticket=ticket,
        )

    def _begin_receiving(self, session: Session, qos: int, packet_id: int) -> bool:
        """Count a QoS 1 or 2 publication. Return False if it came before."""
        limits = self._shared.limits
        if qos > limits.maximum_qos:  # [MQTT-3.2.2-11]
            raise ClientError(
                ReasonCode.QOS_NOT_SUPPORTED,
                f"QoS {qos}; at most {limits.maximum_qos} is supported here",
            )
        if qos == 2 and packet_id in session.incoming:
            self._acknowledge_again(session, packet_id)
            return False
        self._receiving += 1
        if self.version == MQTT_5 and self._receiving > limits.receive_max:  # [MQTT-3.3.4-7]
            raise ClientError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {limits.receive_max:,} unacknowledged publications",
            )
        return True

    def _refuse_publish(
        self, qos: int, packet_id: int, reason: ReasonCode, why: str | None = None
    ) -> None:
        if not qos:
            return
        answer = PacketType.PUBREC if qos == 2 else PacketType.PUBACK
        if self.version == MQTT_3_1_1 and qos == 2:
            # A 3.1.1 PUBREC cannot refuse, so PUBREL follows and needs its identifier.
            session = self.session
            assert session is not None
            session.hold_incoming(packet_id)
        self._acknowledge(answer, packet_id, reason, None, wait=False, why=why)

    def _refuse_storage(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        if self.version == MQTT_5:
            self._refuse_publish(qos, packet_id, reason)
        elif qos:
            # Without an acknowledgement a 3.1.1 client keeps the message.
            self.fail(reason, "a publication that cannot be stored")

    def _acknowledge(
        self,
        answer: PacketType,
        packet_id: int,
        reason: int,
        entries: OutgoingMessages | None,
        *,
        wait: bool,
        ticket: "Ticket | None" = None,
        why: str | None = None,
    ) -> None:
        """Send PUBACK, PUBREC or PUBCOMP once the disk and other brokers have the publication.

        Acknowledgements go out in the order of the packets they answer [MQTT-4.6.0-2].
        """
        if not (wait or self._acks or reason or ticket):
            # The fast path, for nearly all acknowledgements.
            if answer != PacketType.PUBREC and self._receiving:
                self._receiving -= 1
            self.send(_ACK_HEADS[answer] + packet_id.to_bytes(2))
            return
        session = self.session
        assert session is not None
        pending = PendingAcknowledgement(int(wait) + (ticket is not None))
        pending.ends = int(answer != PacketType.PUBREC or reason >= _FAILURE)
        pending.data = codec.encode_ack(self.version, answer, packet_id, reason)
        if why is not None:
            pending.data = self.with_reason(Ack(answer, packet_id, reason), why, pending.data)
        self._acks.append(pending)

        def settle(taken: bool) -> None:
            pending.waiting -= 1
            if not taken and pending.data is not None:
                self._cancel(pending, session, answer, packet_id, entries)
            self._send_acks()

        if wait:
            self.broker.shared.journal.when_stored(settle)
        if ticket is not None:
            ticket.close(_forwarded(session, settle) if answer == PacketType.PUBREC else settle)
        if not pending.waiting:
            self._send_acks()

    def _send_acks(self) -> None:
        """Send the acknowledgements before the first one that still waits."""
        while self._acks and not self._acks[0].waiting:
            pending = self._acks.pop(0)
            if self.state is not LinkState.CONNECTED or pending.data is None:
                continue
            # A repeated message counts once.
            self._receiving = max(self._receiving - pending.ends, 0)
            self._shared.counters.packets_sent += pending.packets - 1  # the shell counts pieces
            self.send(pending.data)

    def _acknowledge_again(self, session: Session, packet_id: int) -> None:
        """Send PUBREC for a repeated QoS 2 message [MQTT-4.3.3-10].

        Its first copy may have come over another connection.
        """
        publication = session.awaiting_matchers.get(packet_id)
        if publication is not None:
            self._acknowledge_later(session, packet_id, publication)
            return
        if not session.persistent:
            self._acknowledge(PacketType.PUBREC, packet_id, 0, None, wait=False)
            return
        journal = self._shared.journal
        pending = PendingAcknowledgement(1)
        pending.data = codec.encode_ack(self.version, PacketType.PUBREC, packet_id)
        self._acks.append(pending)

        def act(stored: bool) -> None:
            known = packet_id in session.incoming
            if known and not stored:
                journal.wait_on(act)  # the message is on disk, or is settled before this
                return
            pending.waiting = 0
            if not known:
                self._cancel(pending, session, PacketType.PUBREC, packet_id, None)
            self._send_acks()

        journal.when_stored(act)

    def _acknowledge_later(
        self, session: Session, packet_id: int, publication: PendingPublication
    ) -> None:
        """Send PUBREC for a repeated message when the matchers have answered for it."""
        pending = PendingAcknowledgement(1)
        pending.data = codec.encode_ack(self.version, PacketType.PUBREC, packet_id)
        self._acks.append(pending)

        def settle(taken: bool) -> None:
            pending.waiting = 0
            if not taken:
                self._cancel(pending, session, PacketType.PUBREC, packet_id, None)
            self._send_acks()

        publication.when_settled(settle)

    def _cancel(
        self,
        pending: PendingAcknowledgement,
        own: Session,
        answer: PacketType,
        packet_id: int,
        entries: OutgoingMessages | None,
    ) -> None:
        """Cancel a publication that could not be stored, as if it had not come."""
        for session, entry in entries or ():
            session.cancel(entry)
        if answer == PacketType.PUBREC:
            own.release_incoming(packet_id)
        pending.data = None
        if self.state is not LinkState.CONNECTED:
            return
        if self.version == MQTT_3_1_1 or answer == PacketType.PUBCOMP:
            self.fail(ReasonCode.QUOTA_EXCEEDED, _NOT_STORED)
            return
        pending.ends = 1
        pending.data = codec.encode_ack(self.version, answer, packet_id, ReasonCode.QUOTA_EXCEEDED)

    def _take_ack(self, kind: PacketType, packet_id: int, reason: int) -> None:
        session = self.session
        assert session is not None
        if kind == PacketType.PUBACK:
            session.handle_puback(packet_id, self._shared.now)
        elif kind == PacketType.PUBREC:
            session.handle_pubrec(packet_id, reason, self._shared.now)
        elif kind == PacketType.PUBCOMP:
            session.handle_pubcomp(packet_id, self._shared.now)
        else:
            answer = 0  # [MQTT-4.3.3-11]
            if not session.release_incoming(packet_id):
                answer = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                self._receiving += 1
            # Also for an unknown identifier: PUBREL may have come over another connection before.
            self._acknowledge(
                PacketType.PUBCOMP, packet_id, answer, None, wait=session.expiry_seconds > 0
            )


def _forwarded(session: Session, settle: Callable[[bool], None]) -> Callable[[bool], None]:
    """Return `settle` for a publication that the session counts until other brokers have it."""
    session.forwarding += 1

    def act(taken: bool) -> None:
        session.forwarding -= 1
        settle(taken)

    return act
