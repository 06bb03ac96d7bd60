"""Group pools against brute force, and how evenly they pick members."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail.broker.peering.groups import HERE, GroupPool, GroupPools, MemberCounts
from dovetail.broker.route import Group, GroupKey
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.broker.subscription import Subscription
from dovetail.settings import MqttSettings
from dovetail.topics.names import matches

PEERS = ["a", "b", "c"]
FILTERS = ["x", "x/y", "x/+", "x/#", "#", "+/y"]
TOPICS = ["x", "x/y", "x/y/z", "y", "$x/y"]
SHARED = SharedState(MqttSettings())

peers = st.sampled_from(PEERS)
keys = st.tuples(st.sampled_from(["g", "h"]), st.sampled_from(FILTERS))
phases = st.floats(0, 1, exclude_max=True)
members = st.builds(MemberCounts, st.integers(0, 3), st.integers(0, 3))


def group_of(key: GroupKey, *qos: int) -> Group:
    """With members that are away, and wait if their QoS lets them."""
    group = Group(key)
    for number, one in enumerate(qos, 1):
        session = Session(SHARED, number, f"c{number}")
        session.expiry_seconds = 100
        group.add(Subscription(session, f"$share/{key[0]}/{key[1]}", one, 0))
    return group


class GroupPoolsMachine(RuleBasedStateMachine):
    """Peers tell of their groups, all at once or one by one, and are forgotten."""

    @initialize()
    def begin(self) -> None:
        self.changed: list[str] = []
        self.groups = GroupPools(self.changed.append, Random(1))
        self.oracle: dict[tuple[str, GroupKey], MemberCounts] = {}
        self.known: set[GroupKey] = set()

    @rule(peer=peers, key=keys, some=members)
    def put(self, peer: str, key: GroupKey, some: MemberCounts) -> None:
        self.groups.put(peer, key, some)
        self.note(peer, key, some)

    @rule(key=keys, count=st.integers(0, 2))
    def put_here(self, key: GroupKey, count: int) -> None:
        group = group_of(key, *[1] * count)
        self.groups.put_here(group)
        self.note(HERE, key, MemberCounts(0, count))

    @rule(peer=peers, table=st.dictionaries(keys, members, max_size=4))
    def replace(self, peer: str, table: dict[GroupKey, MemberCounts]) -> None:
        self.groups.replace(peer, table)
        for name, key in [*self.oracle]:
            if name == peer:
                del self.oracle[name, key]
        for key, some in table.items():
            self.note(peer, key, some)

    def note(self, peer: str, key: GroupKey, some: MemberCounts) -> None:
        self.oracle.pop((peer, key), None)
        if any(some):
            self.oracle[peer, key] = some

    @invariant()
    def every_topic_finds_its_groups(self) -> None:
        there = {key for _, key in self.oracle}
        for topic, pools in zip(
            TOPICS, self.groups.search([topic.encode() for topic in TOPICS]), strict=True
        ):
            expected = {key for key in there if matches(key[1], topic)}
            assert {pool.key for pool in pools} == expected
            assert len(pools) == len(expected)
        # A group that came or went was told of, so that no route is older.
        assert {key[1] for key in there ^ self.known} <= set(self.changed)
        self.changed.clear()
        self.known = there

    @invariant()
    def pools_have_who_is_there(self) -> None:
        for key, pool in self.groups.pools.items():
            expected = {name: one for (name, other), one in self.oracle.items() if other == key}
            here = expected.pop(HERE, None)
            assert pool.peers == expected
            assert (pool.here is None) == (here is None)


TestTables = GroupPoolsMachine.TestCase


def oracle_of(pool: GroupPool, qos: int, up: set[str]) -> set[str]:
    """All brokers that may be picked, from the rules."""
    connected = {name for name, one in pool.peers.items() if one.connected}
    kept = {name for name, one in pool.peers.items() if one.kept and qos}
    return connected & up or kept & up or kept


@given(
    st.dictionaries(peers, members),
    st.integers(0, 2),
    st.sets(peers),
    phases,
)
def test_connected_members_come_before_others(
    table: dict[str, MemberCounts], qos: int, up: set[str], phase: float
) -> None:
    pool = GroupPool(("g", "x"), phase)
    pool.peers.update(table)
    allowed: set[str | None] = {*oracle_of(pool, qos, up)} or {None}
    picked = {pool.pick(qos, up.__contains__) for _ in range(50)}
    assert picked == allowed
    assert pool.pick(qos, up.__contains__, elsewhere=True) in allowed


@given(st.lists(st.integers(1, 10), min_size=1, max_size=8), phases)
def test_each_broker_gets_its_share(weights: list[int], phase: float) -> None:
    """Within some messages of what its members make, however many come."""
    pool = GroupPool(("g", "x"), phase)
    pool.peers.update({str(place): MemberCounts(one, 0) for place, one in enumerate(weights)})
    rounds = 1_000
    counts = Counter(pool.pick(0, lambda _: True) for _ in range(rounds))
    for place, weight in enumerate(weights):
        assert abs(counts[str(place)] - rounds * weight / sum(weights)) < 6


def test_our_own_members_count_like_others() -> None:
    groups = GroupPools(lambda _: None, Random(1))
    key = ("g", "x")
    groups.put_here(group_of(key, 1, 0))  # both away, and one of them at QoS 0
    groups.put("a", key, MemberCounts(0, 2))
    pool = groups.pools[key]
    here, there = groups.pick([pool], 1, lambda _: False)
    assert [one.key for one in here] == [key]
    assert there == {}
    assert pool.pick(1, lambda _: False, elsewhere=True) == "a"
    counts = Counter(pool.pick(1, lambda _: True) for _ in range(300))
    assert counts["a"] == pytest.approx(200, abs=6)
    assert pool.pick(0, lambda _: True) is None
    groups.put("a", key, MemberCounts(1, 2))
    assert pool.pick(0, lambda _: True) == "a"
    groups.put("a", key, MemberCounts(0, 0))
    assert pool.pick(2, lambda _: True) == HERE
