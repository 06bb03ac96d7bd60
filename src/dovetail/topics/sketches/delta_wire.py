"""Encode deltas as bytes: a few numbers, and for each element its line.

    method, lines or bits; lineage, version, versions back; elements, how many came, how many went
    lines   of both lists: steps from line to line, three bytes that choose the bits in the line;
            for elements that went also a byte: which of their bits are empty now
    others  the keys, and masks of eight bytes
    extra   data of the method beside its bits

Numbers are seven bits a byte, the lowest first. An element of the lines method is six bytes or
fewer: with many in one delta the steps are short. A reader knows the geometry from the whole sketch
that a delta continues, and refuses a delta to another one, or a line that does not exist. A delta
has no checksum of its own, because connections protect their bytes.
"""

import numpy as np
import numpy.typing as npt

from dovetail.errors import SketchError, SketchFormatError
from dovetail.topics.kernels.ledger import IN_LINES
from dovetail.topics.kernels.lines import LINE_BITS
from dovetail.topics.sketches.base import Geometry, SketchDelta
from dovetail.topics.sketches.wire import CLASSES

Words = npt.NDArray[np.uint64]

_METHODS = {kind.method: number for number, kind in CLASSES.items()}
_NUMBER_BYTES_MAX = 10
_NUMBER_MAX = 2**64 - 1
_TAG_BYTES = 3
_STEP_BYTES_MAX = 4
_KEY_BYTES = 8


def delta_to_bytes(delta: SketchDelta) -> bytes:
    numbers = (
        _size(delta.geometry),
        delta.lineage,
        delta.version,
        delta.version - delta.since,
        delta.elements,
        len(delta.present),
        len(delta.gone),
    )
    parts = [bytes([_METHODS[delta.geometry.method]])]
    parts += [_number_to_bytes(number) for number in numbers]
    if delta.geometry.hashes == IN_LINES:
        lines = delta.geometry.bits // LINE_BITS
        parts += [
            _places_to_bytes(delta.present, lines),
            _places_to_bytes(delta.gone, lines),
            delta.cleared.astype(np.uint8).tobytes(),
        ]
    else:
        parts += [
            keys.astype("<u8").tobytes() for keys in (delta.present, delta.gone, delta.cleared)
        ]
    return b"".join((*parts, delta.extra))


def delta_from_bytes(data: bytes, geometry: Geometry) -> SketchDelta:
    """Return a delta to a sketch of this geometry.

    A SketchError if it belongs to another geometry, a SketchFormatError if it is malformed.
    """
    reader = _DeltaReader(data)
    method, size = reader.take(1)[0], reader.number()
    if method not in CLASSES:
        raise SketchFormatError("the delta is of a method this program does not know")
    if (method, size) != (_METHODS[geometry.method], _size(geometry)):
        raise SketchError(f"the delta is to another sketch than {geometry}")
    lineage, version, back, elements, came, went = (reader.number() for _ in range(6))
    if back > version:
        raise SketchFormatError(f"the delta goes back {back:,} versions from {version:,}")
    if geometry.hashes == IN_LINES:
        lines = geometry.bits // LINE_BITS
        present = reader.places(came, lines)
        gone = reader.places(went, lines)
        cleared = np.frombuffer(reader.take(went), np.uint8).astype(np.uint64)
    else:
        present, gone, cleared = (
            np.frombuffer(reader.take(_KEY_BYTES * count), "<u8").astype(np.uint64)
            for count in (came, went, went)
        )
    return SketchDelta(
        geometry, lineage, version - back, version, elements, present, gone, cleared, reader.rest()
    )


def _size(geometry: Geometry) -> int:
    return geometry.bits // LINE_BITS if geometry.hashes == IN_LINES else geometry.bits


def _number_to_bytes(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _places_to_bytes(keys: Words, lines: int) -> bytes:
    """Encode keys in ascending order, so their lines ascend too."""
    if not len(keys):
        return b""
    # As `scale` in kernels/hashing.py.
    places = (keys >> np.uint64(32)) * np.uint64(lines) >> np.uint64(32)
    steps = np.diff(places, prepend=np.uint64(0))
    width = max((int(steps.max()).bit_length() + 7) // 8, 1)
    return b"".join((bytes([width]), _low_bytes(steps, width), _low_bytes(keys, _TAG_BYTES)))


def _low_bytes(numbers: Words, width: int) -> bytes:
    digits = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    return digits[:, :width].tobytes()


class _DeltaReader:
    """Reads the fields of a delta from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise SketchFormatError("the delta is cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def number(self) -> int:
        number = 0
        for place in range(_NUMBER_BYTES_MAX):
            digit = self.take(1)[0]
            number |= (digit & 0x7F) << (7 * place)
            if digit <= 0x7F:
                break
        else:
            raise SketchFormatError("the delta has a number without an end")
        if number > _NUMBER_MAX:
            raise SketchFormatError(f"the delta has a number of {number.bit_length()} bits")
        return number

    def places(self, count: int, lines: int) -> Words:
        if not count:
            return np.zeros(0, np.uint64)
        width = self.take(1)[0]
        if not 1 <= width <= _STEP_BYTES_MAX:
            raise SketchFormatError(f"the delta has steps of {width} bytes")
        places = np.cumsum(self._numbers(count, width), dtype=np.uint64)
        if int(places[-1]) >= lines:
            raise SketchFormatError(f"the delta has line {int(places[-1]):,} of {lines:,}")
        # The lowest key in this line.
        halves = ((places << np.uint64(32)) + np.uint64(lines - 1)) // np.uint64(lines)
        return (halves << np.uint64(32)) | self._numbers(count, _TAG_BYTES)

    def _numbers(self, count: int, width: int) -> Words:
        digits = np.frombuffer(self.take(count * width), np.uint8).reshape(count, width)
        numbers = np.zeros((count, 8), np.uint8)
        numbers[:, :width] = digits
        return numbers.view("<u8").reshape(count).astype(np.uint64)
