"""The frames between brokers and matchers: feeds, questions, loads and announcements. Pure.

    broker -> matcher    FEED              added and removed boxes, and the cover they complete
    matcher -> broker    FEED_REPLY        the last step taken, or that a step is missing
    broker -> matcher    QUESTION          points, brokers, and kinds of boxes
    matcher -> broker    ANSWER            counts and numbers of boxes, or "unsure"
    matcher -> broker    LOADS             how busy it is, for each space and dimension
    broker -> broker     ANNOUNCEMENT      version and kinds of the broker's boxes
    broker -> broker     ANNOUNCEMENT_ACK  the last announcement taken

Boxes, points and numbers are little-endian arrays in bytes. Every length has a bound. Code that
knows the space checks that lengths fit each other. A frame that cannot be read is a PeerError.
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

FEED, FEED_REPLY, QUESTION, ANSWER, LOADS, ANNOUNCEMENT, ANNOUNCEMENT_ACK = range(72, 79)

SPACES_MAX = 1_024
"""Spaces in one frame; settings have fewer."""

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


class FeedStep(Struct, frozen=True, array_like=True):
    """FEED: one step of a feed (feed.py)."""

    space: SpaceId
    life: Number
    epoch: Number
    sequence: Number
    version: Number | None
    """All boxes up to this version were sent; None: some are still to come."""
    cover: Annotated[list[RangeList], Meta(max_length=SPACE_DIMENSIONS_MAX)] | None
    """From now on the feed is complete for these values; None: as before."""
    numbers: _NumberBytes
    edges: _EdgeBytes
    """The lower borders of each box, then its upper ones."""
    dropped: _NumberBytes
    is_released: bool = False
    """A leaving matcher need not stay for this broker's boxes."""


class FeedReply(Struct, frozen=True, array_like=True):
    space: SpaceId
    life: Number
    epoch: Number
    sequence: Number
    """The last step that was taken of this epoch."""
    is_lost: bool = False
    """The step does not follow the last one, or the matcher knows a later life (`life`)."""
    is_unknown: bool = False
    """The matcher does not have this space and wants no boxes of it."""


class BrokerVersion(Struct, frozen=True, array_like=True):
    """A broker that a question is about, and the version of its boxes that the asker knows."""

    broker: Name
    life: Number
    version: Number


class MatcherQuestion(Struct, frozen=True, array_like=True):
    number: Number
    space: SpaceId
    dimension: Dimension
    kinds: KindList
    brokers: Annotated[list[BrokerVersion], Meta(max_length=CLUSTER_NODES_MAX)]
    points: _PointBytes
    is_listing: bool = False
    """The answer shall have the numbers of the boxes, not only their counts."""


class MatcherAnswer(Struct, frozen=True, array_like=True):
    """ANSWER: counts by point and broker, and the boxes' numbers in that order if asked for."""

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


class LoadsMessage(Struct, frozen=True, array_like=True):
    rows: Annotated[list[LoadRow], Meta(max_length=SPACES_MAX)]


class SpaceAnnouncement(Struct, frozen=True, array_like=True):
    space: SpaceId
    version: Number
    kinds: KindList


class Announcement(Struct, frozen=True, array_like=True):
    """ANNOUNCEMENT: all spaces of a broker. `number` rises with every change of one of them."""

    life: Number
    number: Number
    rows: Annotated[list[SpaceAnnouncement], Meta(max_length=SPACES_MAX)]


class AnnouncementAck(Struct, frozen=True, array_like=True):
    life: Number
    number: Number


encode, decoded = frame_body.encode, frame_body.decoded

feed_decoder = msgspec.msgpack.Decoder(FeedStep)
feed_reply_decoder = msgspec.msgpack.Decoder(FeedReply)
question_decoder = msgspec.msgpack.Decoder(MatcherQuestion)
answer_decoder = msgspec.msgpack.Decoder(MatcherAnswer)
loads_decoder = msgspec.msgpack.Decoder(LoadsMessage)
announcement_decoder = msgspec.msgpack.Decoder(Announcement)
announcement_ack_decoder = msgspec.msgpack.Decoder(AnnouncementAck)


def floats_of(data: bytes, columns: int) -> npt.NDArray[np.float64]:
    """Return the bytes as rows of `columns` floats."""
    if len(data) % (8 * columns):
        raise PeerError(f"{len(data)} bytes are no rows of {columns} numbers")
    return np.frombuffer(data, "<f8").reshape(-1, columns)


def numbers_of(data: bytes) -> npt.NDArray[np.uint32]:
    if len(data) % 4:
        raise PeerError(f"{len(data)} bytes are no 32-bit numbers")
    return np.frombuffer(data, "<u4")
