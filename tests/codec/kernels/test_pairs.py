"""The end of a series of user properties, against Python's own decoder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.codec.datatypes import FieldReader, write_pair
from dovetail.codec.kernels.pairs import pairs_end
from dovetail.errors import ClientError

pairs = st.tuples(st.text(max_size=8), st.text(max_size=8)).map(
    lambda pair: b"\x26" + write_pair((pair[0].replace("\0", ""), pair[1].replace("\0", "")))
)
noise = st.binary(max_size=6).map(
    lambda data: b"\x26\x00" + bytes([len(data)]) + data + b"\x00\x00"
)


def oracle(data: bytes, at: int) -> tuple[int, int]:
    reader = FieldReader(data, at)
    count = 0
    while not reader.done() and data[reader.at] == 0x26:
        before = reader.at
        reader.at += 1
        try:
            reader.pair("a user property")
        except ClientError:
            return before, count
        count += 1
    return reader.at, count


@given(st.lists(pairs | noise | st.binary(max_size=4), max_size=8).map(b"".join), st.data())
def test_pairs_as_the_oracle_finds_them(data: bytes, draw: st.DataObject) -> None:
    if draw.draw(st.booleans()):
        data = data[: draw.draw(st.integers(0, len(data)))]
    at = draw.draw(st.integers(0, len(data)))
    assert pairs_end(np.frombuffer(data, np.uint8), at) == oracle(data, at)


@pytest.mark.parametrize("second", range(256))
def test_every_two_bytes_as_python_decodes_them(second: int) -> None:
    for first in range(256):
        for tail in (b"", b"\x80", b"\x80\x80", b"\xbf\x80", b"a"):
            text = bytes([first, second]) + tail
            data = b"\x26\x00\x00\x00" + bytes([len(text)]) + text
            assert pairs_end(np.frombuffer(data, np.uint8), 0) == oracle(data, 0), text
