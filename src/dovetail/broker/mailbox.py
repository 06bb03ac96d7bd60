"""A request for a handle, as a connection: it receives messages as objects. Pure.

A handle is a kept session like any other. Its queue, limits, expiry, access rules, rows on disk and
way between brokers are those of sessions; only its client speaks HTTP instead of MQTT, and each
request is a connection of its own, which ends with the answer.

Rules:

- The client identifier is HANDLE_PREFIX and the handle: 16 random bytes, the expiry, and a digest
  of these with the user's name. So every broker can tell whose a handle is, and how long it lives,
  without asking another one. No MQTT client can have such an identifier (admission.py).
- A handle's session is found, or the request is refused; it is never begun anew, not even while a
  broker is down that may have it (peering/claims.py). So a subscription is not lost.
- Subscriptions have QoS 1. What is published at QoS 0 is kept, too, as if it had QoS 1
  (dispatch.py): who polls is away most of the time.
- The messages in a mailbox are in flight, and stay so when it closes: acknowledged under their
  packet identifiers, or sent again to the next one, as duplicates.
- A mailbox takes as many messages as its window and HANDLE_ANSWER_BYTES_MAX let in. One that is
  shut takes none, and leaves the queue as it is.
- Packet identifiers of a process begin anywhere. An acknowledgement that is repeated after a
  restart must not find another message under the first of them.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.broker.frames import remaining_seconds
from dovetail.broker.link import Link
from dovetail.broker.outlet import Peer, State
from dovetail.broker.packets import MQTT_5, Connack, Connect, Disconnect, PacketType
from dovetail.broker.properties import forwarded_properties
from dovetail.broker.session import Session
from dovetail.config import HANDLE_ANSWER_BYTES_MAX, HANDLE_PREFIX
from dovetail.errors import ClientError, ReasonCode
from dovetail.handles import PolledMessage
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.core import Broker

RANDOM_BYTES = 16
_EXPIRY_BYTES = 4
_DIGEST_BYTES = 10
_BYTES = RANDOM_BYTES + _EXPIRY_BYTES + _DIGEST_BYTES

_STAMP_OF_NEW = 0
"""Of a session under a name that nobody else can have."""

_WHY = {
    ReasonCode.SESSION_TAKEN_OVER: "another request has this handle now",
    ReasonCode.SERVER_SHUTTING_DOWN: "the broker stops",
}


class Handle(NamedTuple):
    """What a handle says of itself."""

    text: str
    expiry_seconds: int

    @property
    def client_id(self) -> str:
        return HANDLE_PREFIX + self.text


def new_handle(random: bytes, user: str | None, expiry_seconds: int) -> Handle:
    """`random`: RANDOM_BYTES of them."""
    said = random + expiry_seconds.to_bytes(_EXPIRY_BYTES)
    text = base64.urlsafe_b64encode(said + _digest(said, user)).decode()
    return Handle(text, expiry_seconds)


def handle_of(text: str, user: str | None) -> Handle | None:
    """None if it is no handle, or not this user's."""
    try:
        data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except ValueError:
        return None
    said, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(data) != _BYTES or not hmac.compare_digest(digest, _digest(said, user)):
        return None
    return Handle(text, int.from_bytes(said[RANDOM_BYTES:]))


def _digest(said: bytes, user: str | None) -> bytes:
    # Who has no name is not who has an empty one.
    name = b"" if user is None else b"=" + user.encode()
    return hashlib.blake2b(said + name, digest_size=_DIGEST_BYTES).digest()


class Mailbox(Link):
    """From its CONNECT to its end. What it waits for comes by `changed`."""

    __slots__ = ("_changed", "_first_id", "bytes_taken", "error", "messages", "reasons", "why")

    def __init__(
        self,
        broker: "Broker",
        peer: Peer,
        now: float,
        *,
        first_id: int,
        changed: Callable[[], None],
        is_shut: bool = False,
    ) -> None:
        """`first_id`: where the packet identifiers of a session begin that is new to us."""
        super().__init__(broker, peer, now)
        self.state = State.ASKING
        self.plain = False  # bytes are no use
        self.congested = is_shut
        self.messages: list[PolledMessage] = []
        self.bytes_taken = 0
        self.reasons: list[int] | None = None
        """What the broker says to a SUBSCRIBE."""
        self.why: str | None = None
        """The same in words, about what it refuses."""
        self.error: ClientError | None = None
        """Why it was not let in, or is over."""
        self._first_id = first_id
        self._changed = changed

    def open(self, handle: Handle, user: str | None, window: int, *, is_new: bool = False) -> None:
        """Ask to be let in: to a session that is there, or to a new one.

        Other brokers are asked each time, also about a session that is here: one of them may have
        got something for it after it had moved on, while nobody could tell it where to.
        """
        broker = self.broker
        broker.expect(self)
        packet = Connect(
            MQTT_5,
            handle.client_id,
            clean_start=is_new,
            session_expiry_seconds=handle.expiry_seconds,
            receive_max=window,
            is_handle=True,
        )
        broker.admit(self, packet, user, _STAMP_OF_NEW if is_new else None)

    def admitted(self, session: Session, packet: Connect, answer: Connack) -> None:
        del packet, answer
        self.state = State.CONNECTED
        self.session = session
        if not session.window:  # no poll since the process began
            session.next_packet_id = self._first_id
        self._changed()

    def send(self, data: bytes) -> None:
        """Nobody reads packets here."""

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
            polled(message, packet_id, retain=retain, duplicate=duplicate, now=shared.now)
        )
        self.bytes_taken += message.size
        if self.bytes_taken >= HANDLE_ANSWER_BYTES_MAX:
            self.congested = True
        shared.counters.publishes_sent += 1
        shared.counters.publish_bytes_sent += message.size
        self._changed()
        return True

    def shut(self) -> None:
        """Take no more: what there is will be the answer."""
        self.congested = True

    def answer_reasons(
        self, kind: PacketType, packet_id: int, reasons: list[int], why: str | None = None
    ) -> None:
        del kind, packet_id
        self.reasons = list(reasons)
        self.why = why
        self._changed()

    def greeted(self) -> None:
        self._changed()

    def end_session(self) -> None:
        """The handle is gone, with its queue."""
        self._take_disconnect(Disconnect(session_expiry_seconds=0))

    def refuse(self, reason: ReasonCode, why: str | None) -> None:
        self._end(reason, why)

    def disconnect(self, reason: ReasonCode, why: str | None = None) -> None:
        self._end(reason, why)

    def _end(self, reason: ReasonCode, why: str | None) -> None:
        if self.state is State.CLOSED:
            return
        sentence = why or _WHY.get(reason, reason.name.lower().replace("_", " "))
        self.error = ClientError(reason, sentence)
        self.close(with_will=False)
        self._changed()


def polled(
    message: Message, packet_id: int, *, retain: bool, duplicate: bool, now: float
) -> PolledMessage:
    """A message in flight, as its client gets it."""
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
