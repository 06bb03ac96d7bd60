"""Two nodes accept each other only if they have the same secret.

Proofs are tried in the other role, on other connections, changed and cut; an acceptor is sent
anything in every state.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster import frames
from dovetail.cluster.frames import FrameReader, encode
from dovetail.cluster.handshake import (
    MAGIC,
    VERSION,
    Handshake,
    HandshakeRefusal,
    HandshakeState,
    Hello,
    RefusalCode,
    decode_refusal,
    encode_hello,
)
from dovetail.cluster.limits import HANDSHAKE_BYTES_MAX, REFUSAL_CHARACTERS_MAX
from dovetail.errors import PeerError
from dovetail.limits import NODE_NAME_BYTES_MAX
from support.brokers.handshakes import (
    WHOLE,
    acceptor,
    dialer,
    hello,
    is_done,
    only_frame,
    run,
    step,
)

names = st.text("abcXYZ019._-", min_size=1, max_size=NODE_NAME_BYTES_MAX)
hosts = st.text("abc019.:%-", min_size=1, max_size=255)
hellos = st.builds(
    Hello,
    cluster=st.just("test"),
    name=names,
    incarnation=st.integers(0, (1 << 63) - 1),
    host=hosts,
    port=st.integers(1, 65_535),
    instance=st.binary(min_size=16, max_size=16),
    nonce=st.binary(min_size=32, max_size=32),
    role=st.sampled_from(["broker", "matcher"]),
)


def refused_with(side: Handshake) -> int:
    assert side.state is HandshakeState.REFUSED
    assert side.refusal is not None
    return side.refusal.code


def proof_awaited() -> tuple[Handshake, Handshake, bytes]:
    """Both sides before the first proof, and that proof, not delivered yet."""
    one, other = dialer(), acceptor()
    return one, other, step(one, step(other, one.begin()))


# As it should be --------------------------------------------------------------------------------


@given(hellos, hellos, st.binary(max_size=32), st.binary(min_size=1, max_size=64))
def test_the_same_secret(own: Hello, others: Hello, channel: bytes, key: bytes) -> None:
    one, other = dialer(own, key, channel=channel), acceptor(others, key, channel=channel)
    kinds = run(one, other)
    if own.name == others.name:
        assert kinds == [frames.HELLO, frames.REFUSAL]
        return
    assert kinds == WHOLE
    assert is_done(one, other)
    assert (one.peer, other.peer) == (others, own)
    assert one.refusal is other.refusal is None


def test_the_largest_hello_is_a_quarter_of_what_is_taken() -> None:
    own = Hello(
        cluster="c" * NODE_NAME_BYTES_MAX,
        name="n" * NODE_NAME_BYTES_MAX,
        incarnation=(1 << 63) - 1,
        host="h" * 255,
        port=65_535,
        instance=bytes(16),
        nonce=bytes(32),
        role="matcher",
    )
    assert len(encode(frames.HELLO, encode_hello(own))) <= HANDSHAKE_BYTES_MAX // 4


def test_the_dialer_proves_first() -> None:
    """Who dials without the secret hears a HELLO, a refusal, and no proof."""
    other = acceptor()
    assert only_frame(step(other, dialer(key=b"guess").begin()))[0] == frames.HELLO
    kind, _ = only_frame(step(other, encode(frames.PROOF, bytes(32))))
    assert kind == frames.REFUSAL
    assert step(other, encode(frames.PROOF, bytes(32))) == b""


# Refusals ---------------------------------------------------------------------------------------


def never(_hello: Hello) -> HandshakeRefusal:
    return HandshakeRefusal(RefusalCode.NOT_TAKEN, "not today")


@pytest.mark.parametrize(
    ("one", "other", "code", "says"),
    [
        (
            lambda: dialer(key=b"x"),
            acceptor,
            RefusalCode.WRONG_SECRET,
            "the proof of a is wrong: b has",
        ),
        (
            lambda: dialer(channel=b"mine"),
            lambda: acceptor(channel=b"theirs"),
            RefusalCode.WRONG_SECRET,
            "or somebody stands between them",
        ),
        (
            lambda: dialer(hello("a", cluster="other")),
            acceptor,
            RefusalCode.OTHER_CLUSTER,
            "b is in the cluster test, a in other",
        ),
        (dialer, lambda: acceptor(hello("a")), RefusalCode.OURSELVES, "a has dialed itself"),
        (
            dialer,
            lambda: acceptor(hello("a", instance=9)),
            RefusalCode.NAME_IN_USE,
            "two nodes with the name a",
        ),
        (
            lambda: dialer(expected_name="c"),
            acceptor,
            RefusalCode.OTHER_NAME,
            "c was expected where b is",
        ),
        (dialer, lambda: acceptor(needs_secret=True), RefusalCode.SECRET_NEEDED, "b has no secret"),
        (dialer, lambda: acceptor(check=never), RefusalCode.NOT_TAKEN, "not today"),
        (lambda: dialer(check=never), acceptor, RefusalCode.NOT_TAKEN, "not today"),
    ],
)
def test_both_sides_know_why(
    one: Callable[[], Handshake], other: Callable[[], Handshake], code: RefusalCode, says: str
) -> None:
    dials, accepts = one(), other()
    assert run(dials, accepts)[-1] == frames.REFUSAL
    assert refused_with(dials) == refused_with(accepts) == code
    assert dials.refusal == accepts.refusal
    assert dials.refusal is not None
    assert says in dials.refusal.sentence
    assert dials.is_refused_by_us != accepts.is_refused_by_us


@given(st.integers(0, 65_535).filter(lambda version: version != VERSION), st.binary(max_size=99))
def test_another_version_is_told_so_whatever_it_says(version: int, rest: bytes) -> None:
    other = acceptor()
    step(other, encode(frames.HELLO, MAGIC + version.to_bytes(2) + rest))
    assert refused_with(other) == RefusalCode.OTHER_VERSION
    assert other.refusal is not None
    assert f"speaks version {VERSION} of this protocol, not {version}" in other.refusal.sentence


def test_the_check_is_asked_for_nobody_without_a_proof() -> None:
    asked: list[str] = []

    def check(peer: Hello) -> None:
        asked.append(peer.name)

    run(dialer(key=b"x"), acceptor(check=check))
    assert asked == []
    run(dialer(), acceptor(check=check))
    assert asked == ["a"]


def test_a_refusal_after_the_end_ends_it() -> None:
    one, other = dialer(), acceptor()
    run(one, other)
    assert step(other, one.refuse(RefusalCode.NOT_TAKEN, "after all")) == b""
    assert refused_with(other) == RefusalCode.NOT_TAKEN


@given(st.binary(max_size=500))
def test_any_refusal_is_one_short_line(body: bytes) -> None:
    refusal = decode_refusal(body)
    assert len(refusal.sentence) <= REFUSAL_CHARACTERS_MAX
    assert refusal.sentence.isprintable()


def test_a_refusal_cannot_write_the_log() -> None:
    one = dialer()
    sentence = "go away\nroot logged in\x1b[2J" + "x" * 1_000
    step(one, acceptor().refuse(RefusalCode.NOT_TAKEN, sentence))
    assert one.refusal is not None
    assert one.refusal.sentence.startswith("go away?root logged in?[2Jxxx")
    assert len(one.refusal.sentence) == REFUSAL_CHARACTERS_MAX


# What an attacker may try -----------------------------------------------------------------------


def test_a_dialers_proof_is_none_of_an_acceptor() -> None:
    one, _other, proof = proof_awaited()
    step(one, proof)  # comes back as the answer
    assert refused_with(one) == RefusalCode.WRONG_SECRET


def test_an_acceptors_proof_is_none_of_a_dialer() -> None:
    """Even over the same HELLOs: an acceptor's proof, played to another acceptor as a dialer's."""
    _one, other, proof = proof_awaited()
    answer = step(other, proof)
    again = acceptor()
    step(again, dialer().begin())
    step(again, answer)
    assert refused_with(again) == RefusalCode.WRONG_SECRET


def test_words_that_come_back_are_ours() -> None:
    one = dialer()
    step(one, one.begin())
    assert refused_with(one) == RefusalCode.OURSELVES


def test_two_dialers_cannot_be_set_upon_each_other() -> None:
    """Each has to hear an acceptor's proof, and neither makes one."""
    one, two = dialer(hello("a", 1)), dialer(hello("b", 2))
    first, second = step(one, two.begin()), step(two, one.begin())
    step(one, second)
    step(two, first)
    assert refused_with(one) == refused_with(two) == RefusalCode.WRONG_SECRET


