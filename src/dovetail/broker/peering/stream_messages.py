"""What brokers tell each other through their numbered streams, besides publications. Pure.

An item travels as a message whose topic no client can have. So it is on disk before it is sent,
comes once and in its place among publications, and waits for a peer that is down. How sessions
move by them is drawn in broker/peering/roaming/session_move.py.

Clocks of brokers differ. A message that an item brings expires with the message that the item
travels as: on disk that has a time of day, and on its way the seconds that are left.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dovetail.broker.peering.peer_messages import ClientId, Qos, Stamp, UnixSeconds
from dovetail.errors import PeerError
from dovetail.messages import Message

ITEM_TOPIC = b"\0"
"""MQTT has no topics with this character [MQTT-1.5.4-2]."""


_PacketId = Annotated[int, Meta(ge=1, le=65_535)]
_MaybePacketId = Annotated[int, Meta(ge=0, le=65_535)]
_ExpirySeconds = Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
_Options = Annotated[int, Meta(ge=0, le=0x3F)]
_Identifier = Annotated[int, Meta(ge=0, le=268_435_455)]
_QosKept = Annotated[int, Meta(ge=1, le=2)]


class Header(Struct, frozen=True, array_like=True, tag=1):
    """A session begins to arrive: all of it but its subscriptions and messages."""

    client_id: ClientId
    stamp: Stamp
    """Of the connection that it follows."""
    stamp_before: Stamp
    """Of the last connection that it had."""
    void_before: Stamp
    """Of the connection that it began clean with: what follows an earlier one is not for it."""
    user: str | None
    expiry_seconds: _ExpirySeconds
    next_packet_id: _PacketId
    incoming: list[_PacketId]
    sources: list[str]
    """Whose publications still come by way of the sender, until a `Note` of each."""
    behind: list[str]
    """Brokers by whose way some still come to the sender."""
    is_news: bool
    """Its client may not have heard that it began without what there was."""


class Filters(Struct, frozen=True, array_like=True, tag=2):
    """Subscriptions of a session that arrives: filter, options, identifier."""

    client_id: ClientId
    stamp: Stamp
    filters: list[tuple[str, _Options, _Identifier]]


class Entry(Struct, frozen=True, array_like=True, tag=3):
    """A message that a session is owed."""

    client_id: ClientId
    stamp: Stamp
    user: str | None
    """Whose session it is."""
    topic: bytes
    payload: bytes
    message_qos: Qos
    message_retain: bool
    properties: bytes
    expires_at: UnixSeconds | None
    """By the clock of the broker that has the item. It does not travel, but in items that version
    0.1 has left in an outbox."""
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


class Ready(Struct, frozen=True, array_like=True, tag=4):
    """Of what was under way to the client, this was all."""

    client_id: ClientId
    stamp: Stamp


class End(Struct, frozen=True, array_like=True, tag=5):
    """What came by way of the sender has come; what is published now comes straight."""

    client_id: ClientId
    stamp: Stamp


class Settle(Struct, frozen=True, array_like=True, tag=6):
    """Where the client is. From a sketch of this state on publications go there."""

    client_id: ClientId
    stamp: Stamp
    owner: str
    holders: list[str]
    """Who has, or may have, a session of it from before."""
    is_clean: bool
    """What they have is void."""
    user: str | None
    """Whose client it is: what another user was promised is void, too."""
    is_late: bool
    """It has been there for a while: what is published goes there already."""
    lineage: int
    version: int


class Note(Struct, frozen=True, array_like=True, tag=7):
    """What the sender publishes from now on reaches the client at its new broker."""

    client_id: ClientId
    stamp: Stamp
    owner: str
    is_clean: bool
    user: str | None


class WillDone(Struct, frozen=True, array_like=True, tag=8):
    """The receiver's will was published, or its client is back elsewhere (will_copies.py)."""

    client_id: ClientId
    stamp: Stamp


Move = Header | Filters | Entry | Ready | End | Settle | Note
Item = Move | WillDone

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Item)


def packed(item: Item) -> Message:
    """QoS 2: on disk before it is sent, and taken once."""
    expires_at = None
    if isinstance(item, Entry) and item.expires_at is not None:
        expires_at = item.expires_at
        item = msgspec.structs.replace(item, expires_at=None)
    return Message(ITEM_TOPIC, _encoder.encode(item), 2, expires_at=expires_at)


def unpacked(data: bytes, expires_at: float | None = None) -> Item:
    """`expires_at`: when the message does that it travelled as, by the clock of who has it now."""
    try:
        item: Item = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerError(f"an item that cannot be read: {error}") from error
    if isinstance(item, Entry) and expires_at is not None:
        item = msgspec.structs.replace(item, expires_at=expires_at)
    return item
