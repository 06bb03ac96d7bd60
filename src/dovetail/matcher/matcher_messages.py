"""What brokers and matchers say to each other about boxes, as frames. Pure.

    broker -> matcher    FEED       boxes that came or went, and for which values that is all
    matcher -> broker    TAKEN      how far a feed was taken, or that some of it is missing
    broker -> matcher    ASKED      points, and about whose boxes of which kinds
    matcher -> broker    ANSWERED   numbers of boxes, or "unsure"
    matcher -> broker    LOADS      how busy it is, for each space and dimension
    broker -> broker     BOXES      how far our boxes have come, and which kinds there are
    broker -> broker     BOXES_KNOWN

Boxes, points and numbers are arrays in bytes, little-endian. Every length has a bound, and those
that belong together are compared by who knows the space. What cannot be read is a PeerError.
"""

from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from dovetail.cluster import frame_body
from dovetail.errors import PeerError
from dovetail.limits import (
    ATTRIBUTE_NAME_CHARACTERS_MAX,
    CLUSTER_NODES_MAX,
    NODE_NAME_BYTES_MAX,
    SPACE_DIMENSIONS_MAX,
)
from dovetail.matcher.limits import (
    ANSWER_NUMBERS_MAX,
    BOX_KINDS_MAX,
    FEED_FRAME_BOXES_MAX,
    FEED_RANGES_MAX,
    QUESTION_POINTS_MAX,
)

FEED, TAKEN, ASKED, ANSWERED, LOADS, BOXES, BOXES_KNOWN = range(72, 79)

SPACES_MAX = 1_024
"""That one frame is about; settings have fewer."""

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
SpaceId = Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_NAME_CHARACTERS_MAX + 17)]
Name = Annotated[str, Meta(min_length=1, max_length=NODE_NAME_BYTES_MAX)]
Kind = Annotated[int, Meta(ge=0, lt=1 << SPACE_DIMENSIONS_MAX)]
KindList = Annotated[list[Kind], Meta(max_length=BOX_KINDS_MAX)]
Dimension = Annotated[int, Meta(ge=0, lt=SPACE_DIMENSIONS_MAX)]
RangeList = Annotated[list[tuple[float, float]], Meta(max_length=FEED_RANGES_MAX)]

_NumberBytes = Annotated[bytes, Meta(max_length=4 * FEED_FRAME_BOXES_MAX)]
_EdgeBytes = Annotated[bytes, Meta(max_length=16 * SPACE_DIMENSIONS_MAX * FEED_FRAME_BOXES_MAX)]
_PointBytes = Annotated[bytes, Meta(max_length=8 * SPACE_DIMENSIONS_MAX * QUESTION_POINTS_MAX)]


class FeedBody(Struct, frozen=True, array_like=True):
    """A step of a feed: feed.py draws it."""

    space: SpaceId
    life: Number
    epoch: Number
    sequence: Number
    version: Number | None
    """Everything up to this version has come; None: some of it is still to come."""
    cover: Annotated[list[RangeList], Meta(max_length=SPACE_DIMENSIONS_MAX)] | None
    """From now on, the feed is complete here; None: as before."""
    numbers: _NumberBytes
    edges: _EdgeBytes
    """Of each box its lower borders, then its upper ones."""
    dropped: _NumberBytes
    is_released: bool = False
    """A matcher that leaves need not stay for this broker's boxes."""


class TakenBody(Struct, frozen=True, array_like=True):
    space: SpaceId
    life: Number
    epoch: Number
    sequence: Number
    """The last one that was taken of this epoch."""
    is_lost: bool = False
    """It does not follow on what is here; or the matcher knows a later life (`life`)."""
    is_unknown: bool = False
    """No such space here: nothing of it is wanted."""


class Subject(Struct, frozen=True, array_like=True):
    """A broker whose boxes are asked about, and how far they have come as far as is known."""

    broker: Name
    life: Number
    version: Number


class AskedBody(Struct, frozen=True, array_like=True):
    number: Number
    space: SpaceId
    dimension: Dimension
    kinds: KindList
    subjects: Annotated[list[Subject], Meta(max_length=CLUSTER_NODES_MAX)]
    points: _PointBytes
    is_listing: bool = False
    """Which boxes they are is asked, too, and not only how many."""


class AnsweredBody(Struct, frozen=True, array_like=True):
    """Counts: for each point, of each subject; and numbers in the same order, if they are asked."""

    number: Number
    counts: Annotated[bytes, Meta(max_length=4 * QUESTION_POINTS_MAX * CLUSTER_NODES_MAX)]
    numbers: Annotated[bytes, Meta(max_length=4 * ANSWER_NUMBERS_MAX)]


class LoadRow(Struct, frozen=True, array_like=True):
    space: SpaceId
    dimension: Dimension
    queue: Number
    arrival_rate: Annotated[float, Meta(ge=0)]
    matching_rate: Annotated[float, Meta(ge=0)]
    boxes: Number


class LoadsBody(Struct, frozen=True, array_like=True):
    rows: Annotated[list[LoadRow], Meta(max_length=SPACES_MAX)]


class BoxesRow(Struct, frozen=True, array_like=True):
    space: SpaceId
    version: Number
    kinds: KindList


class BoxesBody(Struct, frozen=True, array_like=True):
    """All spaces of a broker: it rises by `number` with every change of one of them."""

    life: Number
    number: Number
    rows: Annotated[list[BoxesRow], Meta(max_length=SPACES_MAX)]


class BoxesKnownBody(Struct, frozen=True, array_like=True):
    life: Number
    number: Number


encode, decoded = frame_body.encode, frame_body.decoded

feed_decoder = msgspec.msgpack.Decoder(FeedBody)
taken_decoder = msgspec.msgpack.Decoder(TakenBody)
asked_decoder = msgspec.msgpack.Decoder(AskedBody)
answered_decoder = msgspec.msgpack.Decoder(AnsweredBody)
loads_decoder = msgspec.msgpack.Decoder(LoadsBody)
boxes_decoder = msgspec.msgpack.Decoder(BoxesBody)
boxes_known_decoder = msgspec.msgpack.Decoder(BoxesKnownBody)


def floats_of(data: bytes, columns: int) -> npt.NDArray[np.float64]:
    """Rows of so many numbers."""
    if len(data) % (8 * columns):
        raise PeerError(f"{len(data)} bytes are no rows of {columns} numbers")
    return np.frombuffer(data, "<f8").reshape(-1, columns)


def numbers_of(data: bytes) -> npt.NDArray[np.uint32]:
    if len(data) % 4:
        raise PeerError(f"{len(data)} bytes are no 32-bit numbers")
    return np.frombuffer(data, "<u4")
