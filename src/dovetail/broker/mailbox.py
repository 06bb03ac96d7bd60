"""A request for a handle, treated as a connection that receives messages as objects. Pure.

A handle is a persistent session like any other: with a queue, limits, expiry, access rules and rows
on disk, and it moves between brokers. But its client uses HTTP instead of MQTT. Each request is a
connection of its own, which ends with the answer.

Rules:

- The client identifier is HANDLE_PREFIX and the handle: 16 random bytes, the expiry, and a digest
  of both with the user's name. So every broker knows the owner and the expiry of a handle without
  asking another one. No MQTT client can have such an identifier (admission.py).
- A request finds the session of its handle or is refused. It never begins the session anew, not
  even while a broker that may have it is down (broker/peering/roaming/claim.py). So no
  subscription is lost.
- Subscriptions have QoS 1. Publications at QoS 0 are queued as if they had QoS 1 (dispatch.py),
  because a polling client is away most of the time.
- The messages in a mailbox are in flight, and stay so when it closes. The client acknowledges them
  by packet identifier, or the next mailbox gets them as duplicates.
- A mailbox takes messages up to its window and HANDLE_ANSWER_BYTES_MAX. A shut mailbox takes none
  and leaves the queue as it is.
- The first packet identifier of a process is random. Otherwise an acknowledgement that is repeated
  after a restart could match another message.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.api.handles import PolledMessage
from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.client_wire import NO_WIRE, RemoteEnd
from dovetail.broker.limits import HANDLE_ANSWER_BYTES_MAX, HANDLE_PREFIX
from dovetail.broker.publish_encoder import remaining_seconds
from dovetail.broker.session import Session
from dovetail.codec.packets import MQTT_5, Connect, Disconnect, PacketType
from dovetail.codec.properties import forwarded_properties
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.core import Broker

RANDOM_BYTES = 16
_EXPIRY_BYTES = 4
_DIGEST_BYTES = 10
_BYTES = RANDOM_BYTES + _EXPIRY_BYTES + _DIGEST_BYTES

_STAMP_OF_NEW = 0
"""The stamp of a new handle's session: no other broker can have one of this name."""

_WHY = {
    ReasonCode.SESSION_TAKEN_OVER: "another request has this handle now",
    ReasonCode.SERVER_SHUTTING_DOWN: "the broker stops",
}


class Handle(NamedTuple):
    """A handle, and the expiry that is encoded in it."""

    text: str
    expiry_seconds: int

    @property
    def client_id(self) -> str:
        return HANDLE_PREFIX + self.text


def new_handle(random: bytes, user: str | None, expiry_seconds: int) -> Handle:
    """Return a new handle of this user. `random` has RANDOM_BYTES bytes."""
    said = random + expiry_seconds.to_bytes(_EXPIRY_BYTES)
    text = base64.urlsafe_b64encode(said + _digest(said, user)).decode()
    return Handle(text, expiry_seconds)


def parse_handle(text: str, user: str | None) -> Handle | None:
    """Return the handle, or None if `text` is not a handle of this user."""
    try:
        data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except ValueError:
        return None
    said, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(data) != _BYTES or not hmac.compare_digest(digest, _digest(said, user)):
        return None
    return Handle(text, int.from_bytes(said[RANDOM_BYTES:]))


def _digest(said: bytes, user: str | None) -> bytes:
    # "=" tells an empty user name from no user.
    name = b"" if user is None else b"=" + user.encode()
    return hashlib.blake2b(said + name, digest_size=_DIGEST_BYTES).digest()


