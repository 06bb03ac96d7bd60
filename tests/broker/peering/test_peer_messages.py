"""Runs that come together are joined, and nothing else changes."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.peering.limits import RUNS_JOINED_BYTES_MAX
from dovetail.broker.peering.peer_messages import ACK, MESSAGE, RUN, ForwardedRun, join_runs
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5

PACKET = b"\x30\x04\x00\x01ax"

runs = st.builds(
    ForwardedRun,
    sequence=st.sampled_from([0, 0, 0, 1, 1 << 62]),
    version=st.sampled_from([MQTT_3_1_1, MQTT_5]),
    origin=st.sampled_from(["a", "ab", "", "\N{GREEK SMALL LETTER ALPHA}"]),
    data=st.binary(max_size=4) | st.just(PACKET),
)
frames = st.builds(lambda run: (RUN, run.encoded()), runs) | st.tuples(
    st.sampled_from([ACK, MESSAGE, RUN]), st.binary(max_size=12)
)


def expected(some: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Join two at a time, by the decoded runs."""
    found: list[tuple[int, bytes]] = []
    for kind, body in some:
        if found and kind == found[-1][0] == RUN and is_whole(body) and is_whole(found[-1][1]):
            last, run = ForwardedRun.decoded(found[-1][1]), ForwardedRun.decoded(body)
            if not run.sequence and run[:3] == last[:3]:
                found[-1] = (RUN, last._replace(data=last.data + run.data).encoded())
                continue
        found.append((kind, body))
    return found


def is_whole(body: bytes) -> bool:
    return len(body) >= 11 + int.from_bytes(body[9:11]) and body[:8] == bytes(8)


@given(st.lists(frames, max_size=8))
def test_neighbouring_runs_of_a_client_are_joined(some: list[tuple[int, bytes]]) -> None:
    valid = [one for one in some if one[0] != RUN or (len(one[1]) > 11 and one[1][8] in (4, 5))]
    assert join_runs(valid) == expected(valid)


def test_runs_are_joined_up_to_a_size() -> None:
    some = [(RUN, ForwardedRun(0, MQTT_5, "a", PACKET * 1_000).encoded())] * 100
    joined = join_runs(some)
    assert all(len(body) <= RUNS_JOINED_BYTES_MAX for _, body in joined)
    assert len(joined) == 10
    data = b"".join(ForwardedRun.decoded(body).data for _, body in joined)
    assert data == PACKET * 100_000


def test_runs_that_are_cut_short_are_left_to_their_reader() -> None:
    whole = ForwardedRun(0, MQTT_5, "client", b"").encoded()
    for end in range(len(whole)):
        some = [(RUN, whole[:end]), (RUN, whole[:end]), (RUN, whole)]
        assert join_runs(some) == some
