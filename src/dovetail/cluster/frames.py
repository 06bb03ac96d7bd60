"""Frames between nodes: four bytes of length, one of kind, and a body of that length. Pure.

Rules:

- A length is checked as soon as its header is there, before memory of that size is allocated.
- Only the received bytes of an unfinished frame are kept. Every byte is copied a few times at most,
  however a stream is cut into reads.
- Kinds below `KIND_FIRST` belong to the links. The others belong to the users of links.
"""

from struct import Struct

from dovetail.errors import PeerError

_HEADER = Struct(">IB")
HEADER_BYTES = _HEADER.size

HELLO = 1
PROOF = 2
REFUSAL = 3
PING = 4
PONG = 5

KIND_FIRST = 16
KIND_LAST = 255

Frame = tuple[int, bytes]
"""A kind and a body."""


def encode(kind: int, body: bytes) -> bytes:
    return _HEADER.pack(len(body), kind) + body


def header(kind: int, body_bytes: int) -> bytes:
    """Return the header alone, for a body that is too large to be copied."""
    return _HEADER.pack(body_bytes, kind)


class FrameReader:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_missing", "_partial", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max` counts headers too, and may be changed between frames."""
        self.frame_bytes_max = frame_bytes_max
        self._partial = bytearray()
        self._missing = 0  # bytes until the header or the frame is complete

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept of an unfinished frame."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that end in `data`.

        After a PeerError the stream cannot be read any further. Frames that ended in the same
        `data` are lost with it.
        """
        if len(data) < self._missing:
            self._partial += data
            self._missing -= len(data)
            return []
        if self._partial:
            self._partial += data
            data = bytes(self._partial)
            self._partial.clear()
        frames: list[Frame] = []
        unpack = _HEADER.unpack_from
        body_bytes_max = self.frame_bytes_max - HEADER_BYTES
        at, end = 0, len(data)
        self._missing = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            length, kind = unpack(data, at)
            if length > body_bytes_max:
                raise PeerError(
                    f"a frame of {length + HEADER_BYTES:,} bytes was announced; "
                    f"{self.frame_bytes_max:,} are taken here"
                )
            body_at = at + HEADER_BYTES
            if length > end - body_at:
                self._missing = HEADER_BYTES + length
                break
            at = body_at + length
            frames.append((kind, data[body_at:at]))
        if at < end:
            self._partial += data[at:]
            self._missing -= end - at
        return frames
