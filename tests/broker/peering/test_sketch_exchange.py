"""Sketches between brokers: no known subscription is missed, whatever is lost or late."""

from collections import deque
from functools import partial

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dovetail.broker.peering import sketch_exchange
from dovetail.broker.peering.limits import SKETCH_PEER_RATE
from dovetail.broker.peering.peer_messages import (
    DELTA,
    KNOWN,
    LOST,
    WHOLE,
    ReplicaVersions,
    SketchPart,
    encode,
)
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.errors import PeerError
from dovetail.topics.names import matches
from dovetail.topics.sketches import LinesSketch, change_log

NAMES = ("a", "b", "c")
FILTERS = ("x", "x/+", "x/#", "+/y", "x/y", "z/#", "$s/+", *(f"d/{n}/+" for n in range(20)))
TOPICS = ("x", "x/y", "y/y", "z", "z/1/2", "$s/1", "d/7/v", "d/19/v", "w/2/v", "w/99/v", "nobody")


class Net:
    """Brokers with ordered connections between them, which deliver when they are told to."""

    def __init__(self, *names: str) -> None:
        self.wires: dict[tuple[str, str], deque[tuple[int, bytes]]] = {}
        self.backs: dict[tuple[str, str], deque[tuple[int, bytes]]] = {}
        self.changes = 0
        self.exchanges = {
            name: SketchExchange(
                seed=5,
                lineage=number,
                send=partial(self.send, name),
                changed=self.changed,
            )
            for number, name in enumerate(names, 1)
        }

    def changed(self, _name: str | None) -> None:
        self.changes += 1

    def send(self, origin: str, peer: str, kind: int, body: bytes) -> bool:
        if (origin, peer) not in self.wires:
            return False
        self.wires[origin, peer].append((kind, body))
        return True

    def connect(self, origin: str, peer: str) -> None:
        self.wires[origin, peer] = deque()
        self.backs[origin, peer] = deque()
        self.exchanges[origin].peer_is_up(peer, True)

    def cut(self, origin: str, peer: str) -> None:
        del self.wires[origin, peer], self.backs[origin, peer]
        self.exchanges[origin].peer_is_up(peer, False)

    def step(self, origin: str, peer: str) -> bool:
        """One frame there, or one answer back."""
        if self.backs[origin, peer]:
            self.exchanges[origin].answered(peer, *self.backs[origin, peer].popleft())
        elif self.wires[origin, peer]:
            frame = self.wires[origin, peer].popleft()
            self.backs[origin, peer].append(self.exchanges[peer].receive(origin, *frame))
        else:
            return False
        return True

    def settle(self) -> None:
        moved = True
        while moved:
            moved = False
            for wire in list(self.wires):
                moved = self.step(*wire) or moved


