"""Two brokers that exchange their groups over connections that break."""

from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dovetail.broker.peering import group_exchange, peer_messages
from dovetail.broker.peering.group_exchange import GroupExchange
from dovetail.broker.peering.groups import GroupPools, MemberCounts
from dovetail.broker.peering.peer_messages import GroupRow, GroupUpdate
from dovetail.broker.route import Group, GroupKey
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import Journal
from dovetail.broker.subscription_observer import SubscriptionObserver
from dovetail.errors import PeerError
from dovetail.settings import MqttSettings
from support.brokers.harness import Disk, commit

Frame = tuple[int, bytes]


class ExchangeSide(SubscriptionObserver):
    """A broker, as far as its groups go."""

    def __init__(self, disk: Disk, lineage: int) -> None:
        self.disk = disk
        self.sent: list[Frame] = []
        self.accepts = True
        self.shared = SharedState(MqttSettings(), Journal())
        self.router = Router(self.shared.limits)
        self.groups = GroupPools(self.router.cache.invalidate, Random(1))
        self.group_exchange = GroupExchange(
            self.shared, self.groups, lineage=lineage, send=self._send
        )
        self.group_exchange.restore(disk.state().peer_groups)
        self.router.observe(self)

    def group_changed(self, group: Group) -> None:
        self.group_exchange.group_changed(group)

    def _send(self, _name: str, kind: int, body: bytes) -> bool:
        if self.accepts:
            self.sent.append((kind, body))
        return self.accepts

    def session(self, number: int, expiry_seconds: int = 100) -> Session:
        session = Session(self.shared, number, f"c{number}")
        session.expiry_seconds = expiry_seconds
        return session

    def commit(self, works: bool = True) -> None:
        commit(self.shared, self.disk, works=works)

    def receive(self, frame: Frame) -> list[Frame]:
        """The answers, which may come when the disk has it."""
        answers: list[Frame] = []
        self.group_exchange.receive("owner", frame[1], lambda *answer: answers.append(answer))
        return answers

    def table(self, peer: str = "owner") -> dict[GroupKey, MemberCounts]:
        return {
            key: pool.peers[peer] for key, pool in self.groups.pools.items() if peer in pool.peers
        }


def own(side: ExchangeSide) -> dict[GroupKey, MemberCounts]:
    return {
        key: MemberCounts(group.connected, group.persistent)
        for key, group in side.router.groups.items()
        if group.connected or group.persistent
    }


filters = st.sampled_from(["$share/g/a", "$share/g/b/#", "$share/h/a", "$share/h/+"])


class GroupExchangeMachine(RuleBasedStateMachine):
    """Members come and go at the owner; frames and answers are lost, late, or arrive."""

    @initialize()
    def begin(self) -> None:
        self.lineage = 1
        self.peer_disk = Disk()
        self.owner = ExchangeSide(Disk(), 1)
        self.peer = ExchangeSide(self.peer_disk, 1)
        self.sessions = [self.owner.session(number, 100 * (number % 2)) for number in range(1, 5)]
        self.answers: list[list[Frame]] = []
        self.connect()

    @rule()
    def connect(self) -> None:
        self.owner.sent.clear()
        self.answers.clear()
        self.owner.group_exchange.peer_is_live("peer", True)
        self.owner.group_exchange.peer_is_up("peer", True)

    @rule(who=st.integers(0, 3), name=filters, qos=st.integers(0, 2))
    def subscribe(self, who: int, name: str, qos: int) -> None:
        self.owner.router.subscribe(self.sessions[who], name, qos, 0)
        self.owner.group_exchange.flush()

    @rule(who=st.integers(0, 3), name=filters)
    def unsubscribe(self, who: int, name: str) -> None:
        self.owner.router.unsubscribe(self.sessions[who], name)
        self.owner.group_exchange.flush()

    @rule(late=st.booleans())
    def carry(self, late: bool) -> None:
        if self.owner.sent:
            frame = self.owner.sent.pop(0)
            self.answers.append(self.peer.receive(frame))
            if late:  # the same again, as over a connection that was lost
                self.peer.receive(frame)

    @rule(works=st.booleans())
    def commit(self, works: bool) -> None:
        self.peer.commit(works)

    @rule()
    def carry_back(self) -> None:
        if self.answers and self.answers[0]:
            (answer,) = self.answers.pop(0)
            self.owner.group_exchange.answered("peer", *answer)

    @rule()
    def crash_peer(self) -> None:
        """It remembers who can be owed something, and learns the rest anew."""
        known = {key for key, one in self.peer.table().items() if one.kept}
        self.peer.commit()
        self.peer = ExchangeSide(self.peer_disk, 2)
        assert set(self.peer.table()) == known
        self.connect()

    def teardown(self) -> None:
        if not hasattr(self, "owner"):
            return
        known: list[bool] = []
        self.owner.group_exchange.when_known(1e9, lambda: known.append(True))
        for _ in range(10):
            self.carry(late=False)
            self.peer.commit()
            self.carry_back()
        assert self.peer.table() == own(self.owner)
        assert known == [True]


TestTelling = GroupExchangeMachine.TestCase


def told(*rows: GroupRow, since: int = -1, version: int = 5) -> Frame:
    return peer_messages.GROUPS, peer_messages.encode(GroupUpdate(7, since, version, list(rows)))


