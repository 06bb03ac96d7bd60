"""The frames between brokers: their kinds, and their bodies in msgpack (RUN: in bytes). Pure.

mesh.py and sketch_exchange.py draw who sends which frame, and when. A body that cannot be read is a
PeerError: the sender's fault.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from dovetail.broker.peering.limits import (
    LINEAGE_MAX,
    RUNS_JOINED_BYTES_MAX,
    SECONDS_MAX,
    STAMP_MAX,
)
from dovetail.cluster import frame_body
from dovetail.cluster.frames import Frame
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5
from dovetail.errors import PeerError
from dovetail.messages import Message

WHOLE, DELTA, KNOWN, LOST, MORE = range(16, 21)
GROUPS, GROUPS_KNOWN, GROUPS_LOST = range(24, 27)
RESUME, ACK, RUN, MESSAGE, WANT, PAGE = range(32, 38)
CLAIM, CLAIMED = 56, 57
WILLS = 58

Stamp = Annotated[int, Meta(ge=-1, lt=STAMP_MAX)]
"""A stamp of stamps.py; -1 stands for no connection."""

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""An integer that SQLite can store."""

_LINEAGE_STEP_MAX = 1 << 20
_VERSIONS = (MQTT_3_1_1, MQTT_5)
_RUN_HEAD_BYTES = 11  # number, version, and length of the client identifier
_NO_NUMBER = bytes(8)
_FRAMES_JOINED_MIN = 2

ClientId = Annotated[str, Meta(min_length=1)]
Qos = Annotated[int, Meta(ge=0, le=2)]
UnixSeconds = Annotated[float, Meta(ge=0, le=1 << 40)]
"""Bounded, so that it fits an integer; neither infinite nor NaN."""

Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
"""The rest of an expiry or of a delay."""


class CopiedFolderError(PeerError):
    """A peer uses the stream of another broker, so its data folder is a copy."""


class ReplicaVersions(Struct, frozen=True, array_like=True):
    """The version of our state that a peer has, and the version of its own state."""

    lineage: int
    version: int
    own_lineage: int
    own_version: int

    @property
    def own_state(self) -> tuple[int, int]:
        return self.own_lineage, self.own_version

    def outlived(self, lineage: int, version: int) -> int:
        """Return the lineage to continue with; `lineage` and `version` are our state now.

        It is a new one if the peer knows a later life of us: our clock went back, and the disk
        was lost. Otherwise the peer would take our state for an old one for ever.
        """
        if (self.lineage, self.version) <= (lineage, version):
            return lineage
        if self.lineage > max(lineage, LINEAGE_MAX) + _LINEAGE_STEP_MAX:
            raise PeerError("a life of ours that there was not")
        return self.lineage + 1


class SketchPart(Struct, frozen=True, array_like=True):
    """A part of a whole sketch in bytes."""

    place: int
    bytes_in_all: int
    data: bytes


class GroupRow(Struct, frozen=True, array_like=True):
    """How many members a group has at a broker. If both counts are 0, the group has gone."""

    name: str
    filter: str
    connected: Annotated[int, Meta(ge=0)]
    kept: Annotated[int, Meta(ge=0)]


class GroupUpdate(Struct, frozen=True, array_like=True):
    """Changes of a broker's groups after the version `since`; with -1 all its groups."""

    lineage: int
    since: int
    version: int
    rows: list[GroupRow]


class StreamResume(Struct, frozen=True, array_like=True):
    """The stream of the publications that follow: one for a data folder, through all its lives."""

    stream: Number
    is_incomplete: bool
    """Some spooled publications have been dropped."""


class StreamAck(Struct, frozen=True, array_like=True):
    """Acknowledges all publications of a stream up to this number."""

    sequence: int
    message_bytes_max: int = 0
    """The largest message that the peer takes; 0: as it said before."""


class DeliveryScope(Struct, frozen=True, array_like=True):
    """Which receivers at this peer a publication is for: the groups that picked it, and others."""

    groups: tuple[tuple[str, str], ...]
    hops: int
    """How often brokers without members of the group have passed it on."""
    is_only: bool
    """It is for the groups only: other subscribers get it with another frame."""
    archived: int = 0
    """Its sequence in its broker's archive, if a stream evaluates the clauses. 0: subscribers with
    a where-clause get it from this frame, too."""


class ForwardedPublication(Struct, frozen=True, array_like=True):
    """A message as it travels. Expiry in seconds left: clocks differ."""

    sequence: Number
    topic: bytes
    payload: bytes
    qos: Qos
    retain: bool
    properties: bytes
    expiry_seconds: Seconds | None
    origin: str
    stamp: Stamp
    scope: bytes = b""
    """An encoded DeliveryScope, or nothing."""


class ForwardedRun(NamedTuple):
    """Publications of one client, as the packets that brought them (codec/run.py)."""

    sequence: int
    """0: they are at QoS 0 and are not sent again. Otherwise all are at QoS 1."""
    version: int
    origin: str
    data: bytes

    def encoded(self) -> bytes:
        origin = self.origin.encode()
        head = self.sequence << 24 | self.version << 16 | len(origin)
        return head.to_bytes(_RUN_HEAD_BYTES) + origin + self.data

    @classmethod
    def decoded(cls, body: bytes) -> "ForwardedRun":
        head = int.from_bytes(body[:_RUN_HEAD_BYTES])
        sequence, version = head >> 24, head >> 16 & 0xFF
        data_at = _RUN_HEAD_BYTES + (head & 0xFFFF)
        if len(body) < data_at or sequence >= 1 << 63:
            raise PeerError("a run that is cut short")
        if version not in _VERSIONS:
            raise PeerError("publications of no MQTT version")
        try:
            origin = body[_RUN_HEAD_BYTES:data_at].decode()
        except UnicodeDecodeError as error:
            raise PeerError("publications of a client without a name") from error
        return cls(sequence, version, origin, body[data_at:])