class SketchExchangeMachine(RuleBasedStateMachine):
    """Filters come and go, connections break; who waited was right to go on."""

    @initialize()
    def start(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sketch_exchange, "SKETCH_ELEMENTS_START", 64)
        self.net = Net(*NAMES)
        self.filters: dict[str, set[str]] = {name: set() for name in NAMES}
        self.promised: dict[str, set[str]] = {name: set() for name in NAMES}
        for origin in NAMES:
            for peer in NAMES:
                if origin != peer:
                    self.net.exchanges[origin].peer_is_live(peer, True)
                    self.net.connect(origin, peer)

    @rule(name=st.sampled_from(NAMES), topic_filter=st.sampled_from(FILTERS))
    def subscribe(self, name: str, topic_filter: str) -> None:
        if topic_filter not in self.filters[name]:
            self.net.exchanges[name].add(topic_filter)
            self.filters[name].add(topic_filter)
        filters, promised = self.filters[name], self.promised[name]

        def acknowledge() -> None:
            if topic_filter in filters:
                promised.add(topic_filter)

        self.net.exchanges[name].when_known(1e9, acknowledge)

    @rule(name=st.sampled_from(NAMES), first=st.integers(0, 3), is_there=st.booleans())
    def wave(self, name: str, first: int, is_there: bool) -> None:
        """So many at once that the sketch grows, or shrinks."""
        for number in range(20 * first, 20 * first + 50):
            topic_filter = f"w/{number}/+"
            if is_there != (topic_filter in self.filters[name]):
                self.net.exchanges[name].filter_changed(topic_filter, is_there)
                (self.filters[name].add if is_there else self.filters[name].discard)(topic_filter)
                self.promised[name].discard(topic_filter)

    @rule(name=st.sampled_from(NAMES), topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, name: str, topic_filter: str) -> None:
        if topic_filter in self.filters[name]:
            self.filters[name].discard(topic_filter)
            self.promised[name].discard(topic_filter)
            self.net.exchanges[name].discard(topic_filter)

    @rule(name=st.sampled_from(NAMES))
    def flush(self, name: str) -> None:
        self.net.exchanges[name].flush()

    @rule(wire=st.permutations(NAMES), steps=st.integers(1, 3))
    def carry(self, wire: list[str], steps: int) -> None:
        if (wire[0], wire[1]) in self.net.wires:
            for _ in range(steps):
                self.net.step(wire[0], wire[1])

    @rule(wire=st.permutations(NAMES))
    def break_or_mend(self, wire: list[str]) -> None:
        key = (wire[0], wire[1])
        if key in self.net.wires:
            self.net.cut(*key)
        else:
            self.net.connect(*key)

    @precondition(lambda self: self.net.wires)
    @rule()
    def settle(self) -> None:
        for name in NAMES:
            self.net.exchanges[name].flush()
        self.net.settle()
        for origin, peer in self.net.wires:
            self.check(origin, peer, self.filters[origin])

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    @invariant()
    def what_was_promised_is_found(self) -> None:
        if not hasattr(self, "net"):
            return
        for origin in NAMES:
            for peer in NAMES:
                if origin != peer:
                    self.check(origin, peer, self.promised[origin])

    def check(self, owner: str, peer: str, filters: set[str]) -> None:
        found = self.net.exchanges[peer].search([topic.encode() for topic in TOPICS])
        for topic, names in zip(TOPICS, found, strict=True):
            if any(matches(topic_filter, topic) for topic_filter in filters):
                assert owner in names, (owner, peer, topic, filters)


SketchExchangeMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestBrokers = SketchExchangeMachine.TestCase


def a_pair() -> Net:
    net = Net("a", "b")
    net.exchanges["a"].peer_is_live("b", True)
    net.connect("a", "b")
    net.settle()
    return net


def test_a_change_is_a_delta_and_many_are_one() -> None:
    net = a_pair()
    owner = net.exchanges["a"]
    for number in range(100):
        owner.add(f"x/{number}")
    owner.flush()
    owner.add("y")
    owner.flush()  # one is on its way
    assert [kind for kind, _ in net.wires["a", "b"]] == [DELTA]
    net.settle()
    assert net.exchanges["b"].search([b"x/77", b"y", b"z"]) == [("a",), ("a",), ()]


def test_a_sketch_that_grows_is_replaced_whole() -> None:
    net = a_pair()
    owner = net.exchanges["a"]
    bits = owner.sketch.bits
    known: list[int] = []
    for number in range(3_000):
        owner.add(f"site/{number}/value")
        owner.when_known(1e9, partial(known.append, number))
        if number % 100 == 0:
            owner.flush()
            net.settle()
            found = net.exchanges["b"].search([b"site/%d/value" % n for n in range(number + 1)])
            assert all(found)
    owner.flush()
    net.settle()
    assert owner.sketch.bits > bits
    assert known == list(range(3_000))


def test_waiting_ends_in_time_and_in_order() -> None:
    net = a_pair()
    owner = net.exchanges["a"]
    done: list[str] = []
    owner.when_known(1.0, lambda: done.append("nothing to wait for"))
    owner.add("x")
    owner.when_known(2.0, lambda: done.append("x"))
    owner.add("y")
    owner.when_known(1.5, lambda: done.append("y"))
    assert done == ["nothing to wait for"]
    assert owner.tick(1.0) == 0
    assert owner.tick(1.6) == 1
    assert done[1:] == ["x", "y"]