def test_what_builds_on_what_is_not_there_is_asked_for_whole() -> None:
    side = ExchangeSide(Disk(), 1)
    assert side.receive(told(since=3)) == [(peer_messages.GROUPS_LOST, b"")]
    side.receive(told(GroupRow("g", "a", 1, 0), version=4))
    side.receive(told(GroupRow("g", "a", 0, 0), GroupRow("g", "b", 2, 0), since=4))
    assert side.table() == {("g", "b"): MemberCounts(2, 0)}
    side.receive(told(GroupRow("g", "old", 1, 0), version=4))  # it comes late
    assert side.table() == {("g", "b"): MemberCounts(2, 0)}


def test_a_broker_that_lost_its_folder_and_whose_clock_is_behind_is_heard() -> None:
    peer = ExchangeSide(Disk(), 2)
    for lineage, name in [(100, "$share/old/a"), (99, "$share/new/a")]:
        owner = ExchangeSide(Disk(), lineage)
        owner.router.subscribe(owner.session(1), name, 1, 0)
        owner.group_exchange.peer_is_live("peer", True)
        owner.group_exchange.peer_is_up("peer", True)
        known: list[str] = []
        owner.group_exchange.when_known(1.0, partial(known.append, name))
        for _ in range(3):
            for frame in owner.sent[:]:
                owner.sent.remove(frame)
                answers = peer.receive(frame)
                peer.commit()
                for answer in answers:
                    owner.group_exchange.answered("peer", *answer)
        assert known == [name]
        assert not owner.sent
        assert peer.table() == own(owner)


def test_groups_are_acknowledged_when_they_are_on_disk() -> None:
    side = ExchangeSide(Disk(), 1)
    answers = side.receive(told(GroupRow("g", "a", 1, 1)))
    again = side.receive(told(GroupRow("g", "a", 1, 1)))
    assert (answers, again) == ([], [])
    side.commit(works=False)
    assert (answers, again) == ([], [])
    side.commit()
    assert [kind for kind, _ in answers + again] == [peer_messages.GROUPS_KNOWN] * 2
    assert ExchangeSide(side.disk, 2).table() == {("g", "a"): MemberCounts(0, 1)}
    side.group_exchange.forget("owner")
    side.commit()
    assert ExchangeSide(side.disk, 2).table() == side.table() == {}


BROKEN = {
    "a name with a wildcard": GroupRow("+", "a", 1, 0),
    "a name with a separator": GroupRow("a/b", "a", 1, 0),
    "no name": GroupRow("", "a", 1, 0),
    "no filter": GroupRow("g", "", 1, 0),
    "a filter that is none": GroupRow("g", "a#", 1, 0),
    "fewer than none": GroupRow("g", "a", -1, 0),
}


@pytest.mark.parametrize("row", BROKEN.values(), ids=BROKEN)
def test_invalid_groups_are_refused(row: GroupRow) -> None:
    side = ExchangeSide(Disk(), 1)
    with pytest.raises(PeerError):
        side.receive(told(row))
    assert side.table() == {}


def test_too_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_exchange, "GROUPS_MAX", 2)
    side = ExchangeSide(Disk(), 1)
    side.receive(told(GroupRow("g", "a", 1, 0), GroupRow("g", "b", 1, 0), version=1))
    with pytest.raises(PeerError):
        side.receive(told(GroupRow("g", "c", 1, 0), since=1, version=2))
    side.receive(told(GroupRow("g", "c", 1, 0), GroupRow("g", "a", 0, 0), since=1, version=2))
    assert set(side.table()) == {("g", "b"), ("g", "c")}
    # Of ours, too: a client is refused, and what was there before is served here alone.
    session = side.session(1)
    for name in ("a", "b", "c"):
        side.router.subscribe(session, f"$share/mine/{name}", 1, 0)
    assert not side.group_exchange.has_room_for(("mine", "d"))
    assert side.group_exchange.has_room_for(("mine", "a"))
    assert ("mine", "c") in side.groups.pools
    side.group_exchange.peer_is_up("owner", True)
    ((_, body),) = side.sent
    assert len(peer_messages.decoded(peer_messages.group_update_decoder, body).rows) == 2


def test_bytes_of_all_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_exchange, "GROUPS_BYTES_MAX", 1_000)
    side = ExchangeSide(Disk(), 1)
    with pytest.raises(PeerError):
        side.receive(told(GroupRow("g", "a" * 1_000, 1, 0)))
    assert not side.group_exchange.has_room_for(("g", "a" * 1_000))


@given(st.binary(max_size=60))
def test_random_bytes(body: bytes) -> None:
    side = ExchangeSide(Disk(), 1)
    try:
        side.receive((peer_messages.GROUPS, body))
    except PeerError:
        assert side.table() == {}


def test_waiting_ends_at_the_deadline() -> None:
    side = ExchangeSide(Disk(), 1)
    side.group_exchange.peer_is_live("slow", True)
    acted: list[str] = []
    side.group_exchange.when_known(1.0, lambda: acted.append("first"))
    side.group_exchange.when_known(5.0, lambda: acted.append("second"))
    assert side.group_exchange.tick(0.5) == 0
    assert side.group_exchange.tick(1.5) == 1
    assert acted == ["first"]
    side.group_exchange.forget("slow")
    assert acted == ["first", "second"]


def test_a_group_with_nobody_to_give_to_is_none() -> None:
    """A member that is away and takes QoS 0 only."""
    side = ExchangeSide(Disk(), 1)
    group: Group
    session = side.session(1)
    side.router.subscribe(session, "$share/g/a", 0, 0)
    (group,) = side.router.groups.values()
    assert (group.connected, group.persistent) == (0, 0)
    side.group_exchange.peer_is_up("owner", True)
    ((_, body),) = side.sent
    assert peer_messages.decoded(peer_messages.group_update_decoder, body).rows == []
