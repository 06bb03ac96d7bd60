"""One connection to an MQTT server. It has no thread: the caller drives it.

- `pump` reads, writes and keeps alive; nothing happens outside it. The server's answers are kept
  until a caller asks for them.
- `RequestRefusedError` names the server's reason code in words. Any call may raise
  `ConnectionLostError`. `is_transient` tells whether a retry may help.
"""

import select
import ssl
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from paho.mqtt import MQTTException
from paho.mqtt.client import (
    MQTT_CLEAN_START_FIRST_ONLY,
    Client,
    ConnectFlags,
    DisconnectFlags,
    MQTTMessage,
)
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from dovetail.client.endpoint import MQTT_5, WEBSOCKET_PATH, ConnectionOptions
from dovetail.errors import DovetailError, ReasonCode

if TYPE_CHECKING:
    from paho.mqtt.client import SocketLike

CONNECT_SECONDS_MAX = 10.0
"""To open the connection, and again for the answer to CONNECT."""

ANSWER_SECONDS_MAX = 30.0
"""For any other answer. A live server that has not answered by then never will."""

CLOSE_SECONDS_MAX = 5.0
"""To send the rest of the data and DISCONNECT, and again for the server to close."""

PACKET_BYTES_MAX = 268_435_455
"""The largest remaining length (MQTT 5.0 section 2.1.4)."""

_READ_BYTES = 65_536
_TICK_SECONDS = 1.0  # keep-alive is in whole seconds

TRANSIENT_REASONS = frozenset(
    {
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.KEEP_ALIVE_TIMEOUT,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.MAXIMUM_CONNECT_TIME,
    }
)
"""Reasons that go away by themselves. A retry after any other gets the same refusal; after a
take-over, two clients would take over from each other for ever."""


Answer = TypeVar("Answer")


class ConnectError(DovetailError):
    """No connection could be opened: no server, no trusted certificate, or no MQTT."""