def test_a_peer_that_dies_holds_nobody_up() -> None:
    net = a_pair()
    owner = net.exchanges["a"]
    done: list[str] = []
    owner.add("x")
    owner.when_known(2.0, lambda: done.append("x"))
    owner.peer_is_live("b", False)
    assert done == ["x"]


def test_a_sketch_stays_until_its_peer_is_forgotten() -> None:
    net = a_pair()
    net.exchanges["a"].add("x")
    net.exchanges["a"].flush()
    net.settle()
    other = net.exchanges["b"]
    other.peer_is_live("a", False)
    assert other.search([b"x"]) == [("a",)]
    before = net.changes
    other.forget("a")
    assert other.search([b"x"]) == [()]
    assert net.changes > before


def test_a_delta_that_does_not_follow_asks_for_the_whole() -> None:
    net = a_pair()
    owner, other = net.exchanges["a"], net.exchanges["b"]
    other.forget("a")
    owner.add("x")
    owner.flush()
    net.step("a", "b")
    assert list(net.backs["a", "b"]) == [(LOST, b"")]
    net.settle()
    assert other.search([b"x"]) == [("a",)]


@pytest.mark.parametrize("kind", [WHOLE, DELTA])
@pytest.mark.parametrize("body", [b"", b"nonsense" * 20])
def test_nonsense_is_the_peers_fault(kind: int, body: bytes) -> None:
    with pytest.raises(PeerError):
        a_pair().exchanges["b"].receive("a", kind, body)
    with pytest.raises(PeerError):
        a_pair().exchanges["a"].answered("b", KNOWN, body)


def test_a_sketch_of_another_cluster_is_refused() -> None:
    frames: list[tuple[int, bytes]] = []

    def send(_peer: str, kind: int, body: bytes) -> bool:
        frames.append((kind, body))
        return True

    stranger = SketchExchange(seed=6, lineage=9, send=send, changed=lambda _: None)
    stranger.peer_is_up("b", True)
    with pytest.raises(PeerError, match="another cluster"):
        a_pair().exchanges["b"].receive("stranger", *frames[0])


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_large_sketch_comes_in_parts(monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    monkeypatch.setattr(sketch_exchange, "SKETCH_PART_BYTES", 1_000)
    net = a_pair()
    owner = net.exchanges["a"]
    for number in range(3_000):  # more than it was planned for
        owner.add(f"site/{number}/value")
    owner.flush()
    for _ in range(5):
        net.step("a", "b")
    assert net.exchanges["b"]._incoming_parts
    owner.add("while it is under way")
    if is_broken:
        net.cut("a", "b")
        net.connect("a", "b")
    net.settle()
    found = net.exchanges["b"].search([b"while it is under way", b"site/1999/value", b"other"])
    assert found == [("a",), ("a",), ()]
    assert not net.exchanges["b"]._incoming_parts


def test_parts_that_do_not_follow_begin_again() -> None:
    other = a_pair().exchanges["b"]
    for part in (SketchPart(5, 10, b"12345"), SketchPart(0, 10, b""), SketchPart(1, 10, b"x")):
        assert other.receive("a", WHOLE, msgspec.msgpack.encode(part)) == (LOST, b"")
    with pytest.raises(PeerError):
        other.receive("a", WHOLE, msgspec.msgpack.encode(SketchPart(0, 1 << 60, b"x")))


def test_an_older_sketch_that_comes_late_changes_nothing() -> None:
    net = a_pair()
    owner, other = net.exchanges["a"], net.exchanges["b"]
    net.cut("a", "b")
    net.connect("a", "b")
    late = list(net.wires["a", "b"])
    net.settle()
    owner.add("x")
    owner.flush()
    net.settle()
    other.receive("a", *late[0])
    assert other.search([b"x"]) == [("a",)]


def grow(net: Net, count: int) -> None:
    for number in range(count):
        net.exchanges["a"].add(f"site/{number}/value")
    net.exchanges["a"].flush()
    net.settle()


def test_a_sketch_grows_by_small_steps_and_shrinks_by_large_ones() -> None:
    net = a_pair()
    owner, other = net.exchanges["a"], net.exchanges["b"]
    start = owner.sketch.bits
    grow(net, 20_000)
    large = owner.sketch
    assert large.elements > 20_000
    assert large.bits < 1.45 * LinesSketch.plan(large.elements, SKETCH_PEER_RATE)[0]
    assert other.bank.nbytes == large.words.nbytes
    for number in range(19_000):
        owner.discard(f"site/{number}/value")
        if number % 1_000 == 0:
            owner.flush()
            net.settle()
            assert all(other.search([b"site/%d/value" % n for n in range(number + 1, 20_000, 77)]))
    owner.flush()
    net.settle()
    assert start < owner.sketch.bits < large.bits / 4
    assert other.bank.nbytes == owner.sketch.words.nbytes
    found = other.search([b"site/%d/value" % number for number in range(20_000)])
    assert all(found[19_000:])
    assert not any(found[:19_000])


def test_a_peer_too_far_behind_gets_the_whole_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "SKETCH_CHANGES_MAX", 50)
    net = a_pair()
    owner = net.exchanges["a"]
    for number in range(100):
        owner.add(f"x/{number}")
        owner.sketch  # noqa: B018
    owner.flush()
    assert [kind for kind, _ in net.wires["a", "b"]] == [WHOLE]
    net.settle()
    assert all(net.exchanges["b"].search([b"x/%d" % number for number in range(100)]))


