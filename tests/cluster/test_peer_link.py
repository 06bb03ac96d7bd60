"""One connection over a fake transport: what is written when, and what closes it."""

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster import frames
from dovetail.cluster.addresses import Address
from dovetail.cluster.dialer import DialTarget
from dovetail.cluster.frames import Frame, FrameReader, encode
from dovetail.cluster.handshake import Handshake
from dovetail.cluster.limits import HANDSHAKE_BYTES_MAX
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.peer_link import PeerLink
from support.brokers.handshakes import acceptor, dialer, step

SOME = 16
JOINED = 17
"""Neighbouring frames of this kind become one."""


class FakeTransport(asyncio.Transport):
    """Collects what a link writes; bytes leave the buffer when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.waiting_bytes = 0
        self.reads = True
        self.has_ended = False
        self.is_stuck = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1_234) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        if self.is_stuck:
            self.waiting_bytes += len(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return self.has_ended

    def close(self) -> None:
        self.has_ended = True

    abort = close


class FakeOwner:
    """Stands in for the transport, with a clock that tests set."""

    def __init__(self, links: LinkSettings | None = None) -> None:
        self.links = links or LinkSettings(name="b")
        self.now = 0.0
        self.dirty: list[PeerLink] = []
        self.got: list[tuple[int, bytes]] = []
        self.is_told: list[str] = []

    def clock(self) -> float:
        return self.now

    def opened(self, link: PeerLink, _secure: object) -> Handshake:
        return dialer() if link.is_dialed else acceptor()

    def wake(self, link: PeerLink) -> None:
        self.dirty.append(link)

    def ready(self, _link: PeerLink) -> None:
        self.is_told.append("ready")

    def join(self, frames: list[Frame]) -> list[Frame]:
        if len(frames) > 1 and all(kind == JOINED for kind, _ in frames):
            return [(JOINED, b"".join(body for _, body in frames))]
        return frames

    def received(self, _link: PeerLink, kind: int, body: bytes) -> None:
        self.got.append((kind, body))

    def gone(self, _link: PeerLink) -> None:
        self.is_told.append("gone")


def opened(owner: FakeOwner, *, is_dialed: bool = False) -> tuple[PeerLink, FakeTransport]:
    link, wire = (
        PeerLink(owner, DialTarget(None, Address("b", 1)) if is_dialed else None),
        FakeTransport(),
    )
    link.connection_made(wire)
    return link, wire


def ready(owner: FakeOwner, *, is_dialed: bool = False) -> tuple[PeerLink, FakeTransport]:
    link, wire = opened(owner, is_dialed=is_dialed)
    if is_dialed:
        side = acceptor()
        link.data_received(step(side, wire.writes[-1]))
    else:
        side = dialer()
        link.data_received(side.begin())
    link.data_received(step(side, wire.writes[-1]))
    assert link.is_ready
    wire.writes.clear()
    return link, wire


def sent(wire: FakeTransport) -> list[tuple[int, bytes]]:
    return FrameReader(1 << 30).feed(b"".join(wire.writes))


# In ---------------------------------------------------------------------------------------------


def test_its_owner_may_join_frames_of_a_read() -> None:
    owner = FakeOwner()
    link, _ = ready(owner)
    link.data_received(encode(JOINED, b"a") + encode(JOINED, b"b") + encode(JOINED, b"c")[:-1])
    assert owner.got == [(JOINED, b"ab")]
    link.data_received(b"c" + encode(SOME, b"d"))
    assert owner.got == [(JOINED, b"ab"), (JOINED, b"c"), (SOME, b"d")]


# Out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_dialed", [True, False])
def test_what_is_sent_in_a_turn_is_one_write(is_dialed: bool) -> None:
    owner = FakeOwner()
    link, wire = ready(owner, is_dialed=is_dialed)
    bodies = [bytes([number]) * number for number in range(100)]
    assert all(link.send(SOME, body) for body in bodies)
    assert wire.writes == []
    assert link.unsent_bytes == sum(len(body) + 5 for body in bodies)
    assert owner.dirty == [link]
    link.flush()
    assert len(wire.writes) == 1
    assert sent(wire) == [(SOME, body) for body in bodies]
    assert link.unsent_bytes == 0


def test_large_bodies_arrive_whole_too() -> None:
    link, wire = ready(FakeOwner())
    bodies = [b"a" * 100_000, b"", b"b" * 1_000_000]
    assert all(link.answer(SOME, body) for body in bodies)
    link.flush()
    assert sent(wire) == [(SOME, body) for body in bodies]


def test_nothing_is_sent_before_the_proof_nor_after_the_end() -> None:
    link, _ = opened(FakeOwner())
    assert not link.send(SOME, b"")
    link, _ = ready(FakeOwner())
    link.close("enough")
    assert not link.send(SOME, b"")


def test_the_backlog_has_its_bound() -> None:
    links = LinkSettings(name="b", frame_bytes_max=1_000, backlog_bytes_max=1_000)
    link, wire = ready(FakeOwner(links))
    wire.is_stuck = True
    assert link.send(SOME, bytes(500))
    assert not link.send(SOME, bytes(500))
    link.flush()
    assert not link.send(SOME, bytes(500))
    wire.waiting_bytes = 0
    assert link.send(SOME, bytes(500))


def test_who_does_not_take_answers_is_not_read_from() -> None:
    link, wire = ready(FakeOwner())
    link.pause_writing()
    assert not wire.is_reading()
    link.resume_writing()
    assert wire.is_reading()
    link, wire = ready(FakeOwner(), is_dialed=True)
    link.pause_writing()
    assert wire.is_reading()  # if both sides stopped, neither would go on


def test_the_dialer_pings_and_the_acceptor_answers() -> None:
    one, wire = ready(FakeOwner(), is_dialed=True)
    one.ping()
    one.flush()
    assert sent(wire) == [(frames.PING, b"")]
    other, back = ready(FakeOwner())
    other.ping()
    other.data_received(wire.writes[-1])
    other.flush()
    assert sent(back) == [(frames.PONG, b"")]
    one.data_received(back.writes[-1])
    assert one.is_open


# Time -------------------------------------------------------------------------------------------


def judged(owner: FakeOwner, link: PeerLink, seconds: float) -> None:
    """As many judgements as there would be."""
    for _ in range(round(seconds / 0.25)):
        owner.now += 0.25
        link.judge(owner.now)


def test_silence_ends_it() -> None:
    owner = FakeOwner()
    link, wire = ready(owner)
    judged(owner, link, 5)
    assert not wire.is_closing()
    judged(owner, link, 0.25)
    assert wire.is_closing()
    assert link.why_gone == "nothing was heard of it"


def test_pings_that_the_network_takes_are_no_sign_of_life() -> None:
    owner = FakeOwner()
    link, wire = ready(owner, is_dialed=True)
    for _ in range(21):
        link.ping()
        link.flush()
        judged(owner, link, 0.25)
    assert wire.is_closing()


def test_who_takes_bytes_is_alive_though_its_answer_is_late() -> None:
    owner = FakeOwner()
    link, wire = ready(owner, is_dialed=True)
    wire.is_stuck = True
    link.send(SOME, bytes(1_000_000))
    link.flush()
    for _ in range(100):
        judged(owner, link, 1)
        assert not wire.is_closing()
        wire.waiting_bytes -= 1_000
    judged(owner, link, 6)
    assert wire.is_closing()


def test_who_is_heard_and_takes_nothing_is_closed() -> None:
    owner = FakeOwner()
    link, wire = ready(owner)
    wire.is_stuck = True
    link.send(SOME, b"take this")
    link.flush()
    for _ in range(31):
        assert not wire.is_closing()
        link.data_received(encode(frames.PING, b""))
        judged(owner, link, 1)
    assert wire.is_closing()
    assert link.why_gone == "it takes no bytes"


def test_who_does_not_take_our_last_words_is_not_waited_for() -> None:
    owner = FakeOwner()
    link, wire = ready(owner)
    link.close("enough")
    wire.has_ended = False  # it hangs
    judged(owner, link, 1)
    assert not wire.is_closing()
    judged(owner, link, 0.25)
    assert wire.is_closing()
    assert link.why_gone == "enough"


# The end ----------------------------------------------------------------------------------------


def test_the_end_is_told_once() -> None:
    owner = FakeOwner()
    link, _ = ready(owner)
    link.give_up("enough")
    link.connection_lost(None)
    assert owner.is_told == ["ready", "gone"]
    assert link.gone.is_set()
    assert link.why_gone == "enough"


# Anything, in every state -----------------------------------------------------------------------


@given(
    st.booleans(),
    st.integers(0, 2),
    st.lists(
        st.binary(max_size=100)
        | st.builds(encode, st.integers(0, 40), st.binary(max_size=100))
        | st.just(dialer().begin()),
        max_size=6,
    ),
)
def test_any_bytes_are_borne(is_dialed: bool, state: int, pieces: list[bytes]) -> None:
    owner = FakeOwner()
    if state == 2:
        link, wire = ready(owner, is_dialed=is_dialed)
    else:
        link, wire = opened(owner, is_dialed=is_dialed)
        if state == 1 and not is_dialed:
            link.data_received(dialer().begin())
    for piece in pieces:
        link.data_received(piece)
    assert link.why_gone != "a fault of ours"
    assert link.is_ready == (state == 2)
    if not link.is_ready:
        assert owner.got == []
        assert link._reader.kept_bytes <= HANDSHAKE_BYTES_MAX
    link.flush()
    assert sum(map(len, wire.writes)) < 2_000