class RequestRefusedError(DovetailError):
    """The server refused a request."""

    def __init__(self, reason: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    @property
    def is_transient(self) -> bool:
        return self.reason in TRANSIENT_REASONS


class ConnectionLostError(DovetailError):
    """An open connection was lost. `is_transient`: a retry may help."""

    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


def describe_reason(reason: int, said: str | None = None) -> str:
    """Return a reason code and the server's reason string as text: `not authorised (0x87)`."""
    try:
        words = ReasonCode(reason).name.lower().replace("_", " ").replace("authoriz", "authoris")
    except ValueError:
        words = "a reason that MQTT does not know"
    return f"{words} (0x{reason:02X})" + (f": {said}" if said else "")


class MqttConnection:
    """A connection that can be opened again after it was lost."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        keep_session: bool = False,
        receive_max: int | None = None,
    ) -> None:
        self.address = options.address
        self.session_present = False
        self.receive_max = 65_535
        self.packet_bytes_max = PACKET_BYTES_MAX
        self.qos_max = 2
        self.retain_available = True
        self.on_message: Callable[[MQTTMessage], None] | None = None
        self.on_published: Callable[[int, str | None], None] | None = None
        """Called with the reason code and the reason string; at QoS 0, when the message is sent."""
        self._options = options
        self._keep_session = keep_session
        self._receive_max = receive_max
        self._opened = False
        self._closing = False
        self._connected: tuple[int, str | None] | None = None
        self._granted: tuple[list[int], str | None] | None = None
        self._ended: tuple[bool, int, str | None] | None = None
        self._client = self._make_client()

    def open(self) -> None:
        """Connect or reconnect, and wait until the server has accepted."""
        self._connected = self._ended = None
        try:
            self._reach()
        except ssl.SSLCertVerificationError as error:
            raise ConnectError(
                f"cannot trust {self.address}: {error.verify_message}.",
                hint="--ca names the authority that signed its certificate; "
                "--insecure goes on without a check.",
            ) from None
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise ConnectError(
                f"no TLS with {self.address}: {reason}.", hint="Is this the port for TLS?"
            ) from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            raise ConnectError(
                f"cannot connect to {self.address}: {reason}.",
                hint="Is a broker running there? `dovetail up` starts one.",
            ) from None
        self._await_answer()

    def _reach(self) -> None:
        if self._opened:
            self._client.reconnect()
            return
        options = self._options
        clean_start, properties = MQTT_CLEAN_START_FIRST_ONLY, None
        if options.version == MQTT_5:
            # Only the first connection starts clean: a reconnect resumes the session.
            clean_start = MQTT_CLEAN_START_FIRST_ONLY if not self._keep_session else False
            properties = make_properties(
                PacketTypes.CONNECT,
                SessionExpiryInterval=options.session_expiry_seconds,
                ReceiveMaximum=self._receive_max,
            )
        self._client.connect(
            options.host,
            options.chosen_port,
            options.keep_alive_seconds,
            clean_start=clean_start,
            properties=properties,
        )
        self._opened = True

    def _await_answer(self) -> None:
        try:
            reason, said = self.wait(lambda: self._connected, CONNECT_SECONDS_MAX)
        except ConnectionLostError as error:
            raise ConnectError(
                f"no answer of MQTT from {self.address}: {error.message}",
                hint="Does it want --tls, --websocket or another --mqtt version?",
            ) from None
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._drop()
            hints: dict[int, str] = {
                ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "Try --mqtt 3.1.1.",
                ReasonCode.BAD_USER_NAME_OR_PASSWORD: "--user and --password-file say who you are.",
                ReasonCode.NOT_AUTHORIZED: "--user and --password-file say who you are.",
            }
            raise RequestRefusedError(
                reason,
                f"{self.address} refused the connection: {describe_reason(reason, said)}",
                hint=hints.get(reason),
            )

    def pump(
        self, seconds: float, *, readable: int | None = None, reader: int | None = None
    ) -> bool:
        """Wait at most `seconds` for network events, and handle them.

        Return whether the file `readable` can be read. Raise BrokenPipeError when the pipe
        `reader` has lost its reader: the next write would raise it too, but may never come.
        """
        connected = self._client.socket()
        if connected is None:
            raise self._lost()
        poll = select.poll()
        poll.register(connected, select.POLLIN | self._wants_write())
        if readable is not None:
            poll.register(readable, select.POLLIN)
        if reader is not None:
            poll.register(reader, 0)
        hidden = bool(
            getattr(connected, "pending", lambda: 0)()
        )  # decrypted already: poll does not see it
        number = connected.fileno()
        ready = dict(poll.poll(0 if hidden else min(seconds, _TICK_SECONDS) * 1_000))
        if reader is not None and ready.get(reader, 0) & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        if hidden or ready.get(number, 0) & ~select.POLLOUT:
            self._client.loop_read()
        if self._client.want_write():
            self._client.loop_write()
        self._client.loop_misc()
        if self._client.socket() is None and not self._closing:
            raise self._lost()
        return readable in ready

    def _wants_write(self) -> int:
        return select.POLLOUT if self._client.want_write() else 0

    def wait(self, answer: Callable[[], Answer | None], seconds: float) -> Answer:
        """Return the first value of `answer` that is not None. Raise after `seconds`."""
        deadline = time.monotonic() + seconds
        while (answered := answer()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self._drop()
                raise ConnectionLostError(
                    f"{self.address} has not answered for {round(seconds, 1):g} seconds.",
                    is_transient=True,
                )
            try:
                self.pump(left)
            except ConnectionLostError:
                if (answered := answer()) is None:
                    raise
                return answered  # it came just before the connection was lost
        return answered

    def publish(
        self, topic: str, payload: bytes, *, qos: int, retain: bool, properties: Properties | None
    ) -> None:
        """Send a message. `on_published` gets the result."""
        self._client.publish(topic, payload, qos, retain, properties)

    def subscribe(
        self, requests: list[tuple[str, Any]], properties: Properties | None
    ) -> list[int]:
        """Subscribe, and return the server's reason code for each filter."""
        self._granted = None
        self._client.subscribe(requests, properties=properties)
        granted, said = self.wait(lambda: self._granted, ANSWER_SECONDS_MAX)
        for (topic_filter, _), reason in zip(requests, granted, strict=False):
            if reason >= ReasonCode.UNSPECIFIED_ERROR:
                first, _, more = (said or "").partition("\n")
                if self._options.version != MQTT_5:
                    more = (
                        "MQTT 3.1.1 has no words for the reason; with --mqtt 5 there may be some."
                    )
                raise RequestRefusedError(
                    reason,
                    f"{self.address} refused the subscription to {topic_filter}: "
                    f"{describe_reason(reason, first)}",
                    hint=more or None,
                )
        return granted

    def close(self) -> None:
        """Send the rest of the data, then DISCONNECT, so that the will is not published.

        Nothing is read meanwhile: a message that the caller no longer handles must not be
        acknowledged.
        """
        self._closing = True
        if self._client.is_connected():
            self._client.disconnect()
            deadline = time.monotonic() + CLOSE_SECONDS_MAX
            while (connected := self._client.socket()) and time.monotonic() < deadline:
                _poll(connected, select.POLLOUT, deadline - time.monotonic())
                self._client.loop_write()
        self._drop()

    def _drop(self) -> None:
        """Close the socket without sending the rest."""
        connected = self._client.socket()
        if connected is not None:
            connected.close()

    def _lost(self) -> ConnectionLostError:
        by_server, reason, said = self._ended or (False, 0, None)
        if by_server:
            return ConnectionLostError(
                f"{self.address} ended the connection: {describe_reason(reason, said)}",
                is_transient=reason in TRANSIENT_REASONS,
            )
        if reason == ReasonCode.PROTOCOL_ERROR:
            return ConnectionLostError(f"{self.address} sent what is not MQTT.", is_transient=False)
        if reason == ReasonCode.KEEP_ALIVE_TIMEOUT:
            return ConnectionLostError(f"{self.address} gives no sign of life.", is_transient=True)
        return ConnectionLostError(f"the connection to {self.address} was lost.", is_transient=True)

    def _make_client(self) -> "_Client":
        options = self._options
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id_or_random(),
            clean_session=None if options.version == MQTT_5 else not self._keep_session,
            protocol=MQTTProtocolVersion.MQTTv5
            if options.version == MQTT_5
            else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if options.websocket else "tcp",
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_SECONDS_MAX
        client.max_inflight_messages = 0  # callers keep to the server's limit
        client.ws_set_options(WEBSOCKET_PATH)
        context = options.make_tls_context()
        if context is not None:
            client.tls_set_context(context)
        client.username_pw_set(options.user, options.read_password())
        if options.will_topic is not None:
            payload = (options.will_payload or "").encode("utf-8", "surrogateescape")
            client.will_set(options.will_topic, payload, options.will_qos, options.will_retain)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        client.on_socket_close = self._on_socket_close
        return client

    def _on_connect(
        self,
        _client: Client,
        _userdata: object,
        flags: ConnectFlags,
        reason: PahoReasonCode,
        properties: Properties | None,
    ) -> None:
        self.session_present = flags.session_present
        self.receive_max = getattr(properties, "ReceiveMaximum", 65_535)
        self.packet_bytes_max = getattr(properties, "MaximumPacketSize", PACKET_BYTES_MAX)
        self.qos_max = getattr(properties, "MaximumQoS", 2)
        self.retain_available = bool(getattr(properties, "RetainAvailable", 1))
        self._connected = reason.value, _reason_string(properties)

    def _on_disconnect(
        self,
        _client: Client,
        _userdata: object,
        flags: DisconnectFlags,
        reason: PahoReasonCode,
        properties: Properties | None,
    ) -> None:
        self._ended = (
            flags.is_disconnect_packet_from_server,
            reason.value,
            _reason_string(properties),
        )

    def _on_subscribe(
        self,
        _client: Client,
        _userdata: object,
        _packet_id: int,
        reasons: list[PahoReasonCode],
        properties: Properties | None,
    ) -> None:
        self._granted = [reason.value for reason in reasons], _reason_string(properties)

    def _on_publish(
        self,
        _client: Client,
        _userdata: object,
        _packet_id: int,
        reason: PahoReasonCode,
        properties: Properties | None,
    ) -> None:
        if self.on_published is not None:
            self.on_published(reason.value, _reason_string(properties))

    def _on_message(self, _client: Client, _userdata: object, message: MQTTMessage) -> None:
        if self.on_message is not None:
            self.on_message(message)

    def _on_socket_close(self, _client: Client, _userdata: object, connected: "SocketLike") -> None:
        """Wait until the server closes after DISCONNECT: then it has read all that we sent.

        If we closed first, with unread data from the server, TCP would reset the connection and
        drop what is on the way.
        """
        if not self._closing:
            return
        deadline = time.monotonic() + CLOSE_SECONDS_MAX
        while (left := deadline - time.monotonic()) > 0:
            try:
                if not connected.recv(_READ_BYTES):
                    return
            except (BlockingIOError, ssl.SSLWantReadError):
                _poll(connected, select.POLLIN, left)
            except OSError:
                return


def make_properties(packet_type: int, **values: object) -> Properties:
    """Return paho properties with the values that are not None."""
    properties = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def _poll(connected: "SocketLike", events: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(connected, events)
    poll.poll(max(0.0, seconds) * 1_000)


def _reason_string(properties: Properties | None) -> str | None:
    """Return the server's reason string, which may have several lines."""
    text: str | None = getattr(properties, "ReasonString", None)
    return text


class _Client(Client):
    """paho's client with two corrections.

    paho takes a refusal at QoS 2 for success. And it refuses filters with a where-clause behind a
    wildcard: here subscriber.py has already checked the filters.
    """

    @staticmethod
    def _filter_wildcard_len_check(_filter: bytes) -> MQTTErrorCode:
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = bytes(self._in_packet["packet"])
        packet_id = int.from_bytes(packet[:2], "big")
        if len(packet) < 3 or packet[2] < ReasonCode.UNSPECIFIED_ERROR:
            return super()._handle_pubrec()
        # Neither PUBREL nor PUBCOMP follows [MQTT-4.3.3-4].
        try:
            reason = PahoReasonCode(PacketTypes.PUBREC, identifier=packet[2])
            properties = make_properties(PacketTypes.PUBREC)
            if len(packet) > 3:
                properties.unpack(packet[3:])  # type: ignore[no-untyped-call]
        except (MQTTException, IndexError, KeyError, ValueError, struct.error):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        with self._out_message_mutex:
            if packet_id not in self._out_messages:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            return self._do_on_publish(packet_id, reason, properties)
