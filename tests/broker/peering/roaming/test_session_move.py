"""Session moves, one control message at a time: valid and invalid ones, and their effect."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.broker.limits import HOLD_SECONDS_MAX
from dovetail.broker.peering import peer_messages
from dovetail.broker.peering.control_messages import (
    CONTROL_TOPIC,
    ControlMessage,
    HandoverFilters,
    HandoverHeader,
    HandoverMessage,
    HandoverReady,
    RedirectEnd,
    RerouteMarker,
    RerouteRequest,
    pack,
    unpack,
)
from dovetail.broker.peering.limits import STAMP_MAX
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.peer_messages import ClaimReply, ClaimRequest, decoded, encode
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.peering.roaming import reconciliation
from dovetail.broker.peering.roaming.claim import MOVED, MOVES, NEWER, NOTHING
from dovetail.broker.peering.roaming.directory import SessionDirectory
from dovetail.broker.peering.roaming.limits import (
    CLAIM_WAIT_SECONDS,
    MOVE_SECONDS_MAX,
    REROUTE_AGAIN_SECONDS,
)
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.codec.packets import Connack, Publish, Will
from dovetail.errors import ClientError, PeerError, ReasonCode
from dovetail.limits import FORGET_SECONDS
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.sketches.wire import sketch_to_bytes
from support.brokers.harness import PERSISTENT, Client, World

LATER = 1 << 61
"""A stamp of a connection that is after all others of a test, and before `LATEST`."""
LATEST = LATER + 10
TAKEOVER = OwnershipRules(allows_takeover=True)


class Member(World):
    """A broker in a cluster whose peers are played by the test: `peer` is up, `other` may be."""

    def __init__(self, *args: object, **limits: object) -> None:
        self.sent: list[tuple[str, int, bytes]] = []
        self.answers: list[ClaimReply] = []
        self.verdicts: list[Callable[[ClaimRequest], ClaimReply]] = []
        """The peers' answers to the next claims. By default they have nothing."""
        self.is_silent = False
        self.up = {"peer"}
        self.sequences = {"peer": 0, "other": 0}
        super().__init__(*args, **limits)  # type: ignore[arg-type]
        self.connect_peer("peer")

    def membership(self) -> ClusterMembership:
        return ClusterMembership("here", 1, 1, 0, self.send)

    @property
    def mesh(self) -> Mesh:
        assert self.broker.mesh is not None
        return self.broker.mesh

    def send(self, peer: str, kind: int, body: bytes) -> bool:
        if peer in self.up:
            self.sent.append((peer, kind, body))
        return peer in self.up

    def connect_peer(self, name: str) -> None:
        self.up.add(name)
        self.mesh.peer_is_up(name)
        self.mesh.answered(name, peer_messages.ACK, encode(peer_messages.StreamAck(0)))
        self.mesh.peer_is_live(name, False)  # who subscribes does not wait for it
        resume = encode(peer_messages.StreamResume(len(name) * 100, False))
        self.mesh.receive(name, peer_messages.RESUME, resume, lambda *_: None)
        self.mesh.peer_is_live(name, False)

    def lose_peer(self, name: str) -> None:
        self.up.discard(name)
        self.mesh.peer_is_down(name)

    def settle(self) -> None:
        super().settle()
        if self.is_silent:
            return
        claims = [(peer, body) for peer, kind, body in self.sent if kind == peer_messages.CLAIM]
        self.sent = [frame for frame in self.sent if frame[1] != peer_messages.CLAIM]
        for peer, body in claims:
            claim = decoded(peer_messages.claim_decoder, body)
            answer = ClaimReply(claim.client_id, claim.stamp, NOTHING)
            if self.verdicts:
                answer = self.verdicts.pop(0)(claim)
            self.mesh.answered(peer, peer_messages.CLAIMED, encode(answer))
            super().settle()

    def claimed(self, client_id: str, stamp: int = LATER, **fields: object) -> list[ClaimReply]:
        """The client has connected at the peer; what it is answered."""
        terms = {"user": None, "is_clean": False} | fields
        body = encode(ClaimRequest(client_id, stamp, **terms))  # type: ignore[arg-type]
        self.mesh.receive("peer", peer_messages.CLAIM, body, self._answered)
        self.settle()
        answers, self.answers = self.answers, []
        return answers

    def _answered(self, kind: int, body: bytes) -> None:
        if kind == peer_messages.CLAIMED:
            self.answers.append(decoded(peer_messages.claimed_decoder, body))

    def take(self, *messages: ControlMessage, origin: str = "peer") -> None:
        for message in messages:
            self.take_raw(pack(message).payload, origin)

    def take_raw(self, payload: bytes, origin: str = "peer") -> None:
        self.sequences[origin] += 1
        self._receive(origin, CONTROL_TOPIC, payload)

    def publish_from(self, origin: str, topic: bytes, payload: bytes) -> None:
        self.sequences[origin] += 1
        self._receive(origin, topic, payload)

    def _receive(self, origin: str, topic: bytes, payload: bytes) -> None:
        publication = peer_messages.ForwardedPublication(
            self.sequences[origin], topic, payload, 2, False, b"", None, "", 0
        )
        self.mesh.receive(origin, peer_messages.MESSAGE, encode(publication), lambda *_: None)
        self.settle()

    def sent_controls(self, to: str = "peer") -> list[ControlMessage]:
        """Since the last time; the peer says that it has them."""
        frames = [
            body for name, kind, body in self.sent if (name, kind) == (to, peer_messages.MESSAGE)
        ]
        self.sent = [frame for frame in self.sent if frame[0] != to]
        found = [decoded(peer_messages.publication_decoder, body) for body in frames]
        if found:
            self.mesh.answered(
                to, peer_messages.ACK, encode(peer_messages.StreamAck(found[-1].sequence))
            )
            self.settle()
        return [unpack(one.payload) for one in found if one.topic == CONTROL_TOPIC]

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        self.shared.now = self.now
        self.mesh.tick(self.now)
        self.settle()

    @property
    def arriving(self) -> int:
        return len(self.mesh.session_moves._redirects.arriving)


