"""One broker among others, frame by frame: valid and invalid frames of a peer, and their effect."""

from collections.abc import Callable
from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import codec
from dovetail.broker.peering import (
    control_messages,
    forwarder,
    group_exchange,
    peer_messages,
    stream_positions,
)
from dovetail.broker.peering.limits import (
    GROUP_HOPS_MAX,
    REMOVALS_SECONDS,
    SECONDS_MAX,
    STAMP_JUMP_MAX,
    STAMP_MAX,
    STAMP_STEP_MAX,
)
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.peer_messages import DELTA, WHOLE, decoded
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.peering.roaming.claim import NOTHING
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.broker.session import Session
from dovetail.broker.store.journal import MemberRow
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Will
from dovetail.errors import PeerError, ReasonCode
from dovetail.messages import Message
from dovetail.topics.sketches.wire import sketch_to_bytes
from support.brokers.harness import PERSISTENT, World

STREAM = 9


class Member(World):
    """A broker in a cluster whose peers are played by the test."""

    def membership(self) -> ClusterMembership:
        self.sent: list[tuple[str, int, bytes]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.claims: list[tuple[str, peer_messages.ClaimRequest]] = []
        self.refuses: set[str] = set()
        return ClusterMembership("here", 1, 1, 0, self.send)

    @property
    def mesh(self) -> Mesh:
        assert self.broker.mesh is not None
        return self.broker.mesh

    def send(self, peer: str, kind: int, body: bytes) -> bool:
        if peer in self.refuses and kind == peer_messages.WILLS:
            return False
        self.sent.append((peer, kind, body))
        if kind == peer_messages.CLAIM:
            self.claims.append((peer, decoded(peer_messages.claim_decoder, body)))
        return True

    def settle(self) -> None:
        """Peers know nothing of the clients here."""
        claims, self.claims = self.claims, []
        for peer, claim in claims:
            answer = peer_messages.ClaimReply(claim.client_id, claim.stamp, NOTHING)
            self.mesh.answered(peer, peer_messages.CLAIMED, peer_messages.encode(answer))
        super().settle()

    def receive(self, kind: int, body: bytes) -> list[tuple[int, bytes]]:
        """A frame from the peer; the answers to it."""
        self.answers.clear()
        self.mesh.receive("peer", kind, body, lambda *answer: self.answers.append(answer))
        self.settle()
        return self.answers


def publication(sequence: int, topic: bytes, payload: bytes = b"", qos: int = 1) -> bytes:
    return peer_messages.encode(
        peer_messages.ForwardedPublication(
            sequence, topic, payload, qos, False, b"", None, "origin", 0
        )
    )


def plain(version: int, *packets: bytes, client_id: str = "origin", sequence: int = 0) -> bytes:
    """Packets of one client; with a sequence at QoS 1."""
    return peer_messages.ForwardedRun(sequence, version, client_id, b"".join(packets)).encoded()


def marked(
    sequence: int, topic: bytes, *keys: tuple[str, str], qos: int = 1, **mark: object
) -> bytes:
    fields = {"hops": 0, "is_only": False} | mark
    encoded = peer_messages.encode(peer_messages.DeliveryScope(keys, **fields))  # type: ignore[arg-type]
    return peer_messages.encode(
        peer_messages.ForwardedPublication(
            sequence, topic, b"x", qos, False, b"", None, "origin", 0, encoded
        )
    )


def tell_groups(member: Member, version: int, *rows: tuple[str, str, int, int]) -> None:
    """All groups that the peer has."""
    table = [peer_messages.GroupRow(*row) for row in rows]
    told = peer_messages.encode(peer_messages.GroupUpdate(1, -1, version, table))
    ((kind, _),) = member.receive(peer_messages.GROUPS, told)
    assert kind == peer_messages.GROUPS_KNOWN


def bring_up(member: Member) -> None:
    """The peer takes what is sent to it, and subscribes to nothing."""
    member.mesh.peer_is_up("peer")
    member.mesh.answered(
        "peer", peer_messages.ACK, peer_messages.encode(peer_messages.StreamAck(0))
    )
    empty = SketchExchange(seed=0, lineage=1, send=lambda *_: True, changed=lambda _: None)
    part = peer_messages.SketchPart(
        0, len(sketch_to_bytes(empty.sketch)), sketch_to_bytes(empty.sketch)
    )
    member.receive(WHOLE, peer_messages.encode(part))
    not_waited_for(member)
    member.sent.clear()


def not_waited_for(member: Member) -> None:
    """Let no SUBACK wait for the peer, which answers only what the test says."""
    member.mesh.peer_is_live("peer", False)


def sent_publications(member: Member) -> list[peer_messages.ForwardedPublication]:
    found = [body for _, kind, body in member.sent if kind == peer_messages.MESSAGE]
    member.sent.clear()
    return [decoded(peer_messages.publication_decoder, body) for body in found]


def scope_of(publication: peer_messages.ForwardedPublication) -> peer_messages.DeliveryScope | None:
    return decoded(peer_messages.scope_decoder, publication.scope) if publication.scope else None


def resume(member: Member) -> None:
    ((kind, _),) = member.receive(
        peer_messages.RESUME, peer_messages.encode(peer_messages.StreamResume(STREAM, False))
    )
    assert kind == peer_messages.ACK


def acknowledged(answers: list[tuple[int, bytes]]) -> list[int]:
    return [decoded(peer_messages.ack_decoder, body).sequence for _, body in answers]


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
    assert member.receive(peer_messages.RUN, plain(version, *packets)) == []
    assert client.payloads() == [b"0", b"1", b"2"]
    counters = member.shared.counters
    assert (counters.publishes_from_peers, counters.publishes_in_vain) == (4, 1)
    assert counters.publishes_received == 0
    assert not any(kind in (peer_messages.RUN, peer_messages.MESSAGE) for _, kind, _ in member.sent)


def test_a_retained_message_that_has_expired_only_takes_away_what_it_replaced() -> None:
    member = Member()
    resume(member)
    not_waited_for(member)
    client = member.client("c")
    client.subscribe("a", qos=1)
    for sequence, left in enumerate([None, 0.0], 1):
        body = peer_messages.ForwardedPublication(
            sequence, b"a", b"%d" % sequence, 1, True, b"", left, "origin", sequence
        )
        assert acknowledged(member.receive(peer_messages.MESSAGE, peer_messages.encode(body))) == [
            sequence
        ]
    assert client.payloads() == [b"1"]
    member.pass_time(1)
    assert member.broker.retained.get(b"a") is None


def keeping() -> Member:
    """A kept session waits for its client, and the disk for the test."""
    member = Member()
    client = member.client("c", **PERSISTENT)
    client.subscribe("a", qos=1)
    client.lose()
    resume(member)
    member.auto_commit = False
    return member


def test_a_kept_session_is_on_disk_before_the_peer_is_told() -> None:
    member = keeping()
    assert member.receive(peer_messages.MESSAGE, publication(5, b"a", b"x")) == []
    assert (
        member.receive(peer_messages.MESSAGE, publication(5, b"a", b"x")) == []
    )  # again: it waits, too
    assert member.receive(peer_messages.MESSAGE, publication(6, b"nobody")) == []  # in order
    answers = member.answers
    member.commit_all()
    assert acknowledged(answers) == [5, 5, 6]
    again = member.crash()
    assert again.shared is not member.shared
    assert len(member.disk.state().deliveries) == 1
    assert member.disk.state().heard == {STREAM: 5}


def test_a_connection_is_not_resumed_beyond_what_is_on_disk() -> None:
    member = keeping()
    member.receive(peer_messages.MESSAGE, publication(5, b"a", b"x"))
    again = peer_messages.encode(peer_messages.StreamResume(STREAM, False))
    assert member.receive(peer_messages.RESUME, again) == []  # or the peer would not send it again
    member.commit_all()
    assert acknowledged(member.answers)[-1] == 5


def test_an_invalid_publication_is_dropped_and_blocks_nothing() -> None:
    member = Member(topic_levels_max=2)
    client = member.client("c")
    client.subscribe("#", qos=1)
    resume(member)
    for sequence, topic in enumerate([b"", b"a/+", b"\xff", b"a\0b", b"a/b/c/d", b"fine"], 1):
        assert acknowledged(
            member.receive(peer_messages.MESSAGE, publication(sequence, topic))
        ) == [sequence]
    # A peer may allow more levels than we do.
    assert [message.topic for message in client.messages()] == [b"a/b/c/d", b"fine"]
    assert member.shared.counters.publishes_dropped == 4


BROKEN: dict[str, tuple[int, bytes]] = {
    "a kind that there is not": (99, b""),
    "no version": (peer_messages.RUN, b""),
    "another version": (peer_messages.RUN, plain(9, codec.encode_publish(MQTT_5, b"a", b""))),
    "cut short": (
        peer_messages.RUN,
        plain(MQTT_5, codec.encode_publish(MQTT_5, b"a", b"x")[:-1]),
    ),
    "a name that is none": (peer_messages.RUN, bytes([*bytes(8), MQTT_5, 0, 1, 0xFF])),
    "another packet": (peer_messages.RUN, plain(MQTT_5, b"\xc0\x00")),
    "not msgpack": (peer_messages.MESSAGE, b"\xc1"),
    "a number without a stream": (peer_messages.MESSAGE, publication(1, b"a")),
    "no mark": (
        peer_messages.MESSAGE,
        peer_messages.encode(
            peer_messages.ForwardedPublication(0, b"a", b"", 0, False, b"", None, "", 0, b"\xc1")
        ),
    ),
    "a mark of a group that does not match": (
        peer_messages.MESSAGE,
        marked(0, b"a", ("g", "b"), qos=0),
    ),
    "no groups": (peer_messages.GROUPS, b"\x90"),
    "no sketch": (WHOLE, b"DVTS"),
    "no delta": (DELTA, b""),
}


@pytest.mark.parametrize(("kind", "body"), BROKEN.values(), ids=BROKEN)
def test_what_a_peer_must_not_send_ends_its_connection(kind: int, body: bytes) -> None:
    with pytest.raises(PeerError):
        Member().receive(kind, body)


KINDS = [
    WHOLE,
    DELTA,
    peer_messages.GROUPS,
    peer_messages.GROUPS_KNOWN,
    peer_messages.GROUPS_LOST,
    peer_messages.RESUME,
    peer_messages.RUN,
    peer_messages.MESSAGE,
    peer_messages.WANT,
]


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


def test_a_forgotten_peer_leaves_nothing_behind() -> None:
    member = Member()
    client = member.client("c", **PERSISTENT)
    client.subscribe("a", qos=1)
    resume(member)
    member.receive(peer_messages.MESSAGE, publication(5, b"a"))
    assert member.disk.state().heard
    assert member.disk.state().members == {"peer": MemberRow("")}
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
    old = peer_messages.encode(
        peer_messages.RetainedPage(
            [peer_messages.ForwardedPublication(0, b"a", b"old", 0, True, b"", None, "", 7)], 0
        )
    )
    resume(member)
    member.mesh.answered(
        "peer", peer_messages.ACK, peer_messages.encode(peer_messages.StreamAck(0))
    )
    member.mesh.answered("peer", peer_messages.PAGE, old)
    assert len(member.broker.retained) == 0
    member.pass_time(REMOVALS_SECONDS + 1)
    member.mesh.tick(member.now)
    member.settle()
    assert member.mesh.stamps.removals == member.disk.state().removals == {}


# Groups -------------------------------------------------------------------------------------------


def test_a_peers_publication_goes_to_the_groups_that_it_names() -> None:
    member = Member()
    resume(member)
    not_waited_for(member)
    lone, one, two = member.client("lone"), member.client("one"), member.client("two")
    lone.subscribe("a/#", qos=1)
    one.subscribe("$share/g/a/#", qos=1)
    two.subscribe("$share/h/a/#", qos=1)
    member.receive(peer_messages.MESSAGE, publication(1, b"a/b"))
    packet = codec.encode_publish(MQTT_5, b"a/b", b"")
    member.receive(peer_messages.RUN, plain(MQTT_5, packet))
    assert [len(client.messages()) for client in (lone, one, two)] == [2, 0, 0]
    member.receive(peer_messages.MESSAGE, marked(2, b"a/b", ("g", "a/#")))
    member.receive(peer_messages.MESSAGE, marked(0, b"a/b", ("h", "a/#"), qos=0))
    assert [len(client.messages()) for client in (lone, one, two)] == [2, 1, 1]
    member.receive(peer_messages.MESSAGE, marked(3, b"a/b", ("g", "a/#"), is_only=True))
    assert [len(client.messages()) for client in (lone, one, two)] == [0, 1, 0]
    assert member.shared.counters.publishes_in_vain == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_group_is_picked_for_in_the_whole_cluster(qos: int) -> None:
    member = Member()
    resume(member)
    bring_up(member)
    here = member.client("here", receive_max=1_000)
    here.subscribe("$share/g/a/#", qos=2)
    tell_groups(member, 1, ("g", "a/#", 2, 0), ("h", "a/b", 1, 1), ("other", "b", 1, 1))
    member.sent.clear()
    publisher = member.client("p")
    for number in range(90):
        publisher.publish("a/b", b"%d" % number, qos)
    got = [scope_of(one) for one in sent_publications(member)]
    assert len(got) == 90  # once each, for one group or for both
    assert all(mark is not None and ("h", "a/b") in mark.groups for mark in got)
    assert not any(mark is None or mark.is_only or mark.hops for mark in got)
    there = sum(mark is not None and ("g", "a/#") in mark.groups for mark in got)
    assert 58 <= there <= 62
    assert len(here.messages()) == 90 - there


def test_groups_are_not_in_the_sketch_but_waited_for() -> None:
    member = Member()
    resume(member)
    bring_up(member)
    member.client("here").subscribe("$share/g/a/#", qos=1)
    assert not member.mesh.sketch_exchange.sketch.elements
    client = member.client("late")
    client.subscribe("a/#")
    assert member.mesh.sketch_exchange.sketch.elements


def test_a_group_that_is_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_exchange, "GROUPS_MAX", 1)
    client = Member().client("c")
    assert client.subscribe("$share/g/a", "$share/g/b", "b") == [0, ReasonCode.QUOTA_EXCEEDED, 0]
    assert World().client("c").subscribe("$share/g/a", "$share/g/b") == [0, 0]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publication_for_members_that_left_is_passed_on(qos: int) -> None:
    member = Member()
    resume(member)
    bring_up(member)
    tell_groups(member, 1, ("g", "a", 1, 1))
    plain = member.client("plain")
    plain.subscribe("a", qos=qos)
    member.auto_commit = False
    number = 5 if qos else 0
    answers = member.receive(peer_messages.MESSAGE, marked(number, b"a", ("g", "a"), qos=qos))
    assert len(plain.messages()) == 1
    if qos:  # the next one has it on our disk before the last one may forget it
        assert (answers, sent_publications(member)) == ([], [])
        member.commit_all()
        assert acknowledged(answers) == [5]
        assert list(member.disk.state().owed) == [("peer", (1 << 20) + 1)]
        assert member.disk.state().heard == {STREAM: 5}
    (passed,) = sent_publications(member)
    assert scope_of(passed) == peer_messages.DeliveryScope((("g", "a"),), 1, is_only=True)
    assert member.shared.counters.group_messages_passed_on == 1
    # So often, and no more.
    weary = marked(number and 6, b"a", ("g", "a"), qos=qos, hops=GROUP_HOPS_MAX)
    member.receive(peer_messages.MESSAGE, weary)
    assert sent_publications(member) == []
    assert member.shared.counters.publishes_dropped == 1