@given(st.integers(3, 1 << 200))
def test_a_proof_of_another_connection_is_refused(nonce: int) -> None:
    one, _, proof = proof_awaited()
    replayed = acceptor(hello("b", nonce))  # the same node, with the nonce of a new connection
    step(replayed, one.begin())
    step(replayed, proof)
    assert refused_with(replayed) == RefusalCode.WRONG_SECRET


@given(st.integers(3, 1 << 200))
def test_an_acceptors_proof_of_another_connection_is_refused(nonce: int) -> None:
    _, other, proof = proof_awaited()
    answer = step(other, proof)
    fresh = dialer(hello("a", nonce))
    step(fresh, step(acceptor(), fresh.begin()))
    step(fresh, answer)
    assert refused_with(fresh) == RefusalCode.WRONG_SECRET


def test_who_stands_between_with_another_certificate_is_found_out() -> None:
    """The frames are passed on as they are: only the certificate that the dialer sees differs."""
    one, other = dialer(channel=b"of the one between"), acceptor(channel=b"of the acceptor")
    run(one, other)
    assert refused_with(other) == RefusalCode.WRONG_SECRET


@given(st.data())
def test_a_changed_hello_spoils_the_proof(data: st.DataObject) -> None:
    """Somebody on the way changes what a node says of itself."""
    one, other = dialer(), acceptor()
    kind, body = only_frame(one.begin())
    changed = data.draw(mutations(body))
    answer = other.receive(kind, changed)
    if other.state is HandshakeState.PROOF_AWAITED and changed != body:
        step(other, step(one, answer))
        assert refused_with(other) == RefusalCode.WRONG_SECRET