def header(client_id: str = "c", stamp: int = LATER, **fields: object) -> HandoverHeader:
    known = {
        "stamp_before": 5,
        "void_before": 0,
        "user": None,
        "expiry_seconds": 1_000,
        "next_packet_id": 7,
        "incoming": [],
        "sources": ["here", "peer", "other"],
        "behind": [],
        "is_loss_unconfirmed": False,
    }
    return HandoverHeader(client_id, stamp, **(known | fields))  # type: ignore[arg-type]


def entry(
    payload: bytes, client_id: str = "c", stamp: int = LATER, **fields: object
) -> HandoverMessage:
    known: dict[str, object] = {
        "user": None,
        "topic": b"a",
        "payload": payload,
        "message_qos": 1,
        "message_retain": False,
        "properties": b"",
        "expires_at": None,
        "origin": "",
        "qos": 1,
        "retain": False,
        "packet_id": 0,
        "released": False,
        "identifiers": (),
    }
    return HandoverMessage(client_id, stamp, **(known | fields))  # type: ignore[arg-type]


def filters(*names: str, client_id: str = "c", stamp: int = LATER) -> HandoverFilters:
    return HandoverFilters(client_id, stamp, [(name, 1, 0) for name in names])


def kept_client(member: Member, client_id: str = "c", **fields: object) -> Client:
    client = member.client(client_id, **PERSISTENT, **fields)
    client.subscribe("a", qos=1)
    return client


def take_empty_sketch(member: Member, origin: str) -> None:
    """A broker says that it has nothing."""
    sketch = sketch_to_bytes(LinesSketch.sized_for(10, 0.01, seed=0, lineage=5))
    whole = encode(peer_messages.SketchPart(0, len(sketch), sketch))
    member.mesh.receive(origin, peer_messages.WHOLE, whole, lambda *_: None)


def take_trace(member: Member, origin: str, client_id: str) -> None:
    """A broker says that it has a session of this client."""
    sent: list[tuple[int, bytes]] = []
    there = SketchExchange(seed=0, lineage=5, send=_keep(sent), changed=lambda _: None)
    there.peer_is_up("here", True)
    SessionDirectory(there).set_trace(client_id, True)
    there.answered("here", *member.mesh.sketch_exchange.receive(origin, *sent.pop()))
    there.flush()
    member.mesh.sketch_exchange.receive(origin, *sent.pop())


def _keep(sent: list[tuple[int, bytes]]) -> Callable[[str, int, bytes], bool]:
    def send(_name: str, kind: int, body: bytes) -> bool:
        sent.append((kind, body))
        return True

    return send


def payloads(client: Client) -> list[bytes]:
    packets = [*client.early, *client.take()]
    client.early = []
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


# It goes ------------------------------------------------------------------------------------------


def test_a_session_goes_whole_and_what_comes_for_it_follows() -> None:
    member = Member()
    client = kept_client(member)
    client.lose()
    member.client("p").publish("a", b"1", 1)
    assert [answer.verdict for answer in member.claimed("c")] == [MOVES]
    first, second, third, last = member.sent_controls()
    assert isinstance(first, HandoverHeader)
    assert (first.stamp, first.sources) == (LATER, ["here", "peer"])
    assert second == filters("a")
    assert third == HandoverReady("c", LATER)
    assert isinstance(last, HandoverMessage)
    assert last.payload == b"1"
    assert not member.broker.sessions.keys() - {"p"}
    # The ghost redirects until we write our marker, and the peer its own.
    member.client("q").publish("a", b"2", 1)
    member.publish_from("peer", b"a", b"3")
    assert [
        message.payload
        for message in member.sent_controls()
        if isinstance(message, HandoverMessage)
    ] == [
        b"2",
        b"3",
    ]
    member.take(RerouteRequest("c", LATER, "peer", ["here"], False, None, False, 0, 0))
    # Nobody is waited for who is not said to live.
    assert member.sent_controls() == [
        RerouteMarker("c", LATER, "peer", False, None),
        RedirectEnd("c", LATER),
    ]
    assert member.mesh.session_moves.ghosts
    member.client("r").publish("a", b"4", 1)
    assert not any(isinstance(message, HandoverMessage) for message in member.sent_controls())
    member.take(RerouteMarker("c", LATER, "peer", False, None))
    assert member.sent_controls() == []
    assert member.mesh.session_moves.ghosts == {}
    assert not any(row.client_id == "c" for row in member.disk.state().sessions.values())


@pytest.mark.parametrize("crashes", [False, True])
def test_a_marker_about_the_way_to_here_leaves_the_way_from_here_open(crashes: bool) -> None:
    """The client came back here, and went to the peer before it was let in."""
    member = Member()
    kept_client(member).lose()
    member.is_silent = True
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    assert client.take() == []  # it waits for what the peer says
    stamp = member.mesh.session_moves._claimant.newest("c", None)
    assert member.broker.sessions["c"].stamp < stamp < LATER
    client.lose()
    if crashes:
        member = Member(member.disk, now=member.now)
    assert [answer.verdict for answer in member.claimed("c")] == [MOVES]
    member.sent_controls()
    member.take(RerouteMarker("c", stamp, "here", False, None))
    member.publish_from("peer", b"a", b"1")
    assert [
        message.payload
        for message in member.sent_controls()
        if isinstance(message, HandoverMessage)
    ] == [b"1"]
    member.take(RerouteMarker("c", LATER, "peer", False, None))
    member.publish_from("peer", b"a", b"2")
    assert not any(isinstance(message, HandoverMessage) for message in member.sent_controls())