class Mailbox(ClientLink):
    """The link of one request. It calls `changed` whenever it has news."""

    __slots__ = ("_changed", "_first_id", "bytes_taken", "error", "messages", "reasons", "why")

    def __init__(
        self,
        broker: "Broker",
        remote: RemoteEnd,
        now: float,
        *,
        first_id: int,
        changed: Callable[[], None],
        is_shut: bool = False,
    ) -> None:
        """`first_id` is the first packet identifier, if this process has not polled it before."""
        super().__init__(broker, NO_WIRE, remote, now)
        self.state = LinkState.ADMITTING
        self.plain = False  # it takes messages, not bytes
        self.congested = is_shut
        self.messages: list[PolledMessage] = []
        self.bytes_taken = 0
        self.reasons: list[int] | None = None
        """The reason codes that answer a SUBSCRIBE."""
        self.why: str | None = None
        """The sentence about refused filters, if any."""
        self.error: ClientError | None = None
        """Why it was refused or closed."""
        self._first_id = first_id
        self._changed = changed

    def open(self, handle: Handle, user: str | None, window: int, *, is_new: bool = False) -> None:
        """Ask the broker to admit this request, to an existing session or to a new one.

        The broker asks the others each time, even if the session is here: one of them may have
        messages for it that came after the session moved, while the brokers were not connected.
        """
        broker = self._broker
        broker.add_link(self)
        packet = Connect(
            MQTT_5,
            handle.client_id,
            clean_start=is_new,
            session_expiry_seconds=handle.expiry_seconds,
            receive_max=window,
            is_handle=True,
        )
        broker.admit(self, packet, user, _STAMP_OF_NEW if is_new else None)

    def admitted(self, session: Session, packet: Connect, connack: bytes) -> None:
        del packet, connack
        self.state = LinkState.CONNECTED
        self.session = session
        if not session.window:  # the first request since the process began
            session.next_packet_id = self._first_id
        self._changed()

    def send(self, data: bytes) -> None:
        """Discard the packet: an HTTP client cannot read it."""

    def send_publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        duplicate: bool,
    ) -> bool:
        del qos, identifiers
        shared = self._shared
        self.messages.append(
            polled_message(message, packet_id, retain=retain, duplicate=duplicate, now=shared.now)
        )
        self.bytes_taken += message.size
        if self.bytes_taken >= HANDLE_ANSWER_BYTES_MAX:
            self.congested = True
        shared.counters.publishes_sent += 1
        shared.counters.publish_bytes_sent += message.size
        self._changed()
        return True

    def shut(self) -> None:
        """Take no further messages: those in the mailbox are the answer."""
        self.congested = True

    def answer_reasons(
        self, kind: PacketType, packet_id: int, reasons: list[int], why: str | None = None
    ) -> None:
        del kind, packet_id
        self.reasons = list(reasons)
        self.why = why
        self._changed()

    def retained_delivery_paused(self) -> None:
        self._changed()

    def end_session(self) -> None:
        """Delete the handle and its queue."""
        self.end(Disconnect(session_expiry_seconds=0))

    def refuse(self, reason: ReasonCode, why: str | None) -> None:
        self._end(reason, why)

    def disconnect(self, reason: ReasonCode, why: str | None = None) -> None:
        self._end(reason, why)

    def _end(self, reason: ReasonCode, why: str | None) -> None:
        if self.state is LinkState.CLOSED:
            return
        sentence = why or _WHY.get(reason, reason.name.lower().replace("_", " "))
        self.error = ClientError(reason, sentence)
        self.close(with_will=False)
        self._changed()


def polled_message(
    message: Message, packet_id: int, *, retain: bool, duplicate: bool, now: float
) -> PolledMessage:
    """Return a message in flight as the HTTP client gets it."""
    try:
        payload, is_text = message.payload.decode(), True
    except UnicodeDecodeError:
        payload, is_text = base64.b64encode(message.payload).decode(), False
    said = forwarded_properties(message.properties)
    correlation = said.correlation_data
    return PolledMessage(
        id=packet_id,
        topic=message.topic.decode(),
        payload=payload,
        encoding="utf-8" if is_text else "base64",
        qos=message.qos,
        retain=retain,
        duplicate=duplicate,
        user_properties=said.user,
        content_type=said.content_type,
        response_topic=said.response_topic,
        correlation_data=None if correlation is None else base64.b64encode(correlation).decode(),
        expires_in_seconds=remaining_seconds(message, now),
    )
