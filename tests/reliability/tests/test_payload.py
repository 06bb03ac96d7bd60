"""Payloads show when they are damaged."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.payload import decode, encode

messages = st.from_regex(r"[a-z-]{1,12}:[0-9]{1,6}", fullmatch=True)


@given(messages, st.dictionaries(st.sampled_from("xy"), st.integers(0, 99).map(float)))
def test_a_payload_says_which_message_it_is(message: str, attributes: dict[str, float]) -> None:
    assert decode(encode(message, attributes)) == (message, False)


@given(messages, st.data())
def test_damage_is_seen(message: str, data: st.DataObject) -> None:
    payload = bytearray(encode(message))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    found, is_damaged = decode(bytes(payload))
    assert is_damaged or found != message


@given(st.binary(max_size=50))
def test_anything_may_arrive(payload: bytes) -> None:
    assert decode(payload) == ("", True)