@pytest.mark.parametrize("crashes", [False, True])
def test_publications_for_a_client_that_was_not_let_in_follow_its_session(crashes: bool) -> None:
    """They come here for a later connection than the one that the session has moved for."""
    member = Member()
    kept_client(member).lose()
    assert [answer.verdict for answer in member.claimed("c")] == [MOVES]
    if crashes:
        sequences = member.sequences
        member = Member(member.disk, now=member.now)
        member.sequences = sequences
    member.sent_controls()
    member.take(RerouteMarker("c", LATEST, "here", False, None))
    member.publish_from("peer", b"a", b"1")
    assert redirected(member) == [b"1"]
    # It comes back. What the peer publishes takes the old way until its marker is here.
    arrives = header(stamp=LATEST, stamp_before=LATER)
    member.take(arrives, filters("a", stamp=LATEST), HandoverReady("c", LATEST))
    member.publish_from("peer", b"a", b"2")
    assert redirected(member) == [b"2"]
    member.take(RerouteMarker("c", LATEST, "here", False, None))
    member.publish_from("peer", b"a", b"3")
    assert redirected(member) == []
    (waiting,) = member.broker.sessions["c"].queue.messages()
    assert waiting.message.payload == b"3"


def test_a_session_that_needs_no_markers_closes_an_earlier_ghost() -> None:
    """After a cut everything reaches it directly."""
    member = Member()
    kept_client(member).lose()
    member.claimed("c")
    arrives = header(stamp=LATEST, stamp_before=LATER, sources=[])
    member.take(
        arrives,
        filters("a", stamp=LATEST),
        HandoverReady("c", LATEST),
        RedirectEnd("c", LATEST),
    )
    assert member.broker.sessions["c"].redirect is None
    member.take(RerouteMarker("c", LATEST, "here", False, None))
    member.sent_controls()
    member.publish_from("peer", b"a", b"1")
    assert redirected(member) == []
    (waiting,) = member.broker.sessions["c"].queue.messages()
    assert waiting.message.payload == b"1"


def redirected(member: Member) -> list[bytes]:
    """Return what went on to the peer since the last time."""
    controls = member.sent_controls()
    return [message.payload for message in controls if isinstance(message, HandoverMessage)]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_session_on_its_way_is_found_here_until_it_is_there(crashes: bool) -> None:
    """Or who asks while we are down would take it for none."""
    member = Member()
    kept_client(member).lose()
    without = member.mesh.sketch_exchange.sketch.elements
    assert [answer.verdict for answer in member.claimed("c")] == [MOVES]
    if crashes:
        member = Member(member.disk, now=member.now)
    session_moves = member.mesh.session_moves
    assert {*session_moves._directory._clients} == {"c"}
    assert member.mesh.sketch_exchange.sketch.elements == without
    member.take(RerouteMarker("c", LATER, "peer", False, None))
    assert not session_moves._directory._clients
    assert session_moves.ghosts  # for what we publish ourselves


def test_messages_that_follow_a_session_on_its_way_do_not_hide_it() -> None:
    """They came without it, and leave while it is not confirmed. Its new broker asks again."""
    member = Member()
    kept_client(member).lose()
    assert [answer.verdict for answer in member.claimed("c", LATER)] == [MOVES]
    member.take(header(stamp=LATER - 1, stamp_before=NEVER_BEGUN), HandoverReady("c", LATER - 1))
    assert member.broker.sessions["c"].stamp == NEVER_BEGUN
    for _ in range(3):
        (answer,) = member.claimed("c", LATER)
        assert (answer.verdict, answer.owner) == (MOVED, "peer")
    member = Member(member.disk, now=member.now)
    (answer,) = member.claimed("c", LATER)
    assert (answer.verdict, answer.owner) == (MOVED, "peer")


def test_who_asks_for_an_earlier_connection_is_told_so() -> None:
    member = Member()
    kept_client(member)
    (answer,) = member.claimed("c", stamp=1)
    assert (answer.verdict, answer.is_void) == (NEWER, False)
    assert answer.connection == member.broker.sessions["c"].stamp
    assert member.sent_controls() == []


@pytest.mark.parametrize("terms", [{"is_clean": True}, {"user": "somebody"}])
def test_a_clean_start_elsewhere_and_another_user_who_may_come_get_nothing(
    terms: dict[str, object],
) -> None:
    member = Member(ownership=TAKEOVER)
    client = kept_client(member)
    member.auto_commit = False
    assert member.claimed("c", LATER, **terms) == []  # a crash would bring it back
    client.assert_ended(ReasonCode.SESSION_TAKEN_OVER)
    member.commit_all()
    assert [answer.verdict for answer in member.answers] == [NOTHING]
    assert member.sent_controls() == []
    assert member.disk.state().sessions == {}


def test_a_clock_that_jumps_before_a_start_ends_no_move() -> None:
    """Other brokers' messages still come through here, whatever the time is now."""
    member = Member()
    kept_client(member)
    member.claimed("c")
    assert member.mesh.session_moves.ghosts
    again = Member(member.disk, now=member.now + 2 * FORGET_SECONDS)
    again.pass_time(1)
    assert again.mesh.session_moves.ghosts
    again.pass_time(FORGET_SECONDS)
    assert again.mesh.session_moves.ghosts == {}


def test_a_session_that_ended_before_is_off_the_disk_before_there_is_said_to_be_none() -> None:
    member = Member()
    client = kept_client(member)
    member.auto_commit = False
    client.disconnect(session_expiry_seconds=0)
    assert member.claimed("c") == []
    member.commit_all()
    assert [answer.verdict for answer in member.answers] == [NOTHING]


