"""Tables of versioned records: merging, and deltas that may be cut and come in any order."""

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cluster.limits import NODE_RECORDS_MAX, RECORD_BYTES_MAX
from dovetail.cluster.membership import Delta, Digest, MembershipTable, NodeState
from dovetail.limits import CLUSTER_NODES_MAX

ROOM = 1 << 20


class HistoryOwner:
    """A node through its lives, with its whole history: every valid copy of it."""

    def __init__(self, name: str) -> None:
        self.table = MembershipTable(name, 1)
        self.history: dict[tuple[int, int], dict[str, bytes]] = {}
        self.note()

    def note(self) -> None:
        own = self.table.own
        said = {key: record.value for key, record in own.records.items()}
        self.history[own.incarnation, own.version] = said

    def put(self, key: str, value: bytes) -> None:
        self.table.put(key, value)
        self.note()

    def beat(self) -> None:
        self.table.beat()
        self.note()

    def restart(self) -> None:
        self.table = MembershipTable(self.table.name, self.table.own.incarnation + 1)
        self.note()

    def is_true(self, known: NodeState) -> bool:
        """A key may be missing that was to be overwritten later, but nothing is made up."""
        said = self.history[known.incarnation, known.version]
        return all(said[key] == record.value for key, record in known.records.items())


deeds = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.binary(max_size=20)),
    st.tuples(st.just("beat")),
    st.tuples(st.just("restart")),
)


def do(owner: HistoryOwner, deed: tuple[object, ...]) -> None:
    getattr(owner, str(deed[0]))(*deed[1:])


def whole(table: MembershipTable) -> list[Delta]:
    return table.deltas([Digest(name, 0, 0) for name in table], ROOM)


@given(st.lists(st.lists(deeds, max_size=6), min_size=3, max_size=4))
def test_tables_merge_in_any_order_to_the_same(lives: list[list[tuple[object, ...]]]) -> None:
    """What was known of one owner at several times, merged as it comes."""
    owner = HistoryOwner("x")
    states = []
    for deeds_then in lives:
        for deed in deeds_then:
            do(owner, deed)
        states.append(whole(owner.table))
    outcomes = []
    for order in permutations(states):
        table = MembershipTable("reader", 1)
        for deltas in (*order, order[0]):
            for delta in deltas:
                table.apply(delta)
        outcomes.append(table.nodes["x"])
    assert all(outcome == owner.table.own for outcome in outcomes)


@settings(max_examples=200)
@given(
    st.lists(deeds, max_size=25),
    st.integers(0, 1 << 30),
    st.integers(100, 300),
)
def test_cut_lost_and_late_deltas_never_make_up_a_history(
    deeds_in_all: list[tuple[object, ...]], seed: int, bytes_max: int
) -> None:
    random = Random(seed)
    owner = HistoryOwner("x")
    readers = [MembershipTable(f"reader-{number}", 1) for number in range(3)]
    on_their_way: list[tuple[MembershipTable, Delta]] = []
    for deed in deeds_in_all:
        do(owner, deed)
        source = random.choice([owner.table, *readers])
        target = random.choice(readers)
        lacking, _ = source.compare(target.digests())
        on_their_way += [(target, delta) for delta in source.deltas(lacking, bytes_max)]
        random.shuffle(on_their_way)
        while on_their_way and random.random() < 0.6:
            receiver, delta = on_their_way.pop()
            receiver.apply(delta)
            for reader in readers:
                known = reader.nodes.get("x")
                assert known is None or owner.is_true(known)
    for _ in range(60):  # each exchange brings at least one record
        for reader in readers:
            lacking, _ = owner.table.compare(reader.digests())
            for delta in owner.table.deltas(lacking, bytes_max):
                reader.apply(delta)
    assert all(reader.nodes["x"] == owner.table.own for reader in readers)


def test_compare_finds_what_either_side_lacks() -> None:
    one, other, third = (
        MembershipTable("one", 1),
        MembershipTable("other", 1),
        MembershipTable("third", 1),
    )
    third.put("a", b"1")
    for delta in whole(third):
        one.apply(delta)
    one.beat()
    they_lack, we_lack = one.compare(other.digests())
    assert {digest.name for digest in they_lack} == {"one", "third"}
    assert we_lack == [Digest("other", 0, 0)]
    assert one.compare(one.digests()) == ([], [])


def test_an_unchanged_value_is_no_news() -> None:
    table = MembershipTable("x", 1)
    table.put("a", b"1")
    version = table.own.version
    table.put("a", b"1")
    assert table.own.version == version


def test_who_others_know_from_a_later_life_goes_beyond_it() -> None:
    """Its clock went back before it was started again."""
    before = MembershipTable("x", 50)
    before.put("a", b"old")
    other = MembershipTable("other", 1)
    for delta in whole(before):
        other.apply(delta)
    again = MembershipTable("x", 20)
    again.put("a", b"new")
    for delta in other.deltas([Digest("x", 20, 1)], ROOM):
        again.apply(delta)
    assert again.own.incarnation == 51
    lacking, _ = again.compare(other.digests())
    for delta in again.deltas(lacking, ROOM):
        other.apply(delta)
    assert other.nodes["x"].value("a") == b"new"


def test_limits() -> None:
    table = MembershipTable("x", 1)
    with pytest.raises(ValueError, match="bytes"):
        table.put("a", bytes(RECORD_BYTES_MAX + 1))
    for number in range(NODE_RECORDS_MAX):
        table.put(f"key {number}", b"")
    with pytest.raises(ValueError, match="records"):
        table.put("one more", b"")
    for number in range(CLUSTER_NODES_MAX):
        table.introduce(f"node {number}", 1)
    assert len(table.nodes) == CLUSTER_NODES_MAX
    assert table.apply(Delta("one more", 1, 0, 1, ())) is None