def test_a_delta_to_a_sketch_that_was_replaced_changes_nothing() -> None:
    """It comes late, over a connection that is no more."""
    net = a_pair()
    owner, other = net.exchanges["a"], net.exchanges["b"]
    owner.add("x")
    owner.flush()
    late = net.wires["a", "b"][0]
    assert late[0] == DELTA
    net.cut("a", "b")
    net.connect("a", "b")
    grow(net, 10_000)
    assert other.receive("a", *late)[0] == LOST
    assert other.search([b"x", b"site/9999/value"]) == [("a",), ("a",)]


@pytest.mark.parametrize("body", [b"\4", b"\4\1\1\1\1\1\1", b"\0\0\0"])
def test_deltas_that_lie_are_the_peers_fault(body: bytes) -> None:
    net = a_pair()
    lines = net.exchanges["a"].sketch.lines
    size = bytes([lines & 0x7F | 0x80, lines >> 7])
    far = b"\4" + size + b"\1\7\1\1\1\0" + b"\3" + b"\xff" * 6
    for lie in (far, body if body[0] != 4 else body[:1] + size + body[1:]):
        with pytest.raises(PeerError):
            net.exchanges["b"].receive("a", DELTA, lie)
    assert net.exchanges["b"].search([b"x"]) == [()]


def test_a_broker_that_lost_its_folder_and_whose_clock_is_behind_is_heard() -> None:
    """Its peers know a later life of it, and would take what it tells for old."""
    net = Net("a", "b", "c")
    net.exchanges["a"].sketch.lineage = 100
    net.exchanges["a"].add("x")
    for peer in ("b", "c"):
        net.connect("a", peer)
    net.settle()
    again = SketchExchange(seed=5, lineage=99, send=partial(net.send, "a"), changed=net.changed)
    net.exchanges["a"] = again
    again.add("z")
    known: list[str] = []
    for peer in ("b", "c"):
        again.peer_is_live(peer, True)
        net.connect("a", peer)
    again.when_known(1.0, lambda: known.append("z"))
    net.settle()
    assert known == ["z"]
    for peer in ("b", "c"):
        assert net.exchanges[peer].search([b"z", b"x"]) == [("a",), ()]
    again.add("y")
    again.flush()
    assert all(net.wires["a", peer][0][0] == DELTA for peer in ("b", "c"))


def test_a_life_that_there_cannot_have_been_is_not_outlived() -> None:
    net = Net("a", "b")
    net.connect("a", "b")
    with pytest.raises(PeerError):
        net.exchanges["a"].answered("b", KNOWN, encode(ReplicaVersions((1 << 64) - 1, 0, 1, 1)))
    assert net.exchanges["a"].sketch.lineage == 1
