"""Sketches and deltas as bytes: a versioned header, the bits, a checksum.

A reader trusts nothing: sizes are checked before anything is allocated, the checksum before
anything is believed, and what is refused is refused with what is wrong. Bits travel deflated when
that makes them smaller, as it does for a sketch that is far from full.
"""

import struct
import zlib
from typing import NamedTuple

import numpy as np

from dovetail.config import SKETCH_BITS_MAX, SKETCH_BYTES_MAX
from dovetail.errors import SketchError, SketchFormatError
from dovetail.topics.kernels.ledger import PAGE_WORDS
from dovetail.topics.sketches.base import Delta, Geometry, Sketch
from dovetail.topics.sketches.bloom import BfpSketch, BfSketch, PrefixSketch
from dovetail.topics.sketches.lines import LinesSketch

FORMAT_VERSION = 1

_MAGIC = b"DVTS"
_WHOLE, _DELTA = 1, 2
_PLAIN, _DEFLATED = 0, 1
CLASSES: dict[int, type[Sketch]] = {
    1: BfSketch,
    2: BfpSketch,
    3: PrefixSketch,
    4: LinesSketch,
}
_NUMBERS = {kind.method: number for number, kind in CLASSES.items()}

# magic, format; what, method, hashes, encoding; bits, seed, lineage, since, version, elements,
# pages; plain body, body, extra
_PREAMBLE = struct.Struct("<4sH")
_HEADER = struct.Struct("<4sHBBBBQQQQQQQQQQ")
_CHECKSUM = struct.Struct("<I")


class _Header(NamedTuple):
    magic: bytes
    format: int
    what: int
    method: int
    hashes: int
    encoding: int
    bits: int
    seed: int
    lineage: int
    since: int
    version: int
    elements: int
    pages: int
    plain_bytes: int
    body_bytes: int
    extra_bytes: int


def sketch_to_bytes(sketch: Sketch) -> bytes:
    """The sketch as peers get it, without the owner's counts."""
    return _pack(
        _WHOLE,
        sketch.geometry,
        lineage=sketch.lineage,
        since=0,
        version=sketch.version,
        elements=sketch.elements,
        pages=0,
        body=sketch.words.astype("<u8", copy=False).tobytes(),
        extra=sketch.extra(),
    )


def delta_to_bytes(delta: Delta) -> bytes:
    return _pack(
        _DELTA,
        delta.geometry,
        lineage=delta.lineage,
        since=delta.since,
        version=delta.version,
        elements=delta.elements,
        pages=len(delta.pages),
        body=delta.pages.astype("<u4").tobytes() + delta.words.astype("<u8").tobytes(),
        extra=delta.extra,
    )


def looks_like_sketch(beginning: bytes) -> bool:
    """Whether it is worth reading on."""
    return beginning.startswith(_MAGIC)


def sketch_from_bytes(data: bytes) -> Sketch:
    """A peer's copy, or a SketchFormatError."""
    header, body, extra = _unpack(data, _WHOLE, "sketch")
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


def delta_from_bytes(data: bytes) -> Delta:
    header, body, extra = _unpack(data, _DELTA, "delta")
    if len(body) < 4 * header.pages or (len(body) - 4 * header.pages) % 8:
        raise SketchFormatError(f"a delta of {header.pages:,} pages in {len(body):,} bytes")
    pages = np.frombuffer(body, "<u4", header.pages).astype(np.uint64)
    values = np.frombuffer(body, "<u8", offset=4 * header.pages).astype(np.uint64)
    geometry = Geometry(CLASSES[header.method].method, header.bits, header.hashes, header.seed)
    delta = Delta(
        geometry,
        header.lineage,
        header.since,
        header.version,
        header.elements,
        pages,
        values,
        extra,
    )
    try:
        delta.check()
    except SketchError as error:
        raise SketchFormatError(error.message) from None
    return delta


