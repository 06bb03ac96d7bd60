"""Reads the attributes of a run of publications as numbers.

Numbers are read exactly as Python's `float` does: up to 15 digits, with or without a point, are
divided by a power of ten that a float holds exactly. Everything else is left to Python: more
digits, exponents, spaces, and what is no number.
"""

import numpy as np
import numpy.typing as npt

from dovetail.codec.kernels.rewrite import variable
from dovetail.compilation import inlined, kernel

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_USER_PROPERTY = 0x26
_PAYLOAD_FORMAT = 0x01
_DIGITS_MAX = 15


@inlined
def _number(data: Bytes, at: int, end: int) -> float:
    """Return the number that is written there, or NaN if it is left to Python."""
    sign = 1.0
    if at < end and (data[at] == 43 or data[at] == 45):
        if data[at] == 45:
            sign = -1.0
        at += 1
    if end - at > _DIGITS_MAX + 1:
        return np.nan
    whole = 0
    digits = 0
    divisor = 0.0
    while at < end:
        byte = data[at]
        if 48 <= byte <= 57:
            whole = whole * 10 + np.int64(byte) - 48
            digits += 1
            divisor *= 10.0
        elif byte == 46 and divisor == 0.0:
            divisor = 1.0
        else:
            return np.nan
        at += 1
    if digits == 0 or digits > _DIGITS_MAX:
        return np.nan
    if divisor == 0.0:
        divisor = 1.0
    return sign * (float(whole) / divisor)


@inlined
def _index_of(data: Bytes, at: int, end: int, names: Bytes, ends: Numbers) -> int:
    """Return which of the names stands there, or -1."""
    first = 0
    for index in range(len(ends)):
        size = ends[index] - first
        if size == end - at:
            same = True
            for i in range(size):
                if names[first + i] != data[at + i]:
                    same = False
                    break
            if same:
                return index
        first = ends[index]
    return -1


@kernel
def read_points(
    data: Bytes,
    version: int,
    qos: int,
    names: Bytes,
    name_ends: Numbers,
    dimensions: int,
    pairs_max: int,
    starts: Numbers,
    points: Floats,
    known: Bytes,
) -> bool:
    """Read the points of a run. Return False if Python has to read one of them.

    `names` are those of the dimensions and, behind them, of the texts. `starts` gets where each
    packet begins, and behind them the end of the last. `points` gets the values, NaN for those that
    are missing, and `known` whether there is any attribute.
    """
    at = 0
    row = 0
    starts[0] = 0
    while at < len(data):
        length, body = variable(data, at + 1)
        end = body + length
        for j in range(dimensions):
            points[row * dimensions + j] = np.nan
        known[row] = 0
        if version == 5:
            topic_end = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
            size, place = variable(data, topic_end + 2 if qos else topic_end)
            stop = place + size
            pairs = 0
            while place < stop:
                name = data[place]
                if name == _PAYLOAD_FORMAT:
                    place += 2
                    continue
                first = place + 3
                place = first + (int(data[place + 1]) << 8) + int(data[place + 2])
                if name != _USER_PROPERTY:
                    continue
                pairs += 1
                if pairs > pairs_max:
                    return False
                value_at = place + 2
                name_end = place
                place = value_at + (int(data[place]) << 8) + int(data[place + 1])
                index = _index_of(data, first, name_end, names, name_ends)
                if index < 0:
                    continue
                known[row] = 1
                if index < dimensions:
                    value = _number(data, value_at, place)
                    if np.isnan(value):
                        return False
                    points[row * dimensions + index] = value
        at = end
        row += 1
        starts[row] = at
    return True
