"""One connection, as a machine of bytes: what a client sends goes in, what it is owed comes out.

    EXPECTING --CONNECT--> ASKING --(who it is)--> CONNECTED --DISCONNECT, error, loss--> CLOSED
        |                     |                                                             ^
        +---- anything else --+--------------------- refused --------------------------------+

Pure: nothing here knows sockets. Bytes for the client pile up in `outgoing`; the shell is woken,
writes them, and says in `unsent` how many are still on this side. Whole read buffers are scanned at
once; plain QoS 0 packets are passed on as they are, everything else is taken apart one by one.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.broker import codec
from dovetail.broker.access import ClientAccess, ClientFilters
from dovetail.broker.dispatch import Entries, transcoded
from dovetail.broker.kernels import scan as kernels
from dovetail.broker.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Publish,
    Reasons,
    Subscribe,
    Unsubscribe,
)
from dovetail.broker.session import Session
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.topics.trie import FilterTrie

if TYPE_CHECKING:
    from dovetail.broker.core import Broker

SCAN_BYTES_MIN = 1_024
"""Smaller reads are walked in Python: a call of the kernel costs as much as a few packets."""

RUNS_MAX = 8_192
"""Of one scan; a buffer with more takes another."""

CONNECT_BYTES_MAX = 2 * 65_535 + 1_024
"""Before anybody has said who they are: room for two long texts, and not for much more."""

_SMALL_BYTES_MAX = 2 + 127  # whose length has one byte
_PUBLISH_PLAIN = 0x30
_ACKS = {
    0x40: PacketType.PUBACK,
    0x50: PacketType.PUBREC,
    0x62: PacketType.PUBREL,
    0x70: PacketType.PUBCOMP,
}
_LONG_LENGTH = 0x80
_PINGRESP = b"\xd0\x00"
_ACK_HEADS = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBCOMP: b"\x70\x02",
}
_FAILURE = 0x80
_DOLLAR = 0x24

_REFUSALS_3_1_1 = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.QUOTA_EXCEEDED,
    }
)
"""What a CONNACK of 3.1.1 can say; anything else is a connection that closes."""

_NOTHING = ClientAccess(ClientFilters((), (), (), ()))


class State(Enum):
    EXPECTING = auto()
    ASKING = auto()
    CONNECTED = auto()
    CLOSED = auto()


class Peer(NamedTuple):
    """Who is at the other end, as the network tells."""

    address: str = "?"
    is_loopback: bool = True
    certificate_name: str | None = None
    listener: str = ""


class Link:
    """A client's connection. Its public fields are its contract with sessions and the shell."""

    __slots__ = (
        "_acks_waiting",
        "_alias_out_max",
        "_aliases_in",
        "_aliases_out",
        "_dispatch",
        "_partial",
        "_partial_needs",
        "_receiving",
        "_router",
        "_sees_problems",
        "_shared",
        "access",
        "broker",
        "congested",
        "flush",
        "keep_alive_seconds",
        "outgoing",
        "packet_bytes_max",
        "peer",
        "plain",
        "seen_at",
        "session",
        "state",
        "unsent",
        "version",
    )

    def __init__(self, broker: "Broker", peer: Peer, now: float) -> None:
        self.broker = broker
        self._shared = broker.shared
        self._router = broker.router
        self._dispatch = broker.dispatch
        self.peer = peer
        self.state = State.EXPECTING
        self.version = MQTT_5
        self.session: Session | None = None
        self.access = _NOTHING
        self.seen_at = now
        self.keep_alive_seconds = 0

        self.outgoing: list[bytes] = []
        self.unsent = 0
        self.congested = False
        self.flush: Callable[[], None] | None = None
        """The shell's: writes what is in `outgoing`, and closes what is closed."""

        self.packet_bytes_max: int | None = None  # what the client takes
        self.plain = True  # bytes may be passed on to it as they came
        self._alias_out_max = 0
        self._aliases_out: dict[bytes, int] = {}
        self._aliases_in: dict[int, bytes] = {}
        self._sees_problems = True

        self._partial = bytearray()
        self._partial_needs = 0
        self._receiving = 0  # QoS 1 and 2 publications that are not acknowledged to the end
        self._acks_waiting = 0

    @property
    def is_connected(self) -> bool:
        return self.state is State.CONNECTED

    @property
    def is_closed(self) -> bool:
        return self.state is State.CLOSED

    # Out ----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self.outgoing:
            self.broker.wake(self)
        self.outgoing.append(data)
        self.unsent += len(data)

    def send_publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        duplicate: bool,
    ) -> bool:
        """False if this client does not take packets as large as this would be."""
        shared = self.broker.shared
        version = self.version
        aliases = len(self._aliases_out)
        if self._alias_out_max and version == MQTT_5:
            data = self._encode_aliased(message, qos, retain, packet_id, identifiers, duplicate)
        else:
            data = shared.frames.encode(
                version, message, qos, retain, packet_id, shared.now, identifiers, duplicate
            )
        if self.packet_bytes_max is not None and len(data) > self.packet_bytes_max:
            if len(self._aliases_out) > aliases:
                del self._aliases_out[message.topic]  # the client will not have heard of it
            return False  # [MQTT-3.1.2-24]
        counters = shared.counters
        counters.publishes_sent += 1
        counters.publish_bytes_sent += len(data)
        self.send(data)
        if self.unsent > shared.limits.backlog_bytes_max // 2:
            self.congested = True
        return True

    def _encode_aliased(
        self,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        duplicate: bool,
    ) -> bytes:
        """Topics get an alias as they come, while there are some (section 3.3.2.3.4)."""
        topic = message.topic
        alias = self._aliases_out.get(topic, 0)
        if alias:
            topic = b""
        elif len(self._aliases_out) < self._alias_out_max:
            alias = len(self._aliases_out) + 1
            self._aliases_out[topic] = alias
        expires_at = message.expires_at
        left = None if expires_at is None else max(int(expires_at - self.broker.shared.now), 0)
        return codec.encode_publish(
            MQTT_5, topic, message.payload, qos, retain, duplicate, packet_id,
            message.properties, left, identifiers, alias,
        )  # fmt: skip

    def takes(self, data: bytes) -> bool:
        """Is the packet no larger than the client wants?"""
        return self.packet_bytes_max is None or len(data) <= self.packet_bytes_max

    def relieve(self) -> bool:
        """There is a lot to be written: is there room after the shell has tried?"""
        if self.flush is not None and self.outgoing:
            self.flush()
        return self.unsent <= self.broker.shared.limits.backlog_bytes_max

    def written(self, unsent: int) -> None:
        """The shell has written; so many bytes are still on this side."""
        self.unsent = unsent
        if self._shared.gauges.retained_messages:
            self.broker.greetings.go_on(self)
        if self.congested and unsent <= self.broker.shared.limits.backlog_bytes_max // 4:
            self.congested = False
            if self.session is not None:
                self.session.pump(self.broker.shared.now)

    # In -----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Bytes from the client, as many as the network gave at once."""
        self.broker.shared.now = self.seen_at = now
        if self._partial:
            self._partial += data
            if len(self._partial) < self._partial_needs:
                return
            data = bytes(self._partial)
            self._partial.clear()
        try:
            if self.state is State.CONNECTED:
                self._take(data)
            else:
                self._take_connect(data)
        except ClientError as error:
            self.fail(error.reason, error.message)

    def receive_plain(self, data: bytes) -> bool:
        """The commonest read of all: one small plain publication, on a topic that is known.

        False, and nothing has happened, if it is not that. What needs no clock does not ask for it:
        the time of the last event is good enough to tell that the client lives.
        """
        size = len(data)
        if (
            data[0] != _PUBLISH_PLAIN
            or not 6 <= size <= _SMALL_BYTES_MAX
            or data[1] != size - 2
            or data[4] == _DOLLAR
            or self._partial
            or not self.access.everything
        ):
            return False
        topic_end = 4 + (data[2] << 8) + data[3]
        route = self._router.routes.get(data[4:topic_end])
        if route is None or not (
            topic_end <= size
            if self.version == MQTT_3_1_1
            else topic_end < size and not data[topic_end]
        ):
            return False
        self.seen_at = self._shared.now
        self._dispatch.forward(route, data, self.version, 1, self.session)  # type: ignore[arg-type]
        return True

    def _take(self, data: bytes) -> None:
        while len(data) >= SCAN_BYTES_MIN:
            data = self._take_many(data)
        if data:
            self._take_few(data, 0)

    def _take_few(self, data: bytes, at: int) -> None:
        """Packet by packet."""
        size = len(data)
        while at < size:
            if self.state is not State.CONNECTED:
                self._take_connect(data[at:])
                return
            if at + 2 <= size and data[at + 1] < _LONG_LENGTH:
                body = at + 2
                end = body + data[at + 1]
            else:
                length = codec.decode_length(data, at + 1)
                if length is None:
                    self._keep(data, at, 0)
                    return
                body = length[1]
                end = body + length[0]
                if end - at > self._shared.limits.packet_bytes_max:
                    self._refuse_size(end - at)
            if end > size:
                self._keep(data, at, end - at)
                return
            self._take_packet(data, at, body, end)
            at = end

    def _keep(self, data: bytes, at: int, needs: int) -> None:
        self._partial += data[at:]
        self._partial_needs = needs

    def _refuse_size(self, size: int) -> None:
        limit = self.broker.shared.limits.packet_bytes_max
        raise ClientError(
            ReasonCode.PACKET_TOO_LARGE,
            f"a packet of {size:,} bytes; at most {limit:,} are allowed (mqtt.packet_bytes_max)",
        )  # [MQTT-3.2.2-15]

    def _take_many(self, data: bytes) -> bytes:
        """The whole buffer at once: runs of plain packets by route, the rest packet by packet.

        Returns what is left, if it has more runs than a scan finds.
        """
        broker = self.broker
        runs, at, status, needs = broker.scan(
            data, self.version, broker.shared.limits.packet_bytes_max
        )
        if self.access.everything:
            routes = self._router.routes
            unknown = [
                topic
                for _, body, _, _, topic_end in runs
                if topic_end and (topic := data[body + 2 : topic_end]) not in routes
            ]
            if unknown:
                self._router.prepare(unknown)
            self._take_runs(data, runs)
        else:
            for run in runs:
                self._take_run_alone(data, *run)
                if self.state is not State.CONNECTED:
                    break
        if self.state is not State.CONNECTED:
            return b""
        if status == kernels.TOO_LONG:
            self._refuse_size(needs)
        elif status == kernels.MALFORMED:
            raise ClientError(
                ReasonCode.MALFORMED_PACKET, "a packet length of more than four bytes"
            )
        elif at < len(data):
            if len(runs) == RUNS_MAX and not needs:
                return data[at:]
            self._keep(data, at, needs)
        return b""

    def _take_runs(self, data: bytes, runs: list[list[int]]) -> None:
        """Neighbouring runs of one route are joined, and passed on as one slice."""
        forward = self._dispatch.forward
        router = self._router
        session = self.session
        assert session is not None
        version = self.version
        route = None
        first = last = packets = 0
        for start, body, end, count, topic_end in runs:
            found = router.routes.get(data[body + 2 : topic_end]) if topic_end else None
            if found is not None and found is route:
                last = end
                packets += count
                continue
            if route is not None:
                forward(route, data[first:last], version, packets, session)
                route = None
            if not topic_end:
                self._take_packet(data, start, body, end)
                if self.state is not State.CONNECTED:
                    return
                continue
            route = found or router.find(data[body + 2 : topic_end])
            first, last, packets = start, end, count
        if route is not None:
            forward(route, data[first:last], version, packets, session)

    def _take_run_alone(
        self, data: bytes, start: int, body: int, end: int, count: int, topic_end: int
    ) -> None:
        """A run whose topic the client may or may not publish to."""
        if not topic_end:
            self._take_packet(data, start, body, end)
            return
        topic = data[body + 2 : topic_end]
        counters = self.broker.shared.counters
        route = self.broker.router.find(topic)
        if self._may_publish(topic):
            session = self.session
            assert session is not None
            self.broker.dispatch.forward(route, data[start:end], self.version, count, session)
        else:
            counters.packets_received += count
            counters.publishes_received += count
            counters.publishes_dropped += count

    def _take_packet(self, data: bytes, at: int, body: int, end: int) -> None:
        first = data[at]
        self._shared.counters.packets_received += 1
        if first & 0xF0 == _PUBLISH_PLAIN:
            self._take_publish(first, data, at, body, end)
            return
        if end - body == 2 and first in _ACKS:
            # The short form, which nearly all of them have.
            packet_id = (data[body] << 8) + data[body + 1]
            if packet_id:
                self._take_ack(_ACKS[first], packet_id, 0)
                return
        packet = codec.decode(self.version, first, data[body:end])
        _HANDLERS.get(type(packet), _refuse_packet)(self, packet)

    # Publications -------------------------------------------------------------------------------

    def _take_publish(self, first: int, data: bytes, start: int, body: int, end: int) -> None:
        qos = first >> 1 & 3
        if end - body >= 5 and qos in (1, 2) and not (first & 1):
            # The short way for what has neither properties nor a retain flag.
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
        packet = codec.decode_publish(self.version, first, data[body:end])
        if packet.identifiers:  # [MQTT-3.3.4-6]
            raise ClientError(
                ReasonCode.PROTOCOL_ERROR, "a client's PUBLISH has no subscription identifiers"
            )
        topic = self._dealias(packet)
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
        """A QoS 1 or 2 packet whose bytes can go on as they are. False: nothing has happened."""
        session = self.session
        assert session is not None
        qos = data[start] >> 1 & 3
        limits = self._shared.limits
        route = self._router.routes.get(data[topic_at:topic_end])
        if (
            route is None
            or not self.access.everything
            or data[topic_at] == _DOLLAR
            or qos > limits.maximum_qos
            or self._receiving >= limits.receive_max
            or (qos == 2 and (session.expiry_seconds or packet_id in session.incoming))
            or not self._dispatch.pass_on(route, data, start, topic_end, end, self.version, session)
        ):
            return False
        self._receiving += 1
        if qos == 2:
            session.incoming.add(packet_id)
        self._acknowledge(
            PacketType.PUBREC if qos == 2 else PacketType.PUBACK, packet_id, 0, None, wait=False
        )
        return True

    def _dealias(self, packet: Publish) -> bytes:
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
        return self.access.may_publish(topic) and not topic.startswith(b"$SYS/")

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
        if not self.access.everything or topic[0] == _DOLLAR:
            self._router.check(topic)
            if not self._may_publish(topic):
                counters.publishes_dropped += 1
                self._refuse_publish(qos, packet_id, ReasonCode.NOT_AUTHORIZED)
                return
        message = Message(topic, payload, qos, retain, properties, expires_at, session.client_id)
        if retain or shared.journal.failing:
            refusal = self.broker.refusal(message, session)
            if refusal is not None:
                counters.publishes_dropped += 1
                self._refuse_storage(qos, packet_id, refusal)
                return
        rows_before = shared.journal.rows_written
        entries = self._dispatch.publish(message, session)
        if qos == 2:
            session.hold_incoming(packet_id)
        if retain:
            self.broker.expire_retained(message)
        if qos:
            self._acknowledge(
                PacketType.PUBREC if qos == 2 else PacketType.PUBACK,
                packet_id,
                ReasonCode.NO_MATCHING_SUBSCRIBERS if entries is None else 0,
                entries,
                wait=shared.journal.rows_written != rows_before,
            )

    def _begin_receiving(self, session: Session, qos: int, packet_id: int) -> bool:
        """False if it is a message that came before."""
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

    def _refuse_publish(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        if not qos:
            return
        answer = PacketType.PUBREC if qos == 2 else PacketType.PUBACK
        if self.version == MQTT_3_1_1 and qos == 2:
            # It has no word for no, so its PUBREL follows and has to be known.
            session = self.session
            assert session is not None
            session.hold_incoming(packet_id)
        self._acknowledge(answer, packet_id, reason, None, wait=False)

    def _refuse_storage(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        if self.version == MQTT_5:
            self._refuse_publish(qos, packet_id, reason)
        elif qos:
            # Without an acknowledgement a client of 3.1.1 keeps the message.
            self.fail(reason, "a publication that cannot be stored")

    def _acknowledge(
        self,
        answer: PacketType,
        packet_id: int,
        reason: int,
        entries: Entries | None,
        *,
        wait: bool,
    ) -> None:
        """PUBACK, PUBREC or PUBCOMP, when what it promises is on disk.

        They go out in the order of what they answer [MQTT-4.6.0-2].
        """
        if not (wait or self._acks_waiting or reason):
            # The short way, for nearly all of them.
            if answer != PacketType.PUBREC and self._receiving:
                self._receiving -= 1
            self.send(_ACK_HEADS[answer] + packet_id.to_bytes(2))
            return
        ends_here = answer != PacketType.PUBREC or reason >= _FAILURE
        if not wait and not self._acks_waiting:
            if ends_here and self._receiving:
                self._receiving -= 1
            self.send(codec.encode_ack(self.version, answer, packet_id, reason))
            return
        self._acks_waiting += 1
        session = self.session
        assert session is not None

        def act(stored: bool) -> None:
            self._acks_waiting -= 1
            if not stored and wait:
                self._take_back(session, answer, packet_id, entries)
                return
            if self.state is State.CONNECTED:
                if ends_here and self._receiving:
                    self._receiving -= 1
                self.send(codec.encode_ack(self.version, answer, packet_id, reason))

        self.broker.shared.journal.when_stored(act)

    def _acknowledge_again(self, session: Session, packet_id: int) -> None:
        """PUBREC of a QoS 2 message that came before [MQTT-4.3.3-10], maybe over another link."""
        if not session.persistent:
            self._acknowledge(PacketType.PUBREC, packet_id, 0, None, wait=False)
            return
        journal = self._shared.journal
        self._acks_waiting += 1

        def act(stored: bool) -> None:
            known = packet_id in session.incoming
            if known and not stored:
                journal.wait_on(act)  # the message itself is on disk, or waits before us
                return
            self._acks_waiting -= 1
            if not known:
                self._take_back(session, PacketType.PUBREC, packet_id, None)
            elif self.state is State.CONNECTED:
                self.send(codec.encode_ack(self.version, PacketType.PUBREC, packet_id))

        journal.when_stored(act)

    def _take_back(
        self, own: Session, answer: PacketType, packet_id: int, entries: Entries | None
    ) -> None:
        """The disk did not take it: as if it had not come."""
        for session, entry in entries or ():
            session.cancel(entry)
        if answer == PacketType.PUBREC:
            own.release_incoming(packet_id)
        if self.state is not State.CONNECTED:
            return
        if self.version == MQTT_3_1_1 or answer == PacketType.PUBCOMP:
            self.fail(ReasonCode.QUOTA_EXCEEDED, "what cannot be stored is not acknowledged")
            return
        if self._receiving:  # a message that came twice counts once
            self._receiving -= 1
        self.send(codec.encode_ack(self.version, answer, packet_id, ReasonCode.QUOTA_EXCEEDED))

    # Everything else ----------------------------------------------------------------------------

    def _take_connect(self, data: bytes) -> None:
        if self.state is State.ASKING:
            # Until we know who it is, nothing of it counts; the shell stops reading meanwhile.
            self._keep(data, 0, CONNECT_BYTES_MAX)
            if len(self._partial) > CONNECT_BYTES_MAX:
                self.close()
        elif self.state is State.EXPECTING:
            if data[0] != PacketType.CONNECT << 4:  # [MQTT-3.1.0-1]
                self._shared.counters.protocol_errors += 1
                self.close()
                return
            length = codec.decode_length(data, 1) if len(data) > 1 else None
            if length is None:
                self._keep(data, 0, 0)
                return
            body, end = length[1], length[0] + length[1]
            if end > self.broker.connect_bytes_max:
                self.version = codec.connect_version(data[body:]) or MQTT_3_1_1
                self.refuse(ReasonCode.PACKET_TOO_LARGE, None)
            elif end > len(data):
                self._keep(data, 0, end)
            else:
                self._introduce(data, body, end)

    def _introduce(self, data: bytes, body: int, end: int) -> None:
        """A whole CONNECT, and what came behind it."""
        self._shared.counters.packets_received += 1
        try:
            packet = codec.decode(MQTT_5, data[0], data[body:end])
        except ClientError as error:
            self.version = codec.connect_version(data[body:end]) or MQTT_3_1_1
            self.refuse(error.reason, error.message)
            return
        assert isinstance(packet, Connect)
        self.version = packet.version
        self.packet_bytes_max = packet.packet_bytes_max
        self._sees_problems = packet.wants_problem_information
        self.state = State.ASKING
        self.broker.ask(self, packet)
        if end < len(data):
            if self.is_connected:
                self._take(data[end:])
            else:
                self._take_connect(data[end:])

    def admitted(self, session: Session, packet: Connect, answer: Connack) -> None:
        """The client is who it says, and this is its session."""
        self.state = State.CONNECTED
        self.session = session
        limits = self.broker.shared.limits
        self._alias_out_max = min(packet.alias_max, limits.alias_out_max)
        # A packet of 3.1.1 can grow by two bytes on its way to version 5.
        self.plain = not self._alias_out_max and (
            packet.packet_bytes_max is None
            or packet.packet_bytes_max >= limits.packet_bytes_max + 2
        )
        self.send(codec.encode(self.version, answer))

    def go_on(self) -> None:
        """What came while we asked who it is."""
        if self._partial and self.state is State.CONNECTED:
            data = bytes(self._partial)
            self._partial.clear()
            try:
                self._take(data)
            except ClientError as error:
                self.fail(error.reason, error.message)

    def _take_ack_packet(self, packet: Packet) -> None:
        assert isinstance(packet, Ack)
        self._take_ack(packet.type, packet.packet_id, packet.reason)

    def _take_ack(self, kind: PacketType, packet_id: int, reason: int) -> None:
        session = self.session
        assert session is not None
        if kind == PacketType.PUBACK:
            session.acknowledged(packet_id, self._shared.now)
        elif kind == PacketType.PUBREC:
            session.received(packet_id, reason, self._shared.now)
        elif kind == PacketType.PUBCOMP:
            session.completed(packet_id, self._shared.now)
        else:
            answer = 0  # [MQTT-4.3.3-11]
            if not session.release_incoming(packet_id):
                answer = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                self._receiving += 1
            # Also if it is not known: its first PUBREL may have come over another connection.
            self._acknowledge(
                PacketType.PUBCOMP, packet_id, answer, None, wait=session.expiry_seconds > 0
            )

    def _take_subscribe(self, packet: Packet) -> None:
        assert isinstance(packet, Subscribe)
        self.broker.subscribe(self, packet)

    def _take_unsubscribe(self, packet: Packet) -> None:
        assert isinstance(packet, Unsubscribe)
        self.broker.unsubscribe(self, packet)

    def _take_ping(self, packet: Packet) -> None:
        assert isinstance(packet, Ping)
        if packet.type != PacketType.PINGREQ:
            _refuse_packet(self, packet)
        self.send(_PINGRESP)  # [MQTT-3.12.4-1]

    def _take_disconnect(self, packet: Packet) -> None:
        assert isinstance(packet, Disconnect)
        session = self.session
        assert session is not None
        expiry = packet.session_expiry_seconds
        if expiry is not None:
            if expiry and not session.expiry_seconds:  # section 3.14.2.2.2
                raise ClientError(
                    ReasonCode.PROTOCOL_ERROR,
                    "a session without an expiry interval cannot get one in DISCONNECT",
                )
            session.expiry_seconds = min(
                expiry, self.broker.shared.limits.session_expiry_max_seconds
            )
        # [MQTT-3.14.4-3]: a normal end takes the will with it.
        self.close(with_will=packet.reason != ReasonCode.SUCCESS)

    def _take_auth(self, packet: Packet) -> None:
        assert isinstance(packet, Auth)
        # No method was agreed on in CONNECT, so there is nothing to go on with [MQTT-4.12.0-7].
        raise ClientError(ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method")

    def answer_reasons(self, kind: PacketType, packet_id: int, reasons: list[int]) -> None:
        data = codec.encode(self.version, Reasons(kind, packet_id, reasons))
        if self.takes(data):
            self.send(data)
        else:
            self.disconnect(ReasonCode.PACKET_TOO_LARGE, "the answer is too large for the client")

    # The end ------------------------------------------------------------------------------------

    def refuse(self, reason: ReasonCode, why: str | None) -> None:
        """CONNACK with a reason code, and the end of the connection [MQTT-3.2.2-7]."""
        self.broker.shared.counters.connections_refused += 1
        self.broker.note_refusal(self, reason, why)
        if self.version == MQTT_5 or reason in _REFUSALS_3_1_1:  # [MQTT3-3.2.2-6]
            answer = Connack(session_present=False, reason=reason)
            if self._sees_problems and why:
                answer.reason_string = why
            data = codec.encode(self.version, answer)
            if not self.takes(data):  # [MQTT-3.2.2-19]
                answer.reason_string = None
                data = codec.encode(self.version, answer)
            if self.takes(data):
                self.send(data)
        self.close()

    def fail(self, reason: ReasonCode, why: str) -> None:
        """The client erred, or has to go: it is told why if its version has words for it."""
        if self.state is State.CLOSED:
            return
        self.broker.shared.counters.protocol_errors += 1
        self.broker.note_failure(self, reason, why)
        self.disconnect(reason, why)

    def disconnect(self, reason: ReasonCode, why: str | None = None) -> None:
        """We end it: DISCONNECT with a reason in version 5, and the will is published."""
        if self.state is State.CLOSED:
            return
        if self.version == MQTT_5 and self.state is State.CONNECTED:
            text = why if self._sees_problems else None  # [MQTT-3.1.2-29]
            data = codec.encode(MQTT_5, Disconnect(reason, reason_string=text))
            if self.packet_bytes_max is not None and len(data) > self.packet_bytes_max:
                data = codec.encode(MQTT_5, Disconnect(reason))  # [MQTT-3.14.2-3]
            self.send(data)
        self.close()

    def close(self, *, with_will: bool = True) -> None:
        """No more of it in either direction, once what is in `outgoing` was written."""
        if self.state is State.CLOSED:
            return
        was_connected = self.state is State.CONNECTED
        self.state = State.CLOSED
        self.access = _NOTHING
        # A timer may remember the link for hours; it need not keep what the client chose.
        self._partial.clear()
        self._aliases_in.clear()
        self._aliases_out.clear()
        if not self.outgoing:
            self.broker.wake(self)
        self.broker.closed(self, was_connected=was_connected, with_will=with_will)

    def lost(self, now: float) -> None:
        """The network says that the connection is gone."""
        self.broker.shared.now = now
        if self.state is State.CONNECTED:
            self.broker.shared.counters.connections_lost += 1
        self.close()


def _refuse_packet(link: Link, packet: Packet) -> None:
    """A second CONNECT [MQTT-3.1.0-2], or a packet that only servers send."""
    del link
    name = type(packet).__name__.upper()
    raise ClientError(ReasonCode.PROTOCOL_ERROR, f"{name} has no place here")


_HANDLERS: dict[type, Callable[[Link, Packet], None]] = {
    Ack: Link._take_ack_packet,
    Subscribe: Link._take_subscribe,
    Unsubscribe: Link._take_unsubscribe,
    Ping: Link._take_ping,
    Disconnect: Link._take_disconnect,
    Auth: Link._take_auth,
}


class Scanner:
    """The kernel with its scratch space."""

    def __init__(self) -> None:
        self._runs = np.empty((RUNS_MAX, 5), np.int64)

    def __call__(
        self, data: bytes, version: int, packet_bytes_max: int
    ) -> tuple[list[list[int]], int, int, int]:
        """Runs, where they end, why, and the bytes that the packet after them has in all."""
        count, at, status, needs = kernels.scan(
            np.frombuffer(data, np.uint8), version, packet_bytes_max, self._runs
        )
        return self._runs[:count].tolist(), at, status, needs


def load_kernels() -> None:
    """Compiled at set-up: loaded by a call of each rather than with the first message."""
    trie = FilterTrie[int]()
    trie["a/+"] = 1
    trie.match(b"a/b")
    del trie["a/+"]
    packet = b"\x30\x05\x00\x01a\x00x"
    Scanner()(packet, MQTT_5, len(packet))
    transcoded(packet, MQTT_5)
