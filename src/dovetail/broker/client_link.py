"""One connection, as the rest of the broker sees it: its state, the way out, and its end.

    AWAITING_CONNECT --CONNECT--> ADMITTING --admitted--> CONNECTED --DISCONNECT, error--> CLOSED
           |                          |                                                      ^
           +---- any other packet ----+--------------------- refused ------------------------+

Pure: nothing here knows sockets. The link appends bytes to `outgoing` and wakes its wire
(client_wire.py). The shell writes them and reports through `written` how many are unsent. A closed
link may still have its last bytes there.

Sessions and dispatch send through the link (`SubscriberLink` in outgoing_message.py). What the
client sends comes through packet_reader.py. The link does not know the parts that handle it.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from dovetail import codec
from dovetail.broker.auth.access import ClientAccess, ClientFilters
from dovetail.broker.client_wire import NO_WIRE, RemoteEnd, Wire
from dovetail.broker.publish_encoder import remaining_seconds
from dovetail.broker.session import Session
from dovetail.codec.packets import (
    MQTT_5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    SubscriptionAck,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.core import Broker

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
        ReasonCode.CONNECTION_RATE_EXCEEDED,
    }
)
"""The reasons that a 3.1.1 CONNACK can express. For others the broker just closes the link."""

_NOTHING = ClientAccess(ClientFilters((), ()))


class LinkState(Enum):
    AWAITING_CONNECT = auto()
    ADMITTING = auto()
    CONNECTED = auto()
    CLOSED = auto()


class _OutgoingAliases(NamedTuple):
    """The topics that the client knows by an alias, at most `max`."""

    max: int
    by_topic: dict[bytes, int]


_NO_ALIASES = _OutgoingAliases(0, {})


class ClientLink:
    """A client's connection, from CONNECT to its end."""

    __slots__ = (
        "_aliases",
        "_broker",
        "_shared",
        "_wants_reasons",
        "_wire",
        "access",
        "congested",
        "is_busy",
        "keep_alive_seconds",
        "outgoing",
        "packet_bytes_max",
        "plain",
        "remote",
        "seen_at",
        "session",
        "state",
        "unsent",
        "version",
    )

    def __init__(self, broker: "Broker", wire: Wire, remote: RemoteEnd, now: float) -> None:
        self._broker = broker
        self._shared = broker.shared
        self._wire = wire
        self.remote = remote
        self.state = LinkState.AWAITING_CONNECT
        self.version = MQTT_5
        self.session: Session | None = None
        self.access = _NOTHING
        self.seen_at = now
        self.keep_alive_seconds = 0
        self.is_busy = False
        """Is its last read still being taken, in slices? Or does it wait for receivers?"""

        self.outgoing: list[bytes] = []
        self.unsent = 0
        self.congested = False
        self.packet_bytes_max: int | None = None  # the client's limit
        self.plain = True  # packets may be passed on to it as they came
        self._aliases = _NO_ALIASES
        self._wants_reasons = True

    @property
    def is_connected(self) -> bool:
        return self.state is LinkState.CONNECTED

    @property
    def is_paused(self) -> bool:
        """Must the shell stop reading from it for now?"""
        return self.is_busy or self.state is LinkState.ADMITTING

    @property
    def is_closed(self) -> bool:
        return self.state is LinkState.CLOSED

    # In -----------------------------------------------------------------------------------------

    def connect(self, packet: Connect) -> None:
        """Have the broker admit or refuse the client."""
        self.version = packet.version
        self.packet_bytes_max = packet.packet_bytes_max
        self._wants_reasons = packet.wants_problem_information
        self.state = LinkState.ADMITTING
        self._broker.authenticate(self, packet)

    def admitted(self, session: Session, packet: Connect, connack: bytes) -> None:
        """Connect the authenticated client to its session, and send CONNACK."""
        self.state = LinkState.CONNECTED
        self.session = session
        limits = self._shared.limits
        alias_max = min(packet.alias_max, limits.alias_out_max)
        if alias_max:
            self._aliases = _OutgoingAliases(alias_max, {})
        # A 3.1.1 packet can grow by two bytes when it is transcoded to version 5.
        self.plain = not alias_max and (
            packet.packet_bytes_max is None
            or packet.packet_bytes_max >= limits.packet_bytes_max + 2
        )
        self.send(connack)

    def resume(self) -> None:
        """Have the shell read on, after the client was admitted."""
        self._wire.resume()

    def finish_read(self) -> None:
        """Note that the last read was taken to its end, and have the shell read on."""
        self.is_busy = False
        self._wire.wake()

    # Out ----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self.outgoing:
            self._wire.wake()
        self.outgoing.append(data)
        self.unsent += len(data)

    def send_packets(self, data: bytes, count: int) -> None:
        """Send PUBLISH packets as one piece."""
        counters = self._shared.counters
        counters.publishes_sent += count
        counters.packets_sent += count - 1  # the shell counts pieces
        counters.publish_bytes_sent += len(data)
        self.send(data)
        if self.unsent > self._shared.limits.backlog_bytes_max // 2:
            self.congested = True

    def send_publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        duplicate: bool,
    ) -> bool:
        """Send a PUBLISH. Return False if it is larger than the client accepts."""
        shared = self._shared
        version = self.version
        aliases = self._aliases
        known = len(aliases.by_topic)
        if aliases.max and version == MQTT_5:
            data = self._encode_aliased(message, qos, retain, packet_id, identifiers, duplicate)
        else:
            data = shared.publish_encoder.encode(
                version, message, qos, retain, packet_id, shared.now, identifiers, duplicate
            )
        if self.packet_bytes_max is not None and len(data) > self.packet_bytes_max:
            if len(aliases.by_topic) > known:
                del aliases.by_topic[message.topic]  # the client never gets this alias
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
        """Encode a PUBLISH with a topic alias, while aliases are left (section 3.3.2.3.4)."""
        topic = message.topic
        aliases = self._aliases.by_topic
        alias = aliases.get(topic, 0)
        if alias:
            topic = b""
        elif len(aliases) < self._aliases.max:
            alias = aliases[topic] = len(aliases) + 1
        left = remaining_seconds(message, self._shared.now)
        return codec.encode_publish(
            MQTT_5, topic, message.payload, qos, retain, duplicate, packet_id,
            message.properties, left, identifiers, alias,
        )  # fmt: skip

    def is_small_enough(self, data: bytes) -> bool:
        """Is the packet within the client's Maximum Packet Size?"""
        return self.packet_bytes_max is None or len(data) <= self.packet_bytes_max

    def flush_backlog(self) -> None:
        """Have the shell write now."""
        if self.outgoing:
            self._wire.flush()

    def has_room(self) -> bool:
        """Return False if the backlog is full. Call this if more than half of it is taken.

        A single piece may have filled it. As no publisher could wait before, one more is taken.
        """
        backlog_bytes_max = self._shared.limits.backlog_bytes_max
        if not self.congested or self.unsent > backlog_bytes_max:
            self.flush_backlog()
        if self.unsent <= backlog_bytes_max // 2:
            return True
        self.congested = True
        is_new = self._broker.back_pressure.fell_behind(self)
        return is_new or self.unsent <= backlog_bytes_max

    def written(self, unsent: int) -> None:
        """Note how many bytes are still unsent. The shell reports each change, if only by ticks."""
        self.unsent = unsent
        if self.congested:
            self._note_room()
        self._broker.retained_deliveries.resume(self)

    def _note_room(self) -> None:
        backlog_bytes_max = self._shared.limits.backlog_bytes_max
        if self.unsent <= backlog_bytes_max // 8 * 5:
            self._broker.back_pressure.caught_up(self)
        if self.unsent <= backlog_bytes_max // 4:
            self.congested = False
            if self.session is not None:
                self.session.pump(self._shared.now)

    def retained_delivery_paused(self) -> None:
        """Called when a delivery of retained messages pauses or ends (retained_delivery.py)."""

    def answer_reasons(
        self, kind: PacketType, packet_id: int, reasons: list[int], why: str | None = None
    ) -> None:
        """Send SUBACK or UNSUBACK."""
        answer = SubscriptionAck(kind, packet_id, reasons)
        data = codec.encode(self.version, answer)
        if why is not None:
            data = self.with_reason(answer, why, data)
        if self.is_small_enough(data):
            self.send(data)
        else:
            self.disconnect(ReasonCode.PACKET_TOO_LARGE, "the answer is too large for the client")

    def with_reason(self, answer: Ack | SubscriptionAck, why: str, otherwise: bytes) -> bytes:
        """Return the answer with a reason string, if the client wants one [MQTT-3.1.2-29].

        Return `otherwise` if it does not, or if the packet would be too large.
        """
        if self.version != MQTT_5 or not self._wants_reasons:
            return otherwise
        answer.reason_string = why
        data = codec.encode(MQTT_5, answer)
        return data if self.is_small_enough(data) else otherwise  # [MQTT-3.4.2-2], [MQTT-3.9.2-1]

    # The end ------------------------------------------------------------------------------------

    def end(self, packet: Disconnect) -> None:
        """Close after the client's DISCONNECT."""
        session = self.session
        assert session is not None
        expiry = packet.session_expiry_seconds
        if expiry is not None:
            if expiry and not session.expiry_seconds:  # section 3.14.2.2.2
                raise ClientError(
                    ReasonCode.PROTOCOL_ERROR,
                    "a session without an expiry interval cannot get one in DISCONNECT",
                )
            session.expiry_seconds = min(expiry, self._shared.limits.session_expiry_max_seconds)
        # [MQTT-3.14.4-3]: a normal end takes the will with it.
        self.close(with_will=packet.reason != ReasonCode.SUCCESS)

    def refuse(self, reason: ReasonCode, why: str | None) -> None:
        """Send CONNACK with a reason code, and close the connection [MQTT-3.2.2-7]."""
        self._shared.counters.connections_refused += 1
        self._broker.log_refusal(self, reason, why)
        if self.version == MQTT_5 or reason in _REFUSALS_3_1_1:  # [MQTT3-3.2.2-6]
            answer = Connack(session_present=False, reason=reason)
            if self._wants_reasons and why:
                answer.reason_string = why
            data = codec.encode(self.version, answer)
            if not self.is_small_enough(data):  # [MQTT-3.2.2-19]
                answer.reason_string = None
                data = codec.encode(self.version, answer)
            if self.is_small_enough(data):
                self.send(data)
        self.close()

    def fail(self, reason: ReasonCode, why: str) -> None:
        """Log and count an error of the client, and disconnect it."""
        if self.state is LinkState.CLOSED:
            return
        self._shared.counters.protocol_errors += 1
        self._broker.log_failure(self, reason, why)
        self.disconnect(reason, why)

    def disconnect(self, reason: ReasonCode, why: str | None = None) -> None:
        """Send DISCONNECT with a reason (MQTT 5 only), and close. The will is published."""
        if self.state is LinkState.CLOSED:
            return
        if self.version == MQTT_5 and self.state is LinkState.CONNECTED:
            text = why if self._wants_reasons else None  # [MQTT-3.1.2-29]
            data = codec.encode(MQTT_5, Disconnect(reason, reason_string=text))
            if self.packet_bytes_max is not None and len(data) > self.packet_bytes_max:
                data = codec.encode(MQTT_5, Disconnect(reason))  # [MQTT-3.14.2-3]
            self.send(data)
        self.close()

    def close(self, *, with_will: bool = True) -> None:
        """Close the connection. The shell still writes what is in `outgoing`."""
        if self.state is LinkState.CLOSED:
            return
        was_connected = self.state is LinkState.CONNECTED
        self.state = LinkState.CLOSED
        self.access = _NOTHING
        self._aliases = _NO_ALIASES  # a timer may hold the link for hours
        if not self.outgoing:
            self._wire.wake()
        self._broker.link_closed(self, was_connected=was_connected, with_will=with_will)

    def lost(self, now: float) -> None:
        """Close after the network has lost the connection."""
        self._shared.now = now
        if self.state is LinkState.CONNECTED:
            self._shared.counters.connections_lost += 1
        self.close()
        self._wire = NO_WIRE