def test_nobody_is_left() -> None:
    member = Member()
    resume(member)
    assert acknowledged(member.receive(peer_messages.MESSAGE, marked(5, b"a", ("g", "a")))) == [5]
    assert member.shared.counters.publishes_dropped == 1


def test_pending_group_messages_of_an_ended_session_go_to_another_broker() -> None:
    member = Member()
    resume(member)
    bring_up(member)
    client = member.client("c", **PERSISTENT)
    client.subscribe("$share/g/a", qos=1)
    client.lose()
    publisher = member.client("p")
    publisher.publish("a", b"first", 1)
    tell_groups(member, 1, ("g", "a", 1, 0))
    member.sent.clear()
    member.client("c", clean_start=True)
    (passed,) = sent_publications(member)
    assert passed.payload == b"first"
    assert scope_of(passed) == peer_messages.DeliveryScope((("g", "a"),), 0, is_only=True)


def test_connected_members_elsewhere_come_before_others_here() -> None:
    member = Member()
    resume(member)
    bring_up(member)
    client = member.client("c", **PERSISTENT)
    client.subscribe("$share/g/a", qos=1)
    tell_groups(member, 1, ("g", "a", 1, 0))
    publisher = member.client("p")
    client.lose()
    member.sent.clear()
    for _ in range(5):
        publisher.publish("a", b"x", 1)
    assert len(sent_publications(member)) == 5
    member.mesh.peer_is_down("peer")  # and who is kept here before who went with a broker
    publisher.publish("a", b"y", 1)
    assert sent_publications(member) == []
    assert member.broker.sessions["c"].queue.count == 1