def _pack(
    what: int,
    geometry: Geometry,
    *,
    lineage: int,
    since: int,
    version: int,
    elements: int,
    pages: int,
    body: bytes,
    extra: bytes,
) -> bytes:
    encoding, packed = _PLAIN, body
    deflated = zlib.compress(body, 1)
    if len(deflated) < len(body):
        encoding, packed = _DEFLATED, deflated
    header = _Header(
        _MAGIC,
        FORMAT_VERSION,
        what,
        _NUMBERS[geometry.method],
        geometry.hashes,
        encoding,
        geometry.bits,
        geometry.seed,
        lineage,
        since,
        version,
        elements,
        pages,
        len(body),
        len(packed),
        len(extra),
    )
    content = _HEADER.pack(*header) + packed + extra
    return content + _CHECKSUM.pack(zlib.crc32(content))


def _unpack(data: bytes, what: int, noun: str) -> tuple[_Header, bytes, bytes]:
    header = _read_header(data, what, noun)
    whole = _HEADER.size + header.body_bytes + header.extra_bytes + _CHECKSUM.size
    if len(data) != whole:
        problem = "cut short" if len(data) < whole else "too long"
        raise SketchFormatError(f"the {noun} is {problem}: {len(data):,} bytes of {whole:,}")
    (checksum,) = _CHECKSUM.unpack_from(data, whole - _CHECKSUM.size)
    if checksum != zlib.crc32(memoryview(data)[: whole - _CHECKSUM.size]):
        raise SketchFormatError(f"the {noun} is damaged: its checksum does not fit its content")
    if header.method not in CLASSES:
        raise SketchFormatError(f"the {noun} is of a method this program does not know")
    if not 1 <= header.bits <= SKETCH_BITS_MAX:
        raise SketchFormatError(f"the {noun} claims {header.bits:,} bits")
    words = (header.bits + 63) // 64
    if header.plain_bytes > 8 * words + 4 * (words // PAGE_WORDS + 1):
        raise SketchFormatError(f"the {noun} claims more bytes than its {header.bits:,} bits have")
    body = bytes(data[_HEADER.size : _HEADER.size + header.body_bytes])
    extra = bytes(data[_HEADER.size + header.body_bytes : whole - _CHECKSUM.size])
    if header.encoding == _DEFLATED:
        body = _inflate(body, header.plain_bytes, noun)
    if header.encoding not in {_PLAIN, _DEFLATED} or len(body) != header.plain_bytes:
        raise SketchFormatError(f"the {noun}'s bits are not as long as its header says")
    return header, body, extra


def _read_header(data: bytes, what: int, noun: str) -> _Header:
    if len(data) > SKETCH_BYTES_MAX:
        raise SketchFormatError(f"{len(data):,} bytes are more than any {noun} has")
    if len(data) < _PREAMBLE.size:
        raise SketchFormatError(f"the {noun} is cut short: {len(data)} bytes are not even a header")
    magic, format_version = _PREAMBLE.unpack_from(data)
    if magic != _MAGIC:
        raise SketchFormatError(f"this is no {noun}: it does not begin with {_MAGIC.decode()}")
    if format_version != FORMAT_VERSION:
        raise SketchFormatError(
            f"the {noun} has format {format_version}; this program reads format {FORMAT_VERSION}"
        )
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise SketchFormatError(
            f"the {noun} is cut short: {len(data)} bytes are less than a header"
        )
    header = _Header(*_HEADER.unpack_from(data))
    if header.what != what:
        raise SketchFormatError(
            f"this is not a {noun} but {'a whole sketch' if what == _DELTA else 'a delta'}"
        )
    return header


def _inflate(body: bytes, plain_bytes: int, noun: str) -> bytes:
    """Never more than what the header announced, whatever the bytes would swell to."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, plain_bytes + 1)
    except zlib.error as error:
        raise SketchFormatError(f"the {noun}'s bits cannot be unpacked ({error})") from None
    if not inflater.eof or inflater.unused_data:
        raise SketchFormatError(f"the {noun}'s bits are not as long as its header says")
    return plain
