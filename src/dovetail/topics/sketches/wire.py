"""Encode whole sketches: a versioned header, the bits, a checksum. Deltas are in delta_wire.py.

A reader trusts nothing: it checks sizes before it allocates, and the checksum before it uses
anything. An error says what is wrong. Bits are deflated when that makes them smaller: a sketch with
room left has more zeros than ones.
"""

import struct
import zlib
from typing import NamedTuple

import numpy as np

from dovetail.errors import SketchError, SketchFormatError
from dovetail.topics.limits import SKETCH_BITS_MAX, SKETCH_BYTES_MAX
from dovetail.topics.sketches.base import Sketch
from dovetail.topics.sketches.bloom import BfpSketch, BfSketch, PrefixSketch
from dovetail.topics.sketches.lines import LinesSketch

FORMAT_VERSION = 3

_MAGIC = b"DVTS"
_PLAIN, _DEFLATED = 0, 1
CLASSES: dict[int, type[Sketch]] = {
    1: BfSketch,
    2: BfpSketch,
    3: PrefixSketch,
    4: LinesSketch,
}
_NUMBERS = {kind.method: number for number, kind in CLASSES.items()}

# magic, format; method, hashes, encoding; bits, seed, lineage, version, elements; plain body, body,
# extra
_PREAMBLE = struct.Struct("<4sH")
_HEADER = struct.Struct("<4sHBBBQQQQQQQQ")
_CHECKSUM = struct.Struct("<I")


class _Header(NamedTuple):
    magic: bytes
    format: int
    method: int
    hashes: int
    encoding: int
    bits: int
    seed: int
    lineage: int
    version: int
    elements: int
    plain_bytes: int
    body_bytes: int
    extra_bytes: int


def sketch_to_bytes(sketch: Sketch) -> bytes:
    """Return the sketch as peers get it, without the owner's counts."""
    body = sketch.words.astype("<u8", copy=False).tobytes()
    extra = sketch.extra()
    encoding, packed = _PLAIN, body
    deflated = _deflate(body)
    if len(deflated) < len(body):
        encoding, packed = _DEFLATED, deflated
    header = _Header(
        _MAGIC,
        FORMAT_VERSION,
        _NUMBERS[sketch.geometry.method],
        sketch.geometry.hashes,
        encoding,
        sketch.geometry.bits,
        sketch.geometry.seed,
        sketch.lineage,
        sketch.version,
        sketch.elements,
        len(body),
        len(packed),
        len(extra),
    )
    content = b"".join((_HEADER.pack(*header), packed, extra))
    return content + _CHECKSUM.pack(zlib.crc32(content))


def looks_like_sketch(beginning: bytes) -> bool:
    """Do these first bytes of a file belong to a sketch?"""
    return beginning.startswith(_MAGIC)


def sketch_from_bytes(data: bytes) -> Sketch:
    """Return a peer's copy, or raise a SketchFormatError."""
    header, body, extra = _unpack(data)
    words = (header.bits + 63) // 64
    if len(body) != 8 * words:
        raise SketchFormatError(f"{len(body):,} bytes of bits, where {8 * words:,} belong")
    try:
        sketch = CLASSES[header.method](
            header.bits,
            header.hashes,
            seed=header.seed,
            lineage=header.lineage,
            counting=False,
        )
        arrived = np.frombuffer(body, "<u8").astype(np.uint64)
        sketch.restore(arrived, header.version, header.elements, extra)
    except SketchError as error:
        raise SketchFormatError(f"no such sketch: {error.message}") from None
    return sketch


def _unpack(data: bytes) -> tuple[_Header, bytes, bytes]:
    header = _read_header(data)
    whole = _HEADER.size + header.body_bytes + header.extra_bytes + _CHECKSUM.size
    if len(data) != whole:
        problem = "cut short" if len(data) < whole else "too long"
        raise SketchFormatError(f"the sketch is {problem}: {len(data):,} bytes of {whole:,}")
    (checksum,) = _CHECKSUM.unpack_from(data, whole - _CHECKSUM.size)
    if checksum != zlib.crc32(memoryview(data)[: whole - _CHECKSUM.size]):
        raise SketchFormatError("the sketch is damaged: its checksum does not fit its content")
    if header.method not in CLASSES:
        raise SketchFormatError("the sketch is of a method this program does not know")
    if not 1 <= header.bits <= SKETCH_BITS_MAX:
        raise SketchFormatError(f"the sketch claims {header.bits:,} bits")
    words = (header.bits + 63) // 64
    if header.plain_bytes > 8 * words:
        raise SketchFormatError(f"the sketch claims more bytes than its {header.bits:,} bits have")
    body = bytes(data[_HEADER.size : _HEADER.size + header.body_bytes])
    extra = bytes(data[_HEADER.size + header.body_bytes : whole - _CHECKSUM.size])
    if header.encoding == _DEFLATED:
        body = _inflate(body, header.plain_bytes)
    if header.encoding not in {_PLAIN, _DEFLATED} or len(body) != header.plain_bytes:
        raise SketchFormatError("the sketch's bits are not as long as its header says")
    return header, body, extra


def _read_header(data: bytes) -> _Header:
    if len(data) > SKETCH_BYTES_MAX:
        raise SketchFormatError(f"{len(data):,} bytes are more than any sketch has")
    if len(data) < _PREAMBLE.size:
        raise SketchFormatError(f"the sketch is cut short: {len(data)} bytes are not even a header")
    magic, format_version = _PREAMBLE.unpack_from(data)
    if magic != _MAGIC:
        raise SketchFormatError(f"this is no sketch: it does not begin with {_MAGIC.decode()}")
    if format_version != FORMAT_VERSION:
        raise SketchFormatError(
            f"the sketch has format {format_version}; this program reads format {FORMAT_VERSION}"
        )
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise SketchFormatError(
            f"the sketch is cut short: {len(data)} bytes are less than a header"
        )
    return _Header(*_HEADER.unpack_from(data))


def _deflate(body: bytes) -> bytes:
    """Deflate bits: they have no words that repeat, only runs of zeros."""
    deflater = zlib.compressobj(1, strategy=zlib.Z_RLE)
    return deflater.compress(body) + deflater.flush()


def _inflate(body: bytes, plain_bytes: int) -> bytes:
    """Inflate bits, but never to more bytes than the header announced."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, plain_bytes + 1)
    except zlib.error as error:
        raise SketchFormatError(f"the sketch's bits cannot be unpacked ({error})") from None
    if not inflater.eof or inflater.unused_data:
        raise SketchFormatError("the sketch's bits are not as long as its header says")
    return plain
