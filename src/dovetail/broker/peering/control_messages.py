"""Control messages: what brokers send through their numbered streams besides publications. Pure.

A control message travels as a message whose topic no client can have. So it is on disk before it is
sent, arrives once and in its place among publications, and waits for a peer that is down.
broker/peering/roaming/__init__.py draws how they move sessions.

Clocks of brokers differ. A pending message inside a control message expires with the message that
carries it: on disk as a time of day, between brokers as the seconds that are left.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dovetail.broker.peering.peer_messages import ClientId, Qos, Stamp, UnixSeconds
from dovetail.errors import PeerError
from dovetail.messages import Message

CONTROL_TOPIC = b"\0"
"""MQTT has no topics with this character [MQTT-1.5.4-2]."""


_PacketId = Annotated[int, Meta(ge=1, le=65_535)]
_MaybePacketId = Annotated[int, Meta(ge=0, le=65_535)]
_ExpirySeconds = Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
_Options = Annotated[int, Meta(ge=0, le=0x3F)]
_Identifier = Annotated[int, Meta(ge=0, le=268_435_455)]
_QosKept = Annotated[int, Meta(ge=1, le=2)]


class HandoverHeader(Struct, frozen=True, array_like=True, tag=1):
    """A session begins to arrive: everything but its subscriptions and messages."""

    client_id: ClientId
    stamp: Stamp
    """The stamp of the connection that it follows."""
    stamp_before: Stamp
    """The stamp of its last connection before."""
    void_before: Stamp
    """The stamp of its last clean start: messages for earlier connections are not for it."""
    user: str | None
    expiry_seconds: _ExpirySeconds
    next_packet_id: _PacketId
    incoming: list[_PacketId]
    sources: list[str]
    """Brokers whose publications still come through the sender, until the marker of each."""
    behind: list[str]
    """Brokers through which some publications still come to the sender."""
    is_loss_unconfirmed: bool
    """The client may not know yet that it began without its earlier session."""


class HandoverFilters(Struct, frozen=True, array_like=True, tag=2):
    """Subscriptions of an arriving session: filter, options, identifier."""

    client_id: ClientId
    stamp: Stamp
    filters: list[tuple[str, _Options, _Identifier]]


class HandoverMessage(Struct, frozen=True, array_like=True, tag=3):
    """A pending message of a session."""

    client_id: ClientId
    stamp: Stamp
    user: str | None
    """The user that the session belongs to."""
    topic: bytes
    payload: bytes
    message_qos: Qos
    message_retain: bool
    properties: bytes
    expires_at: UnixSeconds | None
    """By the clock of the broker that has it. It does not travel, except from outboxes that
    version 0.1 has written."""
    origin: str
    qos: _QosKept
    retain: bool
    packet_id: _MaybePacketId
    released: bool
    identifiers: tuple[_Identifier, ...]

    def __post_init__(self) -> None:
        if self.released and not (self.packet_id and self.qos == 2):
            raise ValueError("a message that is released, and was not sent at QoS 2")

    def message(self) -> Message:
        return Message(
            self.topic,
            self.payload,
            self.message_qos,
            self.message_retain,
            self.properties,
            self.expires_at,
            self.origin,
        )


class HandoverReady(Struct, frozen=True, array_like=True, tag=4):
    """All messages that were in flight to the client have arrived."""

    client_id: ClientId
    stamp: Stamp


class RedirectEnd(Struct, frozen=True, array_like=True, tag=5):
    """Nothing more comes through the sender: publications come directly from now on."""

    client_id: ClientId
    stamp: Stamp


class RerouteRequest(Struct, frozen=True, array_like=True, tag=6):
    """Asks a broker to route by the owner's sketch of this version, and to say when: a marker."""

    client_id: ClientId
    stamp: Stamp
    owner: str
    holders: list[str]
    """Brokers that have, or may have, an earlier session of the client."""
    is_clean: bool
    """Their sessions are void."""
    user: str | None
    """The client's user. Messages that were promised to another user are void, too."""
    is_late: bool
    """The client has been there for a while: publications go there already."""
    lineage: int
    version: int


class RerouteMarker(Struct, frozen=True, array_like=True, tag=7):
    """From here on, the sender's publications go to the client's new broker."""

    client_id: ClientId
    stamp: Stamp
    owner: str
    is_clean: bool
    user: str | None


class WillDone(Struct, frozen=True, array_like=True, tag=8):
    """A will of the receiver was published, or its client is back elsewhere (will_copies.py)."""

    client_id: ClientId
    stamp: Stamp


MoveMessage = (
    HandoverHeader
    | HandoverFilters
    | HandoverMessage
    | HandoverReady
    | RedirectEnd
    | RerouteRequest
    | RerouteMarker
)
ControlMessage = MoveMessage | WillDone

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ControlMessage)


def pack(message: ControlMessage) -> Message:
    """Return the message that carries it, at QoS 2: on disk before it is sent, and taken once."""
    expires_at = None
    if isinstance(message, HandoverMessage) and message.expires_at is not None:
        expires_at = message.expires_at
        message = msgspec.structs.replace(message, expires_at=None)
    return Message(CONTROL_TOPIC, _encoder.encode(message), 2, expires_at=expires_at)


def unpack(data: bytes, expires_at: float | None = None) -> ControlMessage:
    """Return the control message. `expires_at` is when its carrier expires, by our clock."""
    try:
        message: ControlMessage = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerError(f"a control message that cannot be read: {error}") from error
    if isinstance(message, HandoverMessage) and expires_at is not None:
        message = msgspec.structs.replace(message, expires_at=expires_at)
    return message