@pytest.mark.parametrize(("delay_seconds", "published"), [(0, [b"gone"]), (10, [])])
def test_a_will_is_published_unless_its_delay_lets_the_client_come_back(
    delay_seconds: int, published: list[bytes]
) -> None:
    member = Member()
    watcher = member.client("w")
    watcher.subscribe("will")
    kept_client(member, will=Will(b"will", b"gone", delay_seconds=delay_seconds))
    assert [answer.verdict for answer in member.claimed("c")] == [MOVES]
    assert watcher.payloads() == published
    member.pass_time(20)
    assert watcher.payloads() == []


# It comes -----------------------------------------------------------------------------------------


def test_a_session_comes_and_its_client_goes_on() -> None:
    member = Member()
    member.connect_peer("other")
    member.verdicts += [
        lambda claim: ClaimReply("c", claim.stamp, NOTHING),  # `other`: they are asked by name
        lambda claim: ClaimReply("c", claim.stamp, MOVES),
    ]
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    assert client.take() == []  # it waits for its session
    stamp = member.mesh.session_moves._claimant.newest("c", None)
    member.take(
        header(stamp=stamp, incoming=[9]),
        filters("a", "b/#", stamp=stamp),
        entry(b"under way", stamp=stamp, qos=2, packet_id=3),
        HandoverReady("c", stamp),
    )
    connack, first = client.take()
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert isinstance(first, Publish)
    assert (first.packet_id, first.duplicate) == (3, True)
    assert member.broker.sessions["c"].incoming == {9}
    member.take(entry(b"waited", stamp=stamp))
    member.publish_from("peer", b"a", b"comes by way of the peer, too")
    member.publish_from("other", b"a", b"so does this")
    assert client.payloads() == [b"waited"]
    member.pass_time(0.3)  # our sketch is known, or that late
    marker = RerouteMarker("c", stamp, "here", False, None)
    assert marker in member.sent_controls()
    member.client("p").publish("a", b"straight", 1)
    assert client.payloads() == []  # behind what is still arriving
    member.take(entry(b"at last", stamp=stamp), RedirectEnd("c", stamp))
    assert client.payloads() == [b"at last", b"straight"]
    member.take(marker)
    member.take(marker, origin="other")
    assert member.broker.sessions["c"].redirect is None
    assert member.arriving == 0


def arrived(member: Member) -> None:
    """A session whose client was on its way, and is not any more."""
    member.take(header(), filters("a"), HandoverReady("c", LATER))


@pytest.mark.parametrize("crashes", [False, True])
def test_what_is_still_arriving_is_not_waited_for_for_ever(crashes: bool) -> None:
    member = Member()
    arrived(member)
    if crashes:
        member = Member(member.disk, now=member.now)
    client = member.client("c", **PERSISTENT)
    assert client.connack is not None
    assert client.connack.session_present
    member.pass_time(0.3)
    member.client("p").publish("a", b"x", 1)
    member.pass_time(HOLD_SECONDS_MAX)
    assert payloads(client) == [b"x"]


def test_a_session_that_ends_while_it_arrives_leaves_nothing_behind() -> None:
    member = Member()
    arrived(member)
    assert member.arriving == 1
    member.client("c", clean_start=True)
    member.pass_time(REROUTE_AGAIN_SECONDS)
    assert member.arriving == 0
    member.sent_controls()
    member.pass_time(REROUTE_AGAIN_SECONDS)
    assert member.sent_controls() == []


def test_brokers_hear_that_a_session_has_ended_that_they_handed_over() -> None:
    member = Member()
    arrived(member)
    client = member.client("c", **PERSISTENT)
    member.sent_controls()
    client.disconnect(session_expiry_seconds=0)
    (answer,) = member.claimed("c", LATEST)
    ended = answer.connection
    assert (answer.verdict, ended >= LATER) == (NOTHING, True)
    member.take(entry(b"comes too late"))
    assert "c" not in member.broker.sessions
    assert RerouteMarker("c", ended, "here", True, None) in member.sent_controls()
    (answer,) = member.claimed("c", LATEST + 1)
    assert (answer.verdict, answer.connection) == (NOTHING, NEVER_BEGUN)


@pytest.mark.parametrize("crashes", [False, True])
def test_nothing_is_handed_on_for_a_session_that_has_ended(crashes: bool) -> None:
    member = Member()
    client = kept_client(member)
    client.subscribe("$share/g/a", qos=1)
    assert [answer.verdict for answer in member.claimed("c")] == [MOVES]
    member.sent_controls()
    member.take(RerouteMarker("c", LATER, "peer", True, None))
    if crashes:
        member = Member(member.disk, now=member.now)
    assert member.mesh.session_moves.ghosts == {}
    assert not member.mesh.session_moves._directory._clients
    member.client("q").publish("a", b"for nobody", 1)
    assert not any(isinstance(message, HandoverMessage) for message in member.sent_controls())


@pytest.mark.parametrize(
    "terms",
    [{"clean_start": True}, {**PERSISTENT, "user": "somebody"}],
    ids=["clean", "another user"],
)
def test_what_was_promised_to_one_is_not_for_another(terms: dict[str, object]) -> None:
    member = Member(ownership=TAKEOVER)
    arrived(member)
    client = member.client("c", **terms)
    assert client.connack is not None
    assert not client.connack.session_present
    dropped = member.shared.counters.publishes_dropped
    stamp = member.broker.sessions["c"].stamp
    member.take(header(stamp_before=6, sources=[]), entry(b"secret"), HandoverReady("c", LATER))
    assert stamp == member.broker.sessions["c"].stamp
    assert payloads(client) == []
    assert member.shared.counters.publishes_dropped == dropped + 1


def test_what_waited_at_a_broker_comes_after_its_client_began_without() -> None:
    member = Member()
    client = member.client("c", **PERSISTENT)
    member.take(header(stamp=5, stamp_before=3), filters("a", stamp=5))
    member.take(
        entry(b"was under way", stamp=5, qos=2, packet_id=3),
        entry(b"the client has it", stamp=5, qos=2, packet_id=4, released=True),
        HandoverReady("c", 5),
        entry(b"waited", stamp=5),
    )
    assert payloads(client) == [b"was under way", b"waited"]
    assert not member.broker.sessions["c"].subscriptions