def join_runs(frames: list[Frame]) -> list[Frame]:
    """Join neighbouring runs at QoS 0 of one client: together they cost as much as one."""
    if len(frames) < _FRAMES_JOINED_MIN:
        return frames
    joined: list[Frame] = []
    pieces: list[bytes] = []
    head = b""
    size = 0
    for kind, body in frames:
        if head and kind == RUN and body.startswith(head):
            size += len(body)
            if size <= RUNS_JOINED_BYTES_MAX:
                pieces.append(body[len(head) :])
                continue
        if len(pieces) > 1:
            joined[-1] = (RUN, b"".join(pieces))
        joined.append((kind, body))
        head = _unnumbered_head(body) if kind == RUN else b""
        pieces, size = [body], len(body)
    if len(pieces) > 1:
        joined[-1] = (RUN, b"".join(pieces))
    return joined


def _unnumbered_head(body: bytes) -> bytes:
    """Return what stands before the packets of a run; nothing if it has a number, or is short."""
    end = _RUN_HEAD_BYTES + int.from_bytes(body[_RUN_HEAD_BYTES - 2 : _RUN_HEAD_BYTES])
    return body[:end] if len(body) >= end and body.startswith(_NO_NUMBER) else b""


class RetainedRequest(Struct, frozen=True, array_like=True):
    """Asks for retained messages from this place on; 0: from the beginning."""

    place: int
    digest: int
    """A hash of the retained messages that the asking broker has."""


class RetainedPage(Struct, frozen=True, array_like=True):
    """Some retained messages. The next page begins at `place`; 0: there is none."""

    publications: list[ForwardedPublication]
    place: int


class ClaimRequest(Struct, frozen=True, array_like=True):
    """Asks for the session of a client that has connected."""

    client_id: ClientId
    stamp: Stamp
    user: str | None
    is_clean: bool
    unreachable: list[str] = []
    """Brokers that the asking broker does not reach."""


class ClaimReply(Struct, frozen=True, array_like=True):
    """Answers a claim: the verdict (roaming/claim.py), and what the sender knows of others."""

    client_id: ClientId
    stamp: Stamp
    verdict: int
    connection: Stamp = -1
    """A connection's stamp. NEWER: the later connection. MOVED: the connection that the session
    followed. NOTHING: the last connection whose session came here and ended, if others may not
    know that."""
    owner: str = ""
    """Where the session went before, if it may still be on its way."""
    is_void: bool = False
    """The client has started clean since: the rest of its session elsewhere is void."""
    is_settled: bool = True
    """Publications reach the client at the broker of the later connection. If False, that broker
    will claim the session, or send a reroute request."""
    ruled_out: list[str] = []
    """Brokers that are down or unreachable, and have no session either."""
    possible_holders: list[str] = []
    """Brokers that are down or unreachable, and may have a session."""
    reached: list[str] = []
    """Unreachable brokers that this one does reach."""
    contender: Stamp | None = None
    """The stamp of another user's connection that asks for the same client identifier here; -1:
    another user has a session with it."""


class WillCopy(Struct, frozen=True, array_like=True):
    """A client's will, if it has one; and the rest of its delay if the client is gone."""

    client_id: ClientId
    stamp: Stamp
    will: bytes | None
    left_seconds: Seconds | None
    user: str | None = None


class WillsUpdate(Struct, frozen=True, array_like=True):
    is_whole: bool
    """These wills replace all earlier ones."""
    wills: list[WillCopy]


encode, decoded = frame_body.encode, frame_body.decoded

versions_decoder = msgspec.msgpack.Decoder(ReplicaVersions)
sketch_part_decoder = msgspec.msgpack.Decoder(SketchPart)
group_update_decoder = msgspec.msgpack.Decoder(GroupUpdate)
scope_decoder = msgspec.msgpack.Decoder(DeliveryScope)
place_decoder = msgspec.msgpack.Decoder(int)
resume_decoder = msgspec.msgpack.Decoder(StreamResume)
ack_decoder = msgspec.msgpack.Decoder(StreamAck)
publication_decoder = msgspec.msgpack.Decoder(ForwardedPublication)
retained_request_decoder = msgspec.msgpack.Decoder(RetainedRequest)
retained_page_decoder = msgspec.msgpack.Decoder(RetainedPage)
claim_decoder = msgspec.msgpack.Decoder(ClaimRequest)
claimed_decoder = msgspec.msgpack.Decoder(ClaimReply)
wills_update_decoder = msgspec.msgpack.Decoder(WillsUpdate)


def to_publication(
    message: Message, now: float, sequence: int = 0, scope: bytes = b""
) -> ForwardedPublication:
    """Return a message as it travels to a peer."""
    left = None
    if message.expires_at is not None:
        left = min(max(message.expires_at - now, 0.0), SECONDS_MAX)  # clocks may be set back
    return ForwardedPublication(
        sequence,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        left,
        message.origin,
        message.stamp,
        scope,
    )


def expires_at_of(publication: ForwardedPublication, now: float) -> float | None:
    """Return when a publication expires, by our clock."""
    left = publication.expiry_seconds
    return None if left is None else now + left


def to_message(publication: ForwardedPublication, now: float) -> Message:
    """Return the message of a publication that has come."""
    return Message(
        publication.topic,
        publication.payload,
        publication.qos,
        publication.retain,
        publication.properties,
        expires_at_of(publication, now),
        publication.origin,
        publication.stamp,
    )
