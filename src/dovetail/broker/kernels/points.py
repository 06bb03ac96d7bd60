"""Reads the attributes of a run of publications as numbers: user properties, and JSON fields.

Numbers are read exactly as Python's `float` does: up to 15 digits, with or without a point, are
divided by a power of ten that a float holds exactly. Everything else is left to Python: more
digits, exponents, spaces, and what is no number.

A payload is read if it is a flat JSON object of ASCII characters without escapes. Python reads all
others, and those that are no JSON: nested ones, an attribute that comes twice.
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


@inlined
def _skip_space(data: Bytes, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or 9 <= data[at] <= 10 or data[at] == 13):
        at += 1
    return at


@inlined
def _string_end(data: Bytes, at: int, end: int) -> int:
    """Return where the string that begins there has its closing quote, or -1."""
    while at < end:
        byte = data[at]
        if byte == 34:
            return at
        if byte < 32 or byte > 126 or byte == 92:
            return -1
        at += 1
    return -1


@inlined
def _digits_end(data: Bytes, at: int, end: int) -> int:
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at


@inlined
def _json_number_end(data: Bytes, at: int, end: int) -> int:
    """Return where the JSON number without exponent that begins there ends, or -1."""
    if data[at] == 45:
        at += 1
    first = at
    at = _digits_end(data, at, end)
    if at == first or (at - first > 1 and data[first] == 48):
        return -1
    if at < end and data[at] == 46:
        first = at + 1
        at = _digits_end(data, first, end)
        if at == first:
            return -1
    return at


@inlined
def _word_end(data: Bytes, at: int, end: int) -> int:
    """Return where the word `true`, `false` or `null` that begins there ends, or -1."""
    if end - at >= 4:
        if data[at] == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
            return at + 4
        if data[at] == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
            return at + 4
    if (
        end - at >= 5
        and data[at] == 102
        and data[at + 1] == 97
        and data[at + 2] == 108
        and data[at + 3] == 115
        and data[at + 4] == 101
    ):
        return at + 5
    return -1


@kernel
def _read_fields(
    data: Bytes,
    at: int,
    end: int,
    names: Bytes,
    name_ends: Numbers,
    dimensions: int,
    values: Floats,
) -> int:
    """Read the fields of a JSON payload. Return how many are attributes, or -1 if Python has to."""
    at = _skip_space(data, at, end)
    if at == end or data[at] != 123:
        return -1
    at = _skip_space(data, at + 1, end)
    found = 0
    seen = 0
    if at < end and data[at] == 125:
        return 0 if _skip_space(data, at + 1, end) == end else -1
    while True:
        if at >= end or data[at] != 34:
            return -1
        first = at + 1
        stop = _string_end(data, first, end)
        if stop < 0:
            return -1
        index = _index_of(data, first, stop, names, name_ends)
        if index >= 0:
            if seen >> index & 1:
                return -1
            seen |= 1 << index
        at = _skip_space(data, stop + 1, end)
        if at >= end or data[at] != 58:
            return -1
        at = _skip_space(data, at + 1, end)
        if at >= end:
            return -1
        byte = data[at]
        is_value = True
        if byte == 34:
            first = at + 1
            stop = _string_end(data, first, end)
            at = stop + 1
        elif byte == 45 or 48 <= byte <= 57:
            first = at
            stop = _json_number_end(data, first, end)
            at = stop
        else:
            first = at
            stop = _word_end(data, first, end)
            at = stop
            is_value = False
        if stop < 0:
            return -1
        if index >= 0 and is_value:
            found += 1
            if index < dimensions:
                value = _number(data, first, stop)
                if np.isnan(value):
                    return -1
                values[index] = value
        at = _skip_space(data, at, end)
        if at >= end:
            return -1
        if data[at] == 125:
            return found if _skip_space(data, at + 1, end) == end else -1
        if data[at] != 44:
            return -1
        at = _skip_space(data, at + 1, end)


@kernel
def read_points(
    data: Bytes,
    version: int,
    qos: int,
    names: Bytes,
    name_ends: Numbers,
    dimensions: int,
    json_fields: bool,
    pairs_max: int,
    starts: Numbers,
    points: Floats,
    known: Bytes,
) -> bool:
    """Read the points of a run. Return False if Python has to read one of them.

    `names` are those of the dimensions and, behind them, of the texts. `starts` gets where each
    packet begins, and behind them the end of the last. `points` gets the values, NaN for those that
    are missing, and `known` whether there is any attribute. With `json_fields` fields of the
    payload are attributes, too; a user property of the same name counts instead.
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
        stop = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
        if qos:
            stop += 2
        place = stop
        if version == 5:
            size, place = variable(data, stop)
            stop = place + size
        if json_fields and stop < end:
            values = points[row * dimensions : (row + 1) * dimensions]
            found = _read_fields(data, stop, end, names, name_ends, dimensions, values)
            if found < 0:
                return False
            if found:
                known[row] = 1
        if version == 5:
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