def test_a_connection_that_is_not_the_clients_last_is_ended_by_what_comes_from_there() -> None:
    member = Member()
    client = kept_client(member)
    stamp = member.broker.sessions["c"].stamp
    member.take(header(stamp=LATER, stamp_before=stamp + 1))
    client.assert_ended(ReasonCode.SESSION_TAKEN_OVER)
    assert member.broker.sessions["c"].stamp == stamp + 1


@pytest.mark.parametrize("crashes", [False, True])
def test_what_is_still_on_its_way_to_an_earlier_session_is_not_lost(crashes: bool) -> None:
    """While we were down its client began anew at the peer; it is back before we have heard that.

    What `other` published before it changed its way waits for us behind all that it owes us.
    """
    member = Member()
    member.connect_peer("other")
    client = kept_client(member)
    client.lose()
    member.client("p").publish("a", b"waited here", 1)
    anew = member.broker.sessions["c"].stamp + 1
    member.take(header(stamp=LATER, stamp_before=anew), filters("a"), HandoverReady("c", LATER))
    member.sent_controls()
    assert member.broker.sessions["c"].stamp == anew
    if crashes:
        sequences = member.sequences
        member = Member(member.disk, now=member.now)
        member.connect_peer("other")
        member.sequences = sequences
    member.publish_from("other", b"a", b"for the earlier session")
    member.take(RerouteMarker("c", anew, "peer", False, None), origin="other")
    member.publish_from("other", b"a", b"by way of the peer")
    sent = [message for message in member.sent_controls() if isinstance(message, HandoverMessage)]
    assert [(message.stamp, message.payload) for message in sent] == [
        (anew, b"for the earlier session")
    ]
    member.take(entry(b"for the earlier session"), entry(b"by way of the peer"))
    member.take(RerouteMarker("c", LATER, "here", False, None), origin="other")
    member.publish_from("other", b"a", b"straight")
    member.take(RerouteMarker("c", LATER, "here", False, None), RedirectEnd("c", LATER))
    member.pass_time(HOLD_SECONDS_MAX)
    assert member.mesh.session_moves.ghosts == {}
    member.verdicts.append(lambda claim: ClaimReply("c", claim.stamp, NOTHING))
    back = member.client("c", **PERSISTENT)
    assert back.connack is not None
    assert back.connack.session_present
    assert sorted(payloads(back)) == [
        b"by way of the peer",
        b"for the earlier session",
        b"straight",
        b"waited here",
    ]


@pytest.mark.parametrize("is_void", [False, True])
def test_a_session_that_came_for_nobody_goes_where_its_client_is(is_void: bool) -> None:
    member = Member()
    member.verdicts.append(lambda claim: ClaimReply("c", claim.stamp, NEWER, LATEST, "", is_void))
    arrived(member)
    assert "c" not in member.broker.sessions
    member.pass_time(HOLD_SECONDS_MAX)  # for what comes by way of the peer
    messages = member.sent_controls()
    kinds = [
        type(message)
        for message in messages
        if not isinstance(message, RerouteRequest | RerouteMarker)
    ]
    assert kinds == (
        [] if is_void else [HandoverHeader, HandoverFilters, HandoverReady, RedirectEnd]
    )


# Brokers that are down, or not known --------------------------------------------------------------


def test_a_broker_that_is_down_is_told_once_where_its_client_is() -> None:
    """Nobody knows the sessions of a broker that was never met."""
    member = Member()
    member.lose_peer("peer")
    for _ in range(5):
        kept_client(member).lose()
    assert member.mesh.outbox("peer").count == 2  # a reroute request, and our own marker
    member.client("c", clean_start=True).lose()
    assert member.mesh.outbox("peer").count == 4  # what it has is void now


def test_a_broker_that_is_down_is_not_asked_for_its_marker_repeatedly() -> None:
    member = Member()
    member.mesh.peer_is_at("other", "")
    arrived(member)
    requests = 0
    for _ in range(20):
        member.pass_time(REROUTE_AGAIN_SECONDS)
        requests += sum(isinstance(message, RerouteRequest) for message in member.sent_controls())
    assert requests > 10  # who is up is
    assert member.mesh.outbox("other").count <= 1


def test_names_that_nobody_has_heard_of_make_no_brokers() -> None:
    member = Member()
    member.take(header(sources=["nobody"]), filters("a"), HandoverReady("c", LATER))
    member.take(RerouteRequest("d", LATER, "peer", ["nobody"], False, None, False, 0, 0))
    member.pass_time(REROUTE_AGAIN_SECONDS)
    assert member.mesh.names() == ("peer",)
    member.client("c", **PERSISTENT)
    member.pass_time(FORGET_SECONDS)
    assert member.arriving == 0


def test_reroute_requests_wait_once_for_each_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "REROUTES_WAITING_MAX", 3)
    member = Member()
    exchange = member.mesh.sketch_exchange
    is_known = False
    monkeypatch.setattr(exchange, "routes_by", lambda *_: is_known)
    for version in (1, 2, 3):
        for client_id in "abcde":
            message = RerouteRequest(
                client_id, 6, "other", ["peer"], False, None, False, 1, version
            )
            member.take(message)
    member.mesh.peer_is_at("other", "")
    member.pass_time(1)
    assert member.sent_controls() == []
    is_known = True
    member.pass_time(1)
    assert member.sent_controls() == [RerouteMarker(one, 6, "other", False, None) for one in "abc"]
    member.take(RerouteRequest("a", 7, "other", [], False, None, False, 1, 1))


