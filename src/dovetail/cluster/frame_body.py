"""Encodes and decodes the bodies of frames as MessagePack. Pure.

The module that handles a kind of frame has its struct, with bounds, and a decoder of it.
"""

from typing import TypeVar

import msgspec

from dovetail.errors import PeerError

Body = TypeVar("Body")

encode = msgspec.msgpack.Encoder().encode


def decoded(decoder: msgspec.msgpack.Decoder[Body], body: bytes) -> Body:
    """Decode a frame's body. A PeerError if it cannot be read."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerError(f"a frame that cannot be read: {error}") from error
