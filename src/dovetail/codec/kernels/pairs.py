"""Find where a series of user properties ends. A packet may have two hundred thousand of them.

A user property is two texts, each with its length before it (MQTT 5.0 section 1.5.7). A text is
well-formed UTF-8 without the null character.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, kernel

Bytes = npt.NDArray[np.uint8]

_USER_PROPERTY = 0x26


@inlined
def _is_between(data: Bytes, at: int, low: int, high: int) -> bool:
    return low <= data[at] <= high


@inlined
def is_text(data: Bytes, at: int, end: int) -> bool:
    """Table 3-7 of the Unicode standard, as Python decodes it, and no null character."""
    while at < end:
        byte = data[at]
        if byte < 0x80:
            if byte == 0:
                return False
            at += 1
            continue
        # The second byte excludes overlong forms, surrogates and code points beyond Unicode.
        low, high = 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return False
        if at + more >= end or not _is_between(data, at + 1, low, high):
            return False
        for i in range(2, more + 1):
            if not _is_between(data, at + i, 0x80, 0xBF):
                return False
        at += more + 1
    return True


@kernel
def pairs_end(data: Bytes, at: int) -> tuple[int, int]:
    """Return where the user properties that begin at `at` end, and how many there are.

    They end before a property of another type, one that is cut short, or one with invalid text.
    """
    size = len(data)
    count = 0
    while at < size and data[at] == _USER_PROPERTY:
        end = at + 1
        is_pair = True
        for _ in range(2):
            if end + 2 > size:
                is_pair = False
                break
            start = end + 2
            end = start + (int(data[end]) << 8) + int(data[end + 1])
            if end > size or not is_text(data, start, end):
                is_pair = False
                break
        if not is_pair:
            break
        at = end
        count += 1
    return at, count