def test_many_groups_go_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "SCOPE_BYTES_MAX", 100)
    member = Member()
    resume(member)
    bring_up(member)
    tell_groups(member, 1, *((f"group-{number}", "a", 1, 0) for number in range(10)))
    member.sent.clear()
    for qos in range(3):
        member.client("p").publish("a", b"x", qos)
        got = [scope_of(one) for one in sent_publications(member)]
        assert sum(len(mark.groups) for mark in got if mark is not None) == 10
        assert [mark is not None and mark.is_only for mark in got] == [False] + [True] * 3


# No Local -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_what_a_client_published_elsewhere_before_it_came_here(version: int) -> None:
    """Plain or not, a subscription with No Local does not get it [MQTT-3.8.3-3]."""
    member = Member()
    resume(member)
    not_waited_for(member)
    mover, other = member.client("mover"), member.client("other")
    mover.subscribe("a", qos=1, no_local=True)
    mover.subscribe("+", qos=0, identifier=7)
    other.subscribe("a", qos=1, no_local=True)
    packet = codec.encode_publish(version, b"a", b"mine")
    member.receive(peer_messages.RUN, plain(version, packet, client_id="mover"))
    (mine,) = mover.messages()  # by the subscription without No Local
    assert mine.identifiers == (7,)
    assert other.payloads() == [b"mine"]
    mover.unsubscribe("+")
    member.receive(peer_messages.RUN, plain(version, packet, client_id="mover"))
    own = peer_messages.ForwardedPublication(1, b"a", b"own", 1, False, b"", None, "mover", 0)
    member.receive(peer_messages.MESSAGE, peer_messages.encode(own))
    assert mover.messages() == []
    assert other.payloads() == [b"mine", b"own"]
    member.receive(peer_messages.RUN, plain(version, packet, client_id="other"))
    assert (mover.payloads(), other.payloads()) == ([b"mine"], [])