@given(st.data())
def test_a_changed_proof_is_refused(data: st.DataObject) -> None:
    one, other, proof = proof_awaited()
    kind, body = only_frame(proof)
    changed = data.draw(mutations(body).filter(lambda changed: changed != body))
    other.receive(kind, changed)
    assert refused_with(other) == RefusalCode.WRONG_SECRET
    answer = step(acceptor_after(one), proof)
    kind, body = only_frame(answer)
    changed = data.draw(mutations(body).filter(lambda changed: changed != body))
    one.receive(kind, changed)
    assert refused_with(one) == RefusalCode.WRONG_SECRET


def acceptor_after(one: Handshake) -> Handshake:
    other = acceptor()
    step(other, one.begin())
    return other


@pytest.mark.parametrize("end", range(len(only_frame(dialer().begin())[1])))
def test_every_truncation_of_a_hello_is_refused(end: int) -> None:
    other = acceptor()
    other.receive(frames.HELLO, only_frame(dialer().begin())[1][:end])
    assert refused_with(other) == RefusalCode.MALFORMED


@pytest.mark.parametrize("end", range(32))
def test_every_truncation_of_a_proof_is_refused(end: int) -> None:
    _, other, proof = proof_awaited()
    other.receive(frames.PROOF, only_frame(proof)[1][:end])
    assert refused_with(other) == RefusalCode.WRONG_SECRET


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a\n"},
        {"name": "ä"},
        {"name": "a" * (NODE_NAME_BYTES_MAX + 1)},
        {"cluster": "test\n"},
        {"incarnation": -1},
        {"host": "ho st"},
        {"host": ""},
        {"host": "h" * 256},
        {"port": 0},
        {"port": 65_536},
        {"nonce": bytes(31)},
        {"nonce": bytes(33)},
        {"instance": bytes(15)},
        {"role": "other"},
    ],
)
def test_a_hello_out_of_bounds_is_refused(change: dict[str, object]) -> None:
    own = hello("a", 1)
    values = {name: getattr(own, name) for name in own.__struct_fields__} | change
    other = acceptor()
    other.receive(frames.HELLO, encode_hello(Hello(**values)))
    assert refused_with(other) == RefusalCode.MALFORMED


# Anything, in every state -----------------------------------------------------------------------


@st.composite
def mutations(draw: st.DrawFn, original: bytes) -> bytes:
    """Bytes of the original changed, removed, doubled or added."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 3))
        data[at : at + length] = draw(st.binary(max_size=4))
    return bytes(data)


def hostile_streams(valid: bytes) -> st.SearchStrategy[bytes]:
    some_frames = st.lists(
        st.builds(
            encode,
            st.sampled_from([frames.HELLO, frames.PROOF, frames.REFUSAL]) | st.integers(0, 255),
            st.binary(max_size=200) | mutations(only_frame(valid)[1]),
        ),
        max_size=4,
    ).map(b"".join)
    return mutations(valid) | some_frames | st.binary(max_size=300)


@given(st.data())
def test_an_acceptor_bears_anything_in_any_state(data: st.DataObject) -> None:
    one, other = dialer(), acceptor()
    reader = FrameReader(HANDSHAKE_BYTES_MAX)
    honest_steps = data.draw(st.integers(0, 2))
    valid = one.begin()
    for _ in range(honest_steps):
        answer = step(other, valid)
        valid = step(one, answer) or encode(frames.PROOF, bytes(32))
    was_done = other.state is HandshakeState.DONE
    hostile = data.draw(hostile_streams(valid))
    answered = 0
    try:
        for kind, body in reader.feed(hostile):
            answered += len(other.receive(kind, body))
    except PeerError:
        pass
    if not was_done and hostile != valid:
        assert other.state is not HandshakeState.DONE or hostile.startswith(valid)
    assert reader.kept_bytes <= HANDSHAKE_BYTES_MAX
    assert answered < 1_000


@given(st.data())
def test_a_dialer_bears_anything_in_any_state(data: st.DataObject) -> None:
    one, other = dialer(), acceptor()
    valid = step(other, one.begin())
    if data.draw(st.booleans()):
        valid = step(other, step(one, valid))
    hostile = data.draw(hostile_streams(valid))
    try:
        for kind, body in FrameReader(HANDSHAKE_BYTES_MAX).feed(hostile):
            one.receive(kind, body)
    except PeerError:
        pass
    assert one.state is not HandshakeState.DONE or hostile.startswith(valid)
