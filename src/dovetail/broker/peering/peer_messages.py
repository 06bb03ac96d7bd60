"""What brokers say to each other, as frames: kinds, and their bodies in msgpack. Pure.

Who sends which, and when, is drawn in sketch_exchange.py and mesh.py. What cannot be read is a
PeerError: the fault of whoever sent it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dovetail.broker.peering.limits import LINEAGE_MAX, SECONDS_MAX, STAMP_MAX
from dovetail.cluster import frame_body
from dovetail.errors import PeerError
from dovetail.messages import Message

WHOLE, DELTA, KNOWN, LOST, MORE = range(16, 21)
GROUPS, GROUPS_KNOWN, GROUPS_LOST = range(24, 27)
RESUME, HEARD, PLAIN, MESSAGE, WANT, PAGE = range(32, 38)
CLAIM, CLAIMED = 56, 57
WILLS = 58

Stamp = Annotated[int, Meta(ge=-1, lt=STAMP_MAX)]
"""Of stamps.py; -1: of no connection."""

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""What a database has room for."""

_LINEAGE_STEP_MAX = 1 << 20

ClientId = Annotated[str, Meta(min_length=1)]
Qos = Annotated[int, Meta(ge=0, le=2)]
UnixSeconds = Annotated[float, Meta(ge=0, le=1 << 40)]
"""No times that an integer would have no room for, or that are none."""

Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
"""Left of an expiry, or of a delay."""


class CopiedFolderError(PeerError):
    """A peer numbers its publications as another broker does: of whose data it has a copy."""


class Known(Struct, frozen=True, array_like=True):
    """What a peer has of our sketch, and how far its own has come."""

    lineage: int
    version: int
    own_lineage: int
    own_version: int

    @property
    def own_state(self) -> tuple[int, int]:
        return self.own_lineage, self.own_version

    def outlived(self, lineage: int, version: int) -> int:
        """The lineage to go on with, if ours has come so far.

        It is another one if the peer knows a later life of us: our clock went back, and the disk
        was lost. What we have to tell would be old to it for ever.
        """
        if (self.lineage, self.version) <= (lineage, version):
            return lineage
        if self.lineage > max(lineage, LINEAGE_MAX) + _LINEAGE_STEP_MAX:
            raise PeerError("a life of ours that there was not")
        return self.lineage + 1


class Part(Struct, frozen=True, array_like=True):
    """Of a whole sketch in bytes."""

    place: int
    bytes_in_all: int
    data: bytes


class GroupRow(Struct, frozen=True, array_like=True):
    """How many members of a group there are at a broker; none of either kind: it has gone."""

    name: str
    filter: str
    connected: Annotated[int, Meta(ge=0)]
    kept: Annotated[int, Meta(ge=0)]


class GroupRows(Struct, frozen=True, array_like=True):
    """What changed of a broker's groups since a version of them; -1: all that there are."""

    lineage: int
    since: int
    version: int
    rows: list[GroupRow]


class Resume(Struct, frozen=True, array_like=True):
    """Who numbers the publications that follow: one data folder, through all its lives."""

    stream: Number
    is_incomplete: bool
    """Some that were owed have been dropped."""


class Heard(Struct, frozen=True, array_like=True):
    sequence: int
    message_bytes_max: int = 0
    """What the peer takes in one piece; 0: as it said before."""


class Mark(Struct, frozen=True, array_like=True):
    """Groups that a publication is for besides who subscribed to it: this broker was picked."""

    groups: tuple[tuple[str, str], ...]
    hops: int
    """How often it was passed on by one that had no members any more."""
    is_only: bool
    """It is for the groups only: who subscribed without one has got it, or will."""
    archived: int = 0
    """Its sequence in its broker's archive, where a stream looks at clauses; 0: it is for who
    wants it by a clause, too."""


class Publication(Struct, frozen=True, array_like=True):
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
    mark: bytes = b""
    """A Mark, if there is one."""


class Want(Struct, frozen=True, array_like=True):
    """Retained messages from this place on; 0: a new walk through all of them."""

    place: int
    digest: int
    """Of those that are there already."""


class Page(Struct, frozen=True, array_like=True):
    """Some retained messages. `place`: where the next page begins; 0: there is none."""

    publications: list[Publication]
    place: int


class ClaimBody(Struct, frozen=True, array_like=True):
    """A client has connected: where is its session?"""

    client_id: ClientId
    stamp: Stamp
    user: str | None
    is_clean: bool
    missed: list[str] = []
    """Brokers that who asks does not reach."""


class ClaimedBody(Struct, frozen=True, array_like=True):
    client_id: ClientId
    stamp: Stamp
    verdict: int
    connection: Stamp = -1
    """A connection's stamp. NEWER: of the later one. MOVED: of the one that the session followed.
    NOTHING: of the last one whose session came here and has ended, if that is news to others."""
    owner: str = ""
    """Where the session went before, if it may still be on its way."""
    is_void: bool = False
    """The client has started clean since: what is left of it elsewhere is for nobody."""
    is_settled: bool = True
    """What is published reaches the client where it has the later connection. Or else who asks will
    be asked for its session, or told."""
    innocent: list[str] = []
    """Brokers that are down, or missed, and have nothing either."""
    suspects: list[str] = []
    """Brokers that are down, or missed, and may have something."""
    reached: list[str] = []
    """Of the missed ones those that we reach."""
    contender: Stamp | None = None
    """The stamp of another user's connection that asks for the same client identifier here; -1:
    another user has a session with it."""


class KeptWill(Struct, frozen=True, array_like=True):
    """Of a client: its will, if it has one, and what is left of its delay if it is gone."""

    client_id: ClientId
    stamp: Stamp
    will: bytes | None
    left_seconds: Seconds | None
    user: str | None = None


class WillsBody(Struct, frozen=True, array_like=True):
    is_whole: bool
    """What was told before is void."""
    wills: list[KeptWill]


encode, decoded = frame_body.encode, frame_body.decoded

known_decoder = msgspec.msgpack.Decoder(Known)
part_decoder = msgspec.msgpack.Decoder(Part)
group_rows_decoder = msgspec.msgpack.Decoder(GroupRows)
mark_decoder = msgspec.msgpack.Decoder(Mark)
place_decoder = msgspec.msgpack.Decoder(int)
resume_decoder = msgspec.msgpack.Decoder(Resume)
heard_decoder = msgspec.msgpack.Decoder(Heard)
publication_decoder = msgspec.msgpack.Decoder(Publication)
want_decoder = msgspec.msgpack.Decoder(Want)
page_decoder = msgspec.msgpack.Decoder(Page)
claim_decoder = msgspec.msgpack.Decoder(ClaimBody)
claimed_decoder = msgspec.msgpack.Decoder(ClaimedBody)
wills_decoder = msgspec.msgpack.Decoder(WillsBody)


def publication_of(
    message: Message, now: float, sequence: int = 0, mark: bytes = b""
) -> Publication:
    """A message as it leaves."""
    left = None
    if message.expires_at is not None:
        left = min(max(message.expires_at - now, 0.0), SECONDS_MAX)  # clocks may be set back
    return Publication(
        sequence,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        left,
        message.origin,
        message.stamp,
        mark,
    )


def expires_at_of(publication: Publication, now: float) -> float | None:
    """When it does, by the clock of who gets it."""
    left = publication.expiry_seconds
    return None if left is None else now + left


def message_of(publication: Publication, now: float) -> Message:
    """And as it arrives."""
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
