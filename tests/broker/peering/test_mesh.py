"""One broker among others, frame by frame: what a peer may send, and what becomes of it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_harness import KEPT, World
from dovetail.broker import codec
from dovetail.broker.packets import MQTT_3_1_1, MQTT_5
from dovetail.broker.peering import bodies
from dovetail.broker.peering.bodies import DELTA, WHOLE, decoded
from dovetail.broker.peering.moving import NOTHING
from dovetail.config import REMOVALS_SECONDS
from dovetail.errors import PeerError

STREAM = 9


class Member(World):
    """A broker in a cluster whose peers are played by the test."""

    def prepare(self) -> None:
        self.sent: list[tuple[str, int, bytes]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.claims: list[tuple[str, bodies.ClaimBody]] = []
        self.mesh = self.broker.join(name="here", stream=1, incarnation=1, seed=0, send=self.send)

    def send(self, peer: str, kind: int, body: bytes) -> bool:
        self.sent.append((peer, kind, body))
        if kind == bodies.CLAIM:
            self.claims.append((peer, decoded(bodies.claim_decoder, body)))
        return True

    def settle(self) -> None:
        """Peers know nothing of the clients here."""
        claims, self.claims = self.claims, []
        for peer, claim in claims:
            answer = bodies.ClaimedBody(claim.client_id, claim.stamp, NOTHING)
            self.mesh.answered(peer, bodies.CLAIMED, bodies.encode(answer))
        super().settle()

    def receive(self, kind: int, body: bytes) -> list[tuple[int, bytes]]:
        """A frame from the peer; the answers to it."""
        self.answers.clear()
        self.mesh.receive("peer", kind, body, lambda *answer: self.answers.append(answer))
        self.settle()
        return self.answers


def publication(sequence: int, topic: bytes, payload: bytes = b"", qos: int = 1) -> bytes:
    return bodies.encode(
        bodies.Publication(sequence, topic, payload, qos, False, b"", None, "origin", 0)
    )


def resume(member: Member) -> None:
    ((kind, _),) = member.receive(bodies.RESUME, bodies.encode(bodies.Resume(STREAM, False)))
    assert kind == bodies.HEARD


def heard(answers: list[tuple[int, bytes]]) -> list[int]:
    return [decoded(bodies.heard_decoder, body).sequence for _, body in answers]


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_plain_publications_are_delivered_here_and_go_nowhere_else(version: int) -> None:
    member = Member()
    client = member.client("c")
    client.subscribe("a/#")
    member.sent.clear()
    packets = [
        codec.encode_publish(version, topic, b"%d" % number)
        for number, topic in enumerate([b"a/1", b"a/1", b"a/2", b"nobody"])
    ]
    assert member.receive(bodies.PLAIN, bytes([version]) + b"".join(packets)) == []
    assert client.payloads() == [b"0", b"1", b"2"]
    counters = member.shared.counters
    assert (counters.publishes_from_peers, counters.publishes_in_vain) == (4, 1)
    assert counters.publishes_received == 0
    assert not any(kind in (bodies.PLAIN, bodies.MESSAGE) for _, kind, _ in member.sent)


def test_a_kept_session_is_on_disk_before_the_peer_is_told() -> None:
    member = Member()
    client = member.client("c", **KEPT)
    client.subscribe("a", qos=1)
    client.lose()
    resume(member)
    member.auto_commit = False
    assert member.receive(bodies.MESSAGE, publication(5, b"a", b"x")) == []
    assert member.receive(bodies.MESSAGE, publication(5, b"a", b"x")) == []  # again: it waits, too
    assert member.receive(bodies.MESSAGE, publication(6, b"nobody")) == []  # in order
    answers = member.answers
    member.commit_all()
    assert heard(answers) == [5, 5, 6]
    again = member.crash()
    assert again.shared is not member.shared
    assert len(member.disk.state().deliveries) == 1
    assert member.disk.state().heard == {STREAM: 5}


def test_a_connection_is_not_resumed_beyond_what_is_on_disk() -> None:
    member = Member()
    client = member.client("c", **KEPT)
    client.subscribe("a", qos=1)
    client.lose()
    resume(member)
    member.auto_commit = False
    member.receive(bodies.MESSAGE, publication(5, b"a", b"x"))
    again = bodies.encode(bodies.Resume(STREAM, False))
    assert member.receive(bodies.RESUME, again) == []  # or the peer would not send it again
    member.commit_all()
    assert heard(member.answers)[-1] == 5


def test_what_no_client_could_have_sent_is_dropped_and_holds_nothing_up() -> None:
    member = Member(topic_levels_max=2)
    client = member.client("c")
    client.subscribe("#", qos=1)
    resume(member)
    for sequence, topic in enumerate([b"", b"a/+", b"\xff", b"a\0b", b"a/b/c/d", b"fine"], 1):
        assert heard(member.receive(bodies.MESSAGE, publication(sequence, topic))) == [sequence]
    # A peer may allow more levels than we do.
    assert [message.topic for message in client.messages()] == [b"a/b/c/d", b"fine"]
    assert member.shared.counters.publishes_dropped == 4


BROKEN: dict[str, tuple[int, bytes]] = {
    "a kind that there is not": (99, b""),
    "no version": (bodies.PLAIN, b""),
    "another version": (bodies.PLAIN, b"\x09" + codec.encode_publish(MQTT_5, b"a", b"")),
    "cut short": (bodies.PLAIN, bytes([MQTT_5]) + codec.encode_publish(MQTT_5, b"a", b"x")[:-1]),
    "another packet": (bodies.PLAIN, bytes([MQTT_5, 0xC0, 0x00])),
    "not msgpack": (bodies.MESSAGE, b"\xc1"),
    "a number without a stream": (bodies.MESSAGE, publication(1, b"a")),
    "no sketch": (WHOLE, b"DVTS"),
    "no delta": (DELTA, b""),
}


@pytest.mark.parametrize(("kind", "body"), BROKEN.values(), ids=BROKEN)
def test_what_a_peer_must_not_send_ends_its_connection(kind: int, body: bytes) -> None:
    with pytest.raises(PeerError):
        Member().receive(kind, body)


KINDS = [WHOLE, DELTA, bodies.RESUME, bodies.PLAIN, bodies.MESSAGE, bodies.WANT]


@given(st.sampled_from(KINDS), st.binary(max_size=100), st.booleans())
def test_random_frames(kind: int, body: bytes, is_answer: bool) -> None:
    member = Member()
    client = member.client("c")
    client.subscribe("a")
    act: Callable[[], object] = lambda: member.receive(kind, body)  # noqa: E731
    if is_answer:
        act = lambda: member.mesh.answered("peer", kind, body)  # noqa: E731
    try:
        act()
    except PeerError:
        return
    client.publish("a", b"well")
    assert client.payloads() == [b"well"]


def test_who_is_forgotten_leaves_nothing_behind() -> None:
    member = Member()
    client = member.client("c", **KEPT)
    client.subscribe("a", qos=1)
    resume(member)
    member.receive(bodies.MESSAGE, publication(5, b"a"))
    assert member.disk.state().heard
    assert member.disk.state().members == {"peer": ""}
    member.mesh.peer_is_down("peer")
    member.client("p").publish("nobody/here", b"", 1)  # which the peer may have subscribed to
    assert member.disk.state().owed
    assert member.mesh.forget("peer") == 1
    member.settle()
    state = member.disk.state()
    assert (state.owed, state.members) == ({}, {})
    # It may come back after all, with what it owed us: that must not count twice.
    assert state.heard == {STREAM: 5}
    assert member.mesh.names() == ()


def test_a_removal_is_remembered_for_a_while() -> None:
    member = Member()
    client = member.client("c")
    client.publish("a", b"here", retain=True)
    client.publish("a", b"", retain=True)
    assert list(member.mesh.stamps.removals) == [b"a"]
    old = bodies.encode(
        bodies.Page([bodies.Publication(0, b"a", b"old", 0, True, b"", None, "", 7)], 0)
    )
    resume(member)
    member.mesh.answered("peer", bodies.HEARD, bodies.encode(bodies.Heard(0)))
    member.mesh.answered("peer", bodies.PAGE, old)
    assert len(member.broker.retained) == 0
    member.pass_time(REMOVALS_SECONDS + 1)
    assert member.mesh.stamps.removals == member.disk.state().removals == {}