def test_plain_packets_carry_their_publisher() -> None:
    member = Member()
    resume(member)
    member.mesh.peer_is_up("peer")  # which may have subscribed to anything
    member.sent.clear()
    member.client("writer").publish("a", b"x")
    ((_, kind, body),) = [one for one in member.sent if one[1] == peer_messages.RUN]
    packet = codec.encode_publish(MQTT_5, b"a", b"x")
    assert (kind, body) == (peer_messages.RUN, plain(MQTT_5, packet, client_id="writer"))


# Limits that differ -------------------------------------------------------------------------------


def test_brokers_tell_each_other_their_largest_message() -> None:
    member = Member(packet_bytes_max=100_000_000)
    ((_, body),) = member.receive(
        peer_messages.RESUME, peer_messages.encode(peer_messages.StreamResume(STREAM, False))
    )
    assert decoded(peer_messages.ack_decoder, body).message_bytes_max == 100_000_000
    member.receive(peer_messages.MESSAGE, publication(5, b"a"))
    assert decoded(peer_messages.ack_decoder, member.answers[-1][1]).message_bytes_max == 0


def test_what_is_too_large_for_a_peer_is_dropped_and_counted() -> None:
    member = Member()
    resume(member)
    member.mesh.peer_is_up("peer")  # which may have subscribed to anything
    member.mesh.answered(
        "peer", peer_messages.ACK, peer_messages.encode(peer_messages.StreamAck(0, 100))
    )
    not_waited_for(member)
    publisher = member.client("p")
    member.sent.clear()
    for qos in range(3):
        for size in (10, 1_000):
            publisher.publish("a", bytes(size), qos)
    publisher.publish("kept", bytes(1_000), 0, retain=True)
    small = codec.encode_publish(MQTT_5, b"a", bytes(60))
    publisher.send_bytes(3 * small)  # as one slice these are too large, and not alone
    sizes = [len(one.payload) for one in sent_publications(member)]
    assert sizes == [10, 10, 60, 60, 60]  # and one of QoS 0 as it came
    assert member.shared.counters.peer_messages_dropped == 4
    member.receive(peer_messages.WANT, peer_messages.encode(peer_messages.RetainedRequest(0, 0)))
    ((_, page),) = member.answers
    assert decoded(peer_messages.retained_page_decoder, page).publications == []


