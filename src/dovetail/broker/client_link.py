"""The outgoing half of a connection. Pure.

The link appends bytes to `outgoing` and wakes the shell. The shell writes them and reports through
`written` how many are unsent. A closed link may still have its last bytes there.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from dovetail import codec
from dovetail.broker.auth.access import ClientAccess, ClientFilters
from dovetail.broker.publish_encoder import remaining_seconds
from dovetail.broker.session import Session
from dovetail.codec.packets import MQTT_5, Ack, Connack, Disconnect, SubscriptionAck
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.slices import Work

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


class RemoteEnd(NamedTuple):
    """The other end of a connection, as the network sees it."""

    address: str = "?"
    is_loopback: bool = True
    certificate_name: str | None = None
    listener: str = ""
    host: str = "?"


class PendingAcknowledgement:
    """A pending PUBACK, PUBREC or PUBCOMP. `waiting` counts what it still waits for.

    It may also be the PUBACKs of a run, which only wait for earlier ones.
    """

    __slots__ = ("data", "ends", "packets", "waiting")

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.data: bytes | None = None
        """The encoded packet; None if none is to be sent any more."""
        self.packets = 1
        """The number of packets in `data`."""
        self.ends = 0
        """The number of publications that stop counting against the client's window."""


class Outlet:
    """A client's connection. Its public fields are its contract with sessions and the shell."""

    __slots__ = (
        "_acks",
        "_alias_out_max",
        "_aliases_in",
        "_aliases_out",
        "_dispatch",
        "_partial",
        "_partial_needs",
        "_receiving",
        "_router",
        "_shared",
        "_spent",
        "_waiting_data",
        "_wants_reasons",
        "_work",
        "access",
        "broker",
        "congested",
        "flush",
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

    def __init__(self, broker: "Broker", remote: RemoteEnd, now: float) -> None:
        self.broker = broker
        self._shared = broker.shared
        self._router = broker.router
        self._dispatch = broker.dispatch
        self.remote = remote
        self.state = LinkState.AWAITING_CONNECT
        self.version = MQTT_5
        self.session: Session | None = None
        self.access = _NOTHING
        self.seen_at = now
        self.keep_alive_seconds = 0

        self.outgoing: list[bytes] = []
        self.unsent = 0
        self.congested = False
        self.flush: Callable[[], None] | None = None
        """Set by the shell: writes `outgoing`, and closes the socket of a closed link."""

        self.packet_bytes_max: int | None = None  # the client's limit
        self.plain = True  # packets may be passed on to it as they came
        self._alias_out_max = 0
        self._aliases_out: dict[bytes, int] = {}
        self._aliases_in: dict[int, bytes] = {}
        self._wants_reasons = True

        self.is_busy = False
        """Is its last read still being taken, in slices?"""
        self._work: Work | None = None  # has to end before the next packet is taken
        self._waiting_data = b""  # bytes that came while the link was busy
        self._spent = 0  # effort spent on the current piece
        self._partial = bytearray()
        self._partial_needs = 0
        self._receiving = 0  # QoS 1 and 2 publications of the client that are in flight
        self._acks: list[PendingAcknowledgement] = []  # an empty deque would be ten times as large

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

    # Out ----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self.outgoing:
            self.broker.mark_dirty(self)
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
        shared = self.broker.shared
        version = self.version
        aliases = len(self._aliases_out)
        if self._alias_out_max and version == MQTT_5:
            data = self._encode_aliased(message, qos, retain, packet_id, identifiers, duplicate)
        else:
            data = shared.publish_encoder.encode(
                version, message, qos, retain, packet_id, shared.now, identifiers, duplicate
            )
        if self.packet_bytes_max is not None and len(data) > self.packet_bytes_max:
            if len(self._aliases_out) > aliases:
                del self._aliases_out[message.topic]  # the client never gets this alias
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
        alias = self._aliases_out.get(topic, 0)
        if alias:
            topic = b""
        elif len(self._aliases_out) < self._alias_out_max:
            alias = len(self._aliases_out) + 1
            self._aliases_out[topic] = alias
        left = remaining_seconds(message, self._shared.now)
        return codec.encode_publish(
            MQTT_5, topic, message.payload, qos, retain, duplicate, packet_id,
            message.properties, left, identifiers, alias,
        )  # fmt: skip

    def is_small_enough(self, data: bytes) -> bool:
        """Is the packet within the client's Maximum Packet Size?"""
        return self.packet_bytes_max is None or len(data) <= self.packet_bytes_max

    def flush_backlog(self) -> bool:
        """Have the shell write now. Return True if the backlog is within its bound then."""
        if self.flush is not None and self.outgoing:
            self.flush()
        return self.unsent <= self.broker.shared.limits.backlog_bytes_max

    def written(self, unsent: int) -> None:
        """Note that the shell has written, and how many bytes are still unsent."""
        self.unsent = unsent
        if self.congested and unsent <= self.broker.shared.limits.backlog_bytes_max // 4:
            self.congested = False
            if self.session is not None:
                self.session.pump(self.broker.shared.now)
        if self._shared.gauges.retained_messages:
            self.broker.retained_deliveries.resume(self)

    def retained_delivery_paused(self) -> None:
        """Called when a delivery of retained messages pauses or ends (retained_delivery.py)."""

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

    def refuse(self, reason: ReasonCode, why: str | None) -> None:
        """Send CONNACK with a reason code, and close the connection [MQTT-3.2.2-7]."""
        self.broker.shared.counters.connections_refused += 1
        self.broker.log_refusal(self, reason, why)
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
        self.broker.shared.counters.protocol_errors += 1
        self.broker.log_failure(self, reason, why)
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
        # A timer may hold the link for hours; its buffers need not stay so long.
        self._partial.clear()
        self._aliases_in.clear()
        self._aliases_out.clear()
        if not self.outgoing:
            self.broker.mark_dirty(self)
        self.broker.link_closed(self, was_connected=was_connected, with_will=with_will)

    def lost(self, now: float) -> None:
        """Close after the network has lost the connection."""
        self.broker.shared.now = now
        if self.state is LinkState.CONNECTED:
            self.broker.shared.counters.connections_lost += 1
        self.close()
