"""The encoder returns the same bytes as the codec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.publish_encoder import PublishEncoder, remaining_seconds
from dovetail.codec import encode_publish
from dovetail.messages import Message
from support.strategies.packets import forwardables, payloads, subscription_identifiers, topics

NOW = 1_000_000.0

messages = st.builds(
    Message,
    topics,
    payloads,
    properties=st.just(b"") | forwardables,
    expires_at=st.none() | st.floats(NOW - 5, NOW + 100),
)
receivers = st.tuples(
    st.sampled_from([4, 5]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 65_535),
    st.lists(subscription_identifiers, max_size=2).map(tuple),
    st.booleans(),
)


@given(
    st.lists(messages, min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 2), receivers))
)
def test_as_the_codec_encodes(
    several: list[Message],
    order: list[tuple[int, tuple[int, int, bool, int, tuple[int, ...], bool]]],
) -> None:
    frames = PublishEncoder()
    for which, (version, qos, retain, number, identifiers, again) in order:
        message = several[which % len(several)]
        packet_id, duplicate = (number, again) if qos else (0, False)
        expected = encode_publish(
            version,
            message.topic,
            message.payload,
            qos,
            retain,
            duplicate,
            packet_id,
            message.properties,
            remaining_seconds(message, NOW),
            identifiers,
        )
        assert (
            frames.encode(version, message, qos, retain, packet_id, NOW, identifiers, duplicate)
            == expected
        )


@pytest.mark.parametrize(
    ("expires_at", "left"),
    [(None, None), (NOW + 10, 10), (NOW + 9.5, 10), (NOW + 0.001, 1), (NOW, 0), (NOW - 10, 0)],
)
def test_remaining_seconds(expires_at: float | None, left: int | None) -> None:
    assert remaining_seconds(Message(b"t", b"", expires_at=expires_at), NOW) == left


def test_a_clock_that_was_set_back_makes_no_impossible_expiry() -> None:
    message = Message(b"t", b"", expires_at=1_000.0 + 0xFFFF_FFFF)
    assert remaining_seconds(message, 990.0) == 0xFFFF_FFFF