def test_streams_of_brokers_that_are_gone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that began first gives way, but no stream of a live broker."""
    monkeypatch.setattr(stream_positions, "STREAM_POSITIONS_MAX", 3)
    member = Member()
    client = member.client("c", **PERSISTENT)
    client.subscribe("a", qos=1)
    for stream, sequence in ((50, 5_000), (10, 1_000), (30, 3_000), (20, 2_000), (40, 4_000)):
        member.receive(
            peer_messages.RESUME, peer_messages.encode(peer_messages.StreamResume(stream, False))
        )
        member.receive(peer_messages.MESSAGE, publication(sequence, b"a"))
    member.receive(
        peer_messages.RESUME, peer_messages.encode(peer_messages.StreamResume(20, False))
    )
    assert member.disk.state().heard == {50: 5_000, 40: 4_000, 20: 2_000}


def test_a_filter_that_comes_or_goes_asks_for_the_end_of_the_turn() -> None:
    """Peers are told there, and SUBACK waits for them."""
    asked: list[bool] = []

    class Scheduled(Member):
        def schedule(self) -> None:
            asked.append(True)

    member = Scheduled()
    asked.clear()
    session = Session(member.shared, 1, "c")
    member.broker.router.subscribe(session, "x", 0, 0)
    member.broker.router.unsubscribe(session, "x")
    assert asked == [True, True]


@pytest.mark.parametrize("seconds", [inf, nan, -1.0, 2.0**32, 1e300])
def test_invalid_times_are_refused(seconds: float) -> None:
    member = Member()
    resume(member)
    body = peer_messages.ForwardedPublication(1, b"a", b"", 1, False, b"", seconds, "origin", 0)
    with pytest.raises(PeerError):
        member.receive(peer_messages.MESSAGE, peer_messages.encode(body))
    entry = control_messages.HandoverMessage(
        "c", 1, None, b"a", b"", 1, False, b"", seconds * 2.0**32, "", 1, False, 0, False, ()
    )
    with pytest.raises(PeerError):
        control_messages.unpack(msgspec.msgpack.encode(entry))


def test_remaining_time_is_bounded_if_our_clock_was_set_back() -> None:
    message = Message(b"a", b"", expires_at=2.0**32 + 1_000)
    encoded = peer_messages.encode(peer_messages.to_publication(message, 0.0))
    assert decoded(peer_messages.publication_decoder, encoded).expiry_seconds == SECONDS_MAX


@pytest.mark.parametrize("ahead", [-1, STAMP_STEP_MAX])
def test_what_others_stamp_leaves_stamps_for_us(ahead: int) -> None:
    """They can be read, and are later than what was seen."""
    member = Member()
    bring_up(member)
    resume(member)
    stamp = STAMP_JUMP_MAX + ahead
    body = peer_messages.ForwardedPublication(1, b"a", b"x", 1, True, b"", None, "origin", stamp)
    assert acknowledged(member.receive(peer_messages.MESSAGE, peer_messages.encode(body))) == [1]
    member.client("p").publish("a", b"y", 1, retain=True)
    (ours,) = sent_publications(member)
    assert stamp < ours.stamp < STAMP_MAX


def test_a_stamp_of_the_far_future_is_refused() -> None:
    member = Member()
    bring_up(member)
    resume(member)
    body = peer_messages.ForwardedPublication(
        1, b"a", b"x", 1, True, b"", None, "origin", STAMP_MAX - 1
    )
    with pytest.raises(PeerError, match="far future"):
        member.receive(peer_messages.MESSAGE, peer_messages.encode(body))
    assert member.broker.retained.get(b"a") is None
    member.client("p").publish("a", b"y", 1, retain=True)
    assert sent_publications(member)[0].stamp < STAMP_JUMP_MAX


def test_after_a_publication_for_a_group_that_does_not_get_it_all_goes_on() -> None:
    member = Member()
    resume(member)
    with pytest.raises(PeerError):
        member.receive(peer_messages.MESSAGE, marked(1, b"a", ("group", "other")))
    assert not member.shared.source


@pytest.mark.parametrize(
    "will",
    [
        Will(b"\xff", b""),
        Will(b"a/#", b""),
        Will(b"", b""),
        Will(b"$SYS/a", b""),
        Will(b"a", b"", 3),
        Will(b"a", b"", delay_seconds=-1),
        Will(b"a", b"", expiry_seconds=1 << 32),
    ],
)
def test_a_will_that_cannot_be_published_is_not_kept(will: Will) -> None:
    member = Member()
    kept = peer_messages.WillCopy("c", 1, member.shared.encode_will(will), None)
    with pytest.raises(PeerError):
        member.receive(
            peer_messages.WILLS, peer_messages.encode(peer_messages.WillsUpdate(True, [kept]))
        )


def wills_sent(member: Member) -> list[tuple[str, bool, list[str]]]:
    """To whom, whether it was told before is void, and whose."""
    member.mesh.tick(member.now)
    member.mesh.send_changes()
    frames = [(name, body) for name, kind, body in member.sent if kind == peer_messages.WILLS]
    member.sent.clear()
    told = [(name, decoded(peer_messages.wills_update_decoder, body)) for name, body in frames]
    return [(name, one.is_whole, [will.client_id for will in one.wills]) for name, one in told]


def connect_peer(member: Member, name: str) -> None:
    member.mesh.peer_is_up(name)
    member.mesh.answered(name, peer_messages.ACK, peer_messages.encode(peer_messages.StreamAck(0)))
    member.mesh.peer_is_live(name, False)  # nobody waits for it


def test_one_peer_keeps_our_wills_and_no_other_does() -> None:
    """By name: here, later, latest."""
    member = Member()
    connect_peer(member, "latest")
    member.client("c", will=Will(b"wills/c", b""))
    assert wills_sent(member) == [("latest", True, ["c"])]
    connect_peer(member, "later")
    assert wills_sent(member) == [("later", True, ["c"]), ("latest", True, [])]
    assert wills_sent(member) == []
    # One that is late is replaced, and told so; one that is all there is stays.
    later = member.mesh.outbox("later")
    later.is_stalled = True
    assert wills_sent(member) == [("latest", True, ["c"]), ("later", True, [])]
    member.mesh.outbox("latest").is_stalled = True
    member.client("d", will=Will(b"wills/d", b""))
    assert wills_sent(member) == [("latest", False, ["d"])]
    # A new connection: who is at its end may have wills from before.
    member.mesh.peer_is_down("later")
    connect_peer(member, "later")
    assert wills_sent(member) == [("later", True, ["c", "d"]), ("latest", True, [])]
    member.mesh.peer_is_down("latest")
    connect_peer(member, "latest")
    assert wills_sent(member) == [("latest", True, [])]


def test_a_former_keeper_hears_that_its_will_copies_are_void() -> None:
    member = Member()
    connect_peer(member, "later")
    connect_peer(member, "latest")
    member.client("c", will=Will(b"wills/c", b""))
    assert wills_sent(member) == [("later", True, ["c"]), ("latest", True, [])]
    member.refuses = {"later"}
    member.client("d", will=Will(b"wills/d", b""))
    assert wills_sent(member) == []
    member.mesh.outbox("later").is_stalled = True
    assert wills_sent(member) == [("latest", True, ["c", "d"])]
    member.refuses.clear()
    assert wills_sent(member) == [("later", True, [])]


def test_remaining_will_delay_is_bounded_if_our_clock_was_set_back() -> None:
    member = Member()
    client = member.client("c", **PERSISTENT, will=Will(b"wills/c", b"", delay_seconds=SECONDS_MAX))
    client.lose()
    member.now -= 1_000
    member.shared.now = member.now
    connect_peer(member, "later")
    assert wills_sent(member) == [("later", True, ["c"])]  # and can be read
