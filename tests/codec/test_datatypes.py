from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.properties import VariableByteIntegers

from dovetail.codec.datatypes import (
    LENGTH_MAX,
    FieldReader,
    decode_length,
    encode_length,
    write_binary,
    write_text,
)
from dovetail.errors import ClientError, ReasonCode

paho_lengths: Any = VariableByteIntegers
# Section 1.5.5, table 1-1: the first and the last value of each size.
EDGES = {
    0: b"\x00",
    127: b"\x7f",
    128: b"\x80\x01",
    16_383: b"\xff\x7f",
    16_384: b"\x80\x80\x01",
    2_097_151: b"\xff\xff\x7f",
    2_097_152: b"\x80\x80\x80\x01",
    LENGTH_MAX: b"\xff\xff\xff\x7f",
}
lengths = st.sampled_from([*EDGES]) | st.integers(0, LENGTH_MAX)


@pytest.mark.parametrize("length", EDGES)
def test_length_edges(length: int) -> None:
    assert encode_length(length) == EDGES[length]
    assert decode_length(EDGES[length], 0) == (length, len(EDGES[length]))


@given(lengths, st.binary(max_size=3), st.binary(max_size=3))
def test_length_as_paho_has_it(length: int, before: bytes, behind: bytes) -> None:
    encoded = encode_length(length)
    assert encoded == paho_lengths.encode(length)
    stop = len(before) + len(encoded)
    for data in (before + encoded + behind, memoryview(before + encoded + behind)):
        assert decode_length(data, len(before)) == (length, stop)
    for cut in range(len(encoded)):
        assert decode_length(bytearray(before + encoded[:cut]), len(before)) is None


def test_length_of_more_than_four_bytes_is_malformed() -> None:
    for data in (b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x01"):
        with pytest.raises(ClientError) as caught:
            decode_length(data, 0)
        assert caught.value.reason == ReasonCode.MALFORMED_PACKET


def test_length_longer_than_needed_is_taken_from_headers_and_not_from_fields() -> None:
    assert decode_length(b"\x85\x00", 0) == (5, 2)
    with pytest.raises(ClientError, match="more bytes than 5 needs"):  # [MQTT-1.5.5-1]
        FieldReader(b"\x85\x00").variable("x")


@pytest.mark.parametrize("length", [-1, LENGTH_MAX + 1])
def test_length_out_of_range(length: int) -> None:
    with pytest.raises(ValueError, match="no variable byte integer"):
        encode_length(length)


def test_what_does_not_fit_is_our_fault() -> None:
    with pytest.raises(ValueError, match="65,536 bytes do not fit"):
        write_binary(bytes(65_536))
    with pytest.raises(ValueError, match="null character"):
        write_text("a\0")
    with pytest.raises(ValueError, match="surrogates"):
        write_text("\ud800")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_text_round_trip(text: str) -> None:
    reader = FieldReader(write_text(text))
    assert reader.text("x") == text  # U+FEFF stays, too [MQTT-1.5.4-3]
    reader.finish()


@given(st.binary(max_size=20))
def test_text_is_utf_8_without_null_or_refused(data: bytes) -> None:
    reader = FieldReader(write_binary(data))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        assert reader.text("x") == text
        return
    with pytest.raises(ClientError) as caught:
        reader.text("x")
    assert caught.value.reason == ReasonCode.MALFORMED_PACKET


def test_a_reader_says_what_is_missing() -> None:
    with pytest.raises(ClientError, match="the lamp: 5 bytes should be there, 2 are"):
        FieldReader(b"\0\5ab").binary("the lamp")
    with pytest.raises(ClientError, match="3 bytes follow where the packet should end"):
        FieldReader(b"abc").finish()