def test_a_session_on_its_way_is_waited_for_and_then_the_client_is_turned_away() -> None:
    member = Member()
    member.verdicts.append(lambda claim: ClaimReply("c", claim.stamp, MOVES))
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    member.pass_time(MOVE_SECONDS_MAX - 1)
    assert client.take() == []
    member.pass_time(1)
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert connack.reason == ReasonCode.SERVER_BUSY
    assert "c" not in member.broker.sessions


def test_a_broker_that_does_not_answer_counts_as_down() -> None:
    member = Member()
    member.is_silent = True
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    assert client.take() == []
    member.pass_time(CLAIM_WAIT_SECONDS)
    # Its sketch is not known: it may have a session, and is connected. It may only be slow.
    assert client.take() == []
    assert not any(isinstance(message, RerouteRequest) for message in member.sent_controls())
    member.pass_time(MOVE_SECONDS_MAX)
    # All who are there have it on their disks.
    assert client.take() == []
    assert any(isinstance(message, RerouteRequest) for message in member.sent_controls())
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert connack.reason == ReasonCode.SUCCESS
    assert not connack.session_present


@pytest.mark.parametrize("possible_holders", [[], ["other"], ["nobody"]])
def test_what_others_know_of_a_broker_that_is_down(possible_holders: list[str]) -> None:
    """Its sketch says no here, and may have been a later one there."""
    member = Member()
    member.mesh.peer_is_at("other", "")
    take_empty_sketch(member, "other")
    member.verdicts.append(
        lambda claim: ClaimReply("c", claim.stamp, NOTHING, possible_holders=possible_holders)
    )
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    requests = [
        message for message in member.sent_controls() if isinstance(message, RerouteRequest)
    ]
    member.settle()
    assert [message.holders for message in requests] == (
        [["other"]] if possible_holders == ["other"] else []
    )
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert not connack.session_present


def test_what_is_said_of_a_broker_that_is_down() -> None:
    """Its sketch has a trace of one client, and none of another."""
    member = Member()
    member.mesh.peer_is_at("other", "")
    take_trace(member, "other", "c")
    (answer,) = member.claimed("c")
    assert (answer.verdict, answer.ruled_out, answer.possible_holders) == (NOTHING, [], ["other"])
    (answer,) = member.claimed("d")
    assert (answer.verdict, answer.ruled_out, answer.possible_holders) == (NOTHING, ["other"], [])


def test_who_is_cut_off_for_a_moment_is_asked_again() -> None:
    """Its answer, that the session moves, was lost with the connection."""
    member = Member()
    member.is_silent = True
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    member.lose_peer("peer")
    member.settle()
    assert client.take() == []  # it may only have been the connection
    member.is_silent = False
    member.verdicts.append(lambda claim: ClaimReply("c", claim.stamp, MOVED, 0, "here"))
    member.sent.clear()
    member.connect_peer("peer")
    stamp = member.mesh.session_moves._claimant.newest("c", None)
    member.settle()
    assert client.take() == []
    member.take(
        header(stamp=stamp, stamp_before=3), filters("a", stamp=stamp), HandoverReady("c", stamp)
    )
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert connack.session_present


def test_a_handle_is_not_unknown_because_its_broker_was_lost_while_it_was_asked() -> None:
    """Its sketch here may be an old one, and the others were not asked what they know of it."""
    member = Member()
    member.connect_peer("other")
    take_empty_sketch(member, "peer")
    take_empty_sketch(member, "other")
    member.is_silent = True
    ends: list[int | ClientError] = []
    member.mesh.session_moves.claim("c", None, False, ends.append, may_begin=False)
    stamp = member.mesh.session_moves._claimant.newest("c", None)
    nothing = encode(ClaimReply("c", stamp, NOTHING))
    member.mesh.answered("other", peer_messages.CLAIMED, nothing)
    assert ends == []
    member.lose_peer("peer")
    (end,) = ends
    assert isinstance(end, ClientError)
    assert end.reason == ReasonCode.SERVER_BUSY
    # Asked about it, the other one may know no sketch of it, as after a start.
    for ruled_out in ([], ["peer"]):
        member.mesh.session_moves.claim("c", None, False, ends.append, may_begin=False)
        stamp = member.mesh.session_moves._claimant.newest("c", None)
        nothing = encode(ClaimReply("c", stamp, NOTHING, ruled_out=ruled_out))
        member.mesh.answered("other", peer_messages.CLAIMED, nothing)
        assert isinstance(ends[-1], int) == bool(ruled_out)


def test_a_handle_is_not_unknown_because_another_broker_has_an_older_sketch() -> None:
    """Its broker hangs: it has told us of the handle, and not yet the other one."""
    member = Member()
    member.mesh.peer_is_at("other", "")
    take_trace(member, "other", "c")
    member.verdicts.append(
        lambda claim: ClaimReply(
            "c", claim.stamp, NOTHING, ruled_out=["other"], reached=claim.unreachable
        )
    )
    ends: list[int | ClientError] = []
    member.mesh.session_moves.claim("c", None, False, ends.append, may_begin=False)
    member.settle()
    (end,) = ends
    assert isinstance(end, ClientError)
    assert end.reason == ReasonCode.SERVER_UNAVAILABLE


