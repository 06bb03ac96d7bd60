"""Gossip messages, one node at a time; tests/sim tests whole clusters."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster.gossip import (
    Gossip,
    GossipAck,
    GossipAck2,
    GossipSyn,
    Presence,
    PresenceEvent,
    decode,
    encode,
)
from dovetail.cluster.membership import Delta, Digest, Record
from dovetail.errors import PeerError
from dovetail.limits import CLUSTER_NODES_MAX


def a_node(name: str, now: float = 0.0) -> Gossip:
    return Gossip(name, 1, now, Random(1))


def exchange(asking: Gossip, asked: Gossip, now: float) -> None:
    tell = asked.receive(decode(encode(GossipSyn(asking.table.digests()))), now)
    assert isinstance(tell, GossipAck)
    give = asking.receive(decode(encode(tell)), now)
    if give is not None:
        assert asked.receive(decode(encode(give)), now) is None


def test_one_exchange_brings_both_up_to_date() -> None:
    one, other = a_node("one"), a_node("other")
    one.put("address", b"1")
    other.put("address", b"2")
    exchange(one, other, 1.0)
    for node, name, value in ((one, "other", b"2"), (other, "one", b"1")):
        state = node.state(name)
        assert state is not None
        assert state.value("address") == value
        assert node.live() == [name]
        (event,) = node.take_events()
        assert event == (name, Presence.ALIVE, True, ("address",))
    exchange(one, other, 1.1)
    assert one.take_events() == other.take_events() == []


def test_news_are_events_with_their_keys() -> None:
    one, other = a_node("one"), a_node("other")
    exchange(one, other, 1.0)
    one.take_events()
    other.put("load", b"5")
    exchange(one, other, 1.5)
    assert one.take_events() == [("other", Presence.ALIVE, False, ("load",))]


def test_another_life_is_told_as_one() -> None:
    one, other = a_node("one"), a_node("other")
    exchange(one, other, 1.0)
    one.take_events()
    exchange(one, Gossip("other", 2, 0.0, Random(2)), 2.0)
    (event,) = one.take_events()
    assert event.is_new


def test_who_is_met_is_there_and_is_asked_first() -> None:
    node = a_node("one")
    node.introduce("other", 7, 0.0)
    node.introduce("other", 7, 0.0)
    node.introduce("one", 7, 0.0)
    assert [event.name for event in node.take_events()] == ["other"]
    ((receiver, message),) = node.tick(0.5)
    assert receiver == "other"
    assert isinstance(message, GossipSyn)
    assert Digest("other", 7, 0) in message.digests


@given(st.binary(max_size=200))
def test_bytes_that_are_no_gossip(data: bytes) -> None:
    try:
        message = decode(data)
    except PeerError:
        return
    a_node("one").receive(message, 1.0)


SOME = GossipAck(
    [Delta("x", 3, 1, 5, (Record("a", 2, b"value"), Record("b", 5, b"")))], [Digest("y", 1, 2)]
)


@given(st.data())
def test_mutated_gossip(data: st.DataObject) -> None:
    some: GossipAck | GossipAck2 = SOME if data.draw(st.booleans()) else GossipAck2(SOME.deltas)
    encoded = bytearray(encode(some))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode(bytes(encoded))
    except PeerError:
        return
    node = a_node("one")
    node.receive(message, 1.0)
    node.tick(1.0)


def test_gossip_about_too_many() -> None:
    digests = [Digest(f"node {number}", 1, 1) for number in range(CLUSTER_NODES_MAX + 1)]
    with pytest.raises(PeerError, match="more than"):
        decode(encode(GossipSyn(digests)))


def test_who_is_remembered_and_never_comes_is_forgotten() -> None:
    node = Gossip("one", 1, 0.0, Random(1), forget_seconds=10.0)
    node.remember("lost", 0.0)
    node.remember("one", 0.0)
    assert node.presence("lost") is Presence.DEAD
    assert node.presence("one") is None
    assert node.live() == []
    assert [digest.name for digest in node.table.digests()] == ["one"]  # nobody else is told
    node.tick(9.0)
    assert node.take_events() == []
    node.tick(10.5)
    assert node.take_events() == [PresenceEvent("lost", None)]
    assert node.presence("lost") is None


def test_who_is_remembered_and_comes_back_is_there() -> None:
    node, other = a_node("one"), a_node("other")
    node.remember("other", 0.0)
    exchange(node, other, 1.0)
    assert node.presence("other") is Presence.ALIVE
    (event,) = node.take_events()
    assert event.is_new
    node.remember("other", 2.0)
    assert node.presence("other") is Presence.ALIVE


def test_who_is_disowned_is_not_there_until_its_next_life() -> None:
    one, other, third = a_node("one"), a_node("other"), a_node("third")
    other.put("address", b"2")
    exchange(one, other, 1.0)
    exchange(third, other, 1.0)
    one.disown("other", 1.0)
    one.take_events()
    other.table.beat()
    exchange(third, other, 2.0)
    exchange(one, third, 2.0)
    assert one.live() == ["third"]
    assert one.state("other") is None
    one.remember("other", 2.0)
    exchange(one, third, 3.0)
    assert one.presence("other") is Presence.DEAD
    exchange(one, Gossip("other", 2, 0.0, Random(2)), 4.0)
    assert "other" in one.live()


def test_who_leaves_says_whether_it_keeps_anything() -> None:
    one, other, third = a_node("one"), a_node("other"), a_node("third")
    for node in (other, third):
        exchange(one, node, 1.0)
    for node, keeps in ((other, False), (third, True)):
        for name, farewell in node.leave(keeps=keeps):
            if name == "one":
                one.receive(farewell, 2.0)
    assert one.keeps_nothing("other")
    assert not one.keeps_nothing("third")
    one.take_events()
    one.forget("other", 3.0)
    assert one.take_events() == [("other", None, False, ())]
    exchange(one, third, 4.0)  # which knows it
    assert one.presence("other") is None


def test_who_is_remembered_as_one_that_left() -> None:
    one = a_node("one")
    one.remember("other", 0.0, has_left=True)
    assert one.presence("other") is Presence.LEFT
    exchange(one, a_node("other"), 1.0)
    assert one.presence("other") is Presence.ALIVE
