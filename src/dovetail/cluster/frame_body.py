"""What is in a frame, to and from bytes: MessagePack, and an error for what cannot be read. Pure.

Each kind of frame has its struct, with bounds, and a decoder of it, where it is understood.
"""

from typing import TypeVar

import msgspec

from dovetail.errors import PeerError

Body = TypeVar("Body")

encode = msgspec.msgpack.Encoder().encode


def decoded(decoder: msgspec.msgpack.Decoder[Body], body: bytes) -> Body:
    """A frame's body, or a PeerError."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerError(f"a frame that cannot be read: {error}") from error