def test_who_is_cut_off_for_longer_counts_as_down() -> None:
    member = Member()
    member.is_silent = True
    client = Client(member, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    member.lose_peer("peer")
    member.pass_time(CLAIM_WAIT_SECONDS)
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert not connack.session_present


@pytest.mark.parametrize("crashes", [False, True])
def test_half_a_session_whose_broker_went_down_does_not_count_as_one(crashes: bool) -> None:
    member = Member()
    stamp = 5
    member.take(header(stamp=stamp, stamp_before=3), filters("a", stamp=stamp))
    member.take(entry(b"has come", stamp=stamp, packet_id=9))
    if crashes:
        sequences = member.sequences
        member = Member(member.disk, now=member.now)
        member.sequences = sequences
    assert [answer.verdict for answer in member.claimed("c", 6)] == [MOVED]  # it is on its way here
    member.lose_peer("peer")
    client = member.client("c", **PERSISTENT)
    assert client.connack is not None
    assert not client.connack.session_present
    assert payloads(client) == [b"has come"]
    assert not member.broker.sessions["c"].subscriptions
    assert not any(
        key[0] == member.broker.sessions["c"].number for key in subscription_rows(member)
    )
    member.connect_peer("peer")
    member.take(
        filters("b", stamp=stamp), HandoverReady("c", stamp), entry(b"the rest", stamp=stamp)
    )
    assert payloads(client) == [b"the rest"]
    assert not member.broker.sessions["c"].subscriptions


def subscription_rows(member: Member) -> list[tuple[int, str]]:
    return list(member.disk.state().subscriptions)


@pytest.mark.parametrize("crashes", [False, True])
def test_a_client_that_missed_that_it_began_anew_is_told_again(crashes: bool) -> None:
    member = Member()
    member.lose_peer("peer")
    client = member.client("c", **PERSISTENT)  # it may have a session there
    client.lose()
    if crashes:
        member = Member(member.disk, now=member.now)
        member.lose_peer("peer")
    for _ in range(2):
        client = member.client("c", **PERSISTENT)
        assert client.connack is not None
        assert not client.connack.session_present
        client.lose()
    kept_client(member).lose()
    if crashes:
        member = Member(member.disk, now=member.now)
        member.lose_peer("peer")
    client = member.client("c", **PERSISTENT)
    assert client.connack is not None
    assert client.connack.session_present


def test_messages_that_came_before_their_session_have_rows_of_their_own() -> None:
    member = Member()
    member.is_silent = True
    member.take(entry(b"early"))
    member.take(header(stamp=LATEST), filters("a", stamp=LATEST), HandoverReady("c", LATEST))
    member.take(entry(b"waited", stamp=LATEST))
    again = Member(member.disk, now=member.now)
    queue = again.broker.sessions["c"].queue.messages()
    assert sorted(one.message.payload for one in queue) == [b"early", b"waited"]


def test_a_claim_ends_though_its_client_has_gone() -> None:
    member = Member()
    member.is_silent = True
    for number in range(10):
        client = Client(member, f"c{number}", **PERSISTENT)
        client.open()
        client.send(client.connect_packet)
        client.lose()
    assert len(member.mesh.session_moves._claimant._claims) == 10
    member.pass_time(CLAIM_WAIT_SECONDS)
    member.pass_time(MOVE_SECONDS_MAX)  # they may have had a session, and were slow
    member.pass_time(MOVE_SECONDS_MAX)  # for all to write that it begins anew
    assert member.mesh.session_moves._claimant._claims == {}


def test_a_broker_without_room_for_a_session_leaves_it_where_it_is() -> None:
    member = Member(sessions_max=1)
    member.client("first")
    member.sent.clear()
    member.is_silent = True
    client = Client(member, "second")
    assert client.connect().reason == ReasonCode.QUOTA_EXCEEDED
    assert member.sent == []  # nobody was asked for it


# What must not be ---------------------------------------------------------------------------------


def raw(message: ControlMessage, **fields: object) -> bytes:
    """Return an encoded message with invalid fields."""
    tag, *values = msgspec.msgpack.decode(pack(message).payload)
    names = list(message.__struct_fields__)
    for name, value in fields.items():
        values[names.index(name)] = value
    return msgspec.msgpack.encode([tag, *values])


BROKEN = {
    "not msgpack": b"\xc1",
    "no such item": msgspec.msgpack.encode([99, "c", 1]),
    "no client": raw(HandoverReady("c", 1), client_id=""),
    "a stamp of no clock": raw(HandoverReady("c", 1), stamp=STAMP_MAX),
    "a stamp before all": raw(HandoverReady("c", 1), stamp=-2),
    "a stamp that no database takes": raw(header(), stamp_before=(1 << 64) - 1),
    "packet identifier 0": raw(header(), next_packet_id=0),
    "a packet identifier too high": raw(header(), incoming=[1, 65_536]),
    "a session that does not last": raw(header(), expiry_seconds=0),
    "options that there are not": raw(filters("a"), filters=[["a", 64, 0]]),
    "a subscription identifier too high": raw(filters("a"), filters=[["a", 0, 1 << 28]]),
    "QoS 7": raw(entry(b""), qos=7),
    "QoS 0": raw(entry(b""), qos=0),
    "a message of QoS 3": raw(entry(b""), message_qos=3),
    "a packet identifier below 0": raw(entry(b""), packet_id=-1),
    "released at QoS 1": raw(entry(b"", packet_id=1), released=True),
    "released and not sent": raw(entry(b"", qos=2), released=True),
    "a time before all": raw(entry(b""), expires_at=-1.0),
    "a time that is no number": raw(entry(b""), expires_at=float("nan")),
}


@pytest.mark.parametrize("payload", BROKEN.values(), ids=BROKEN)
def test_an_invalid_control_message_ends_the_connection(payload: bytes) -> None:
    with pytest.raises(PeerError):
        Member().take_raw(payload)


def test_what_a_broker_with_other_rules_let_in_is_dropped_alone() -> None:
    member = Member()
    member.take(
        header(),
        filters("a/#/b", "", "$share/x", "x\0", "fine"),
        entry(b"", topic=b"a/+"),
        entry(b"", topic=b""),
        entry(b"", topic=b"\xff"),
        entry(b"fine"),
        HandoverReady("c", LATER),
    )
    session = member.broker.sessions["c"]
    assert list(session.subscriptions) == ["fine"]
    assert payloads(member.client("c", **PERSISTENT)) == [b"fine"]
    assert member.shared.counters.publishes_dropped == 3


def test_a_control_message_in_an_outbox_of_version_0_1_is_read() -> None:
    """There what expires had a time of day."""
    old = entry(b"x", expires_at=2e6)
    assert unpack(msgspec.msgpack.encode(old)) == old
    carrier = pack(old)
    assert carrier.expires_at == 2e6
    assert unpack(carrier.payload) == entry(b"x")
    assert unpack(carrier.payload, 3e6) == entry(b"x", expires_at=3e6)


def test_a_packet_identifier_comes_once() -> None:
    member = Member()
    member.take(header(), entry(b"1", qos=2, packet_id=3), entry(b"2", qos=2, packet_id=3))
    member.take(HandoverReady("c", LATER))
    client = member.client("c", **PERSISTENT)
    assert payloads(client) == [b"1", b"2"]
    assert len(member.broker.sessions["c"].inflight) == 2


def test_a_clock_that_is_wrong_by_decades_is_outrun() -> None:
    member = Member()
    member.take(RerouteMarker("nobody", STAMP_MAX - (1 << 58), "peer", False, None))
    member.client("c", **PERSISTENT)
    stamp = member.broker.sessions["c"].stamp
    assert STAMP_MAX - (1 << 58) < stamp < STAMP_MAX


_NAMES = st.sampled_from(["here", "peer", "other", "nobody", ""])
_CLIENTS = st.sampled_from(["c", "d"])
_STAMPS = st.sampled_from([-1, 0, 1, 5, LATER, LATEST])
_USERS = st.sampled_from([None, "u"])
_PACKET_IDS = st.sampled_from([0, 1, 2, 65_535])
_FILTERS = st.tuples(
    st.sampled_from(["a", "#", "$share/g/a", "a/#/b", "", "\0"]), st.integers(0, 63), st.just(0)
)


@st.composite
def _entries(draw: st.DrawFn) -> HandoverMessage:
    qos = draw(st.sampled_from([1, 2]))
    packet_id = draw(_PACKET_IDS)
    return entry(
        b"x",
        draw(_CLIENTS),
        draw(_STAMPS),
        user=draw(_USERS),
        topic=draw(st.sampled_from([b"a", b"", b"\xff", b"a/#"])),
        qos=qos,
        packet_id=packet_id,
        released=bool(qos == 2 and packet_id and draw(st.booleans())),
        expires_at=draw(st.sampled_from([None, 0.0, 2e9])),
    )


_ITEMS: st.SearchStrategy[ControlMessage] = st.one_of(
    st.builds(
        HandoverHeader,
        _CLIENTS,
        _STAMPS,
        _STAMPS,
        _STAMPS,
        _USERS,
        st.sampled_from([1, 1_000, 0xFFFF_FFFF]),
        _PACKET_IDS.filter(bool),
        st.lists(_PACKET_IDS.filter(bool), max_size=3),
        st.lists(_NAMES, max_size=3),
    ),
    st.builds(HandoverFilters, _CLIENTS, _STAMPS, st.lists(_FILTERS, max_size=3)),
    _entries(),
    st.builds(HandoverReady, _CLIENTS, _STAMPS),
    st.builds(RedirectEnd, _CLIENTS, _STAMPS),
    st.builds(
        RerouteRequest,
        _CLIENTS,
        _STAMPS,
        st.sampled_from(["here", "peer", "other"]),
        st.lists(_NAMES, max_size=3),
        st.booleans(),
        _USERS,
        st.booleans(),
        st.sampled_from([0, 1]),
        st.sampled_from([0, 9]),
    ),
    st.builds(
        RerouteMarker,
        _CLIENTS,
        _STAMPS,
        st.sampled_from(["here", "peer", "other"]),
        st.booleans(),
        _USERS,
    ),
)
_VERDICTS = st.builds(
    ClaimReply,
    _CLIENTS,
    _STAMPS,
    st.sampled_from([NOTHING, MOVES, MOVED, NEWER, 9]),
    _STAMPS,
    _NAMES,
    st.booleans(),
    ruled_out=st.lists(_NAMES, max_size=2),
    possible_holders=st.lists(_NAMES, max_size=2),
    reached=st.lists(_NAMES, max_size=2),
    contender=st.none() | _STAMPS,
)
_STEPS = st.one_of(
    _ITEMS, _VERDICTS, st.sampled_from(["connect", "lose", "claim", "time", "down", "up"])
)


@given(st.lists(_STEPS, max_size=25))
def test_control_messages_in_any_order_do_no_harm(
    steps: list[ControlMessage | ClaimReply | str],
) -> None:
    """Nothing breaks, and a client is served, whatever a peer sends and when."""
    member = Member()
    clients: list[Client] = []

    def lose() -> None:
        if clients:
            clients.pop().lose()

    def connect() -> None:
        client = Client(member, "c", **PERSISTENT)
        client.open()
        client.send(client.connect_packet)
        clients.append(client)

    deeds: dict[str, Callable[[], object]] = {
        "connect": connect,
        "lose": lose,
        "claim": lambda: member.claimed("c", LATER + 5),
        "time": lambda: member.pass_time(REROUTE_AGAIN_SECONDS),
        "down": lambda: member.lose_peer("peer"),
        "up": lambda: member.connect_peer("peer"),
    }
    for step in steps:
        if isinstance(step, ClaimReply):
            member.mesh.answered("peer", peer_messages.CLAIMED, encode(step))
        elif isinstance(step, str):
            deeds[step]()
        else:
            member.take(step)
        member.settle()
    again = Member(member.disk, now=member.now)
    for one in (member, again):
        one.lose_peer("peer")
        one.pass_time(HOLD_SECONDS_MAX)
        late = Client(one, "late", **PERSISTENT)
        late.open()
        late.send(late.connect_packet)
        for _ in range(3):
            one.pass_time(MOVE_SECONDS_MAX)
        late.take()
        late.subscribe("well", qos=1)
        late.publish("well", b"well", 0)
        assert late.payloads() == [b"well"]
