"""The outbox keeps each publication until the peer has it: against a peer that counts.

The machine sends, loses connections, crashes and starts again from the disk. The peer takes numbers
as stream_positions.py does, and must end with each publication once, in order.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail import codec
from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering import outbox
from dovetail.broker.peering.control_messages import CONTROL_TOPIC
from dovetail.broker.peering.limits import OUTBOX_WAIT_SECONDS_MAX
from dovetail.broker.peering.outbox import Outbox
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import Journal
from dovetail.codec.kernels.scan import QOS_1
from dovetail.codec.packets import MQTT_5
from dovetail.codec.run import Run
from dovetail.messages import Message
from dovetail.settings import MqttSettings
from support.brokers.harness import Disk, commit


class Sender:
    """The outbox of a broker with one peer."""

    def __init__(self, disk: Disk, first_number: int, **limits: int) -> None:
        self.disk = disk
        self.shared = SharedState(MqttSettings(), Journal(next_message=first_number))
        self.wire: list[tuple[int, Message | StoredRun]] = []
        self.accepts = True
        self.outbox = Outbox("peer", self.shared, self.send, set(), **limits)
        state = disk.state()
        messages = {number: Message(*row) for number, row in state.messages.items()}
        for number, message in messages.items():
            message.number = number
        runs = {number: StoredRun.restored(number, row) for number, row in state.runs.items()}
        for (_, sequence), owed in sorted(state.owed.items()):
            spooled = messages.get(owed.message) or runs[owed.message]
            spooled.references += 1
            self.outbox.restore(sequence, spooled, owed.mark)

    def send(self, sequence: int, message: Message | StoredRun, _scope: bytes) -> bool:
        if self.accepts:
            self.wire.append((sequence, message))
        return self.accepts

    def commit(self, works: bool = True) -> None:
        commit(self.shared, self.disk, works=works)


def run_of(*payloads: bytes) -> StoredRun:
    """A run at QoS 1."""
    packets = [
        codec.encode_publish(MQTT_5, b"t", payload, 1, packet_id=number)
        for number, payload in enumerate(payloads, 1)
    ]
    return StoredRun(Run(b"".join(packets), MQTT_5, QOS_1, len(packets), 0), "publisher")


class OutboxMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.disk = Disk()
        self.sender = Sender(self.disk, 1)
        self.sequence = 0
        self.taken: list[int] = []
        self.heard = 0
        self.told_done: list[int] = []
        self.refused: set[int] = set()
        self.lost: set[int] = set()
        self.waiting: set[int] = set()

    @rule(kind=st.sampled_from([1, 2, "run"]))
    def publish(self, kind: int | str) -> None:
        self.sequence += 1
        number = self.sequence
        self.waiting.add(number)

        def done(taken: bool) -> None:
            self.waiting.discard(number)
            if taken:
                self.told_done.append(number)
            else:
                self.refused.add(number)

        if isinstance(kind, int):
            self.sender.outbox.put(number, Message(b"t", b"%d" % number, kind), done)
        else:
            self.sender.outbox.put(number, run_of(b"%d" % number, b"more"), done)

    @rule(works=st.sampled_from([True, True, True, False]))
    def commit(self, works: bool) -> None:
        self.sender.commit(works)

    @rule(count=st.integers(1, 5), acknowledges=st.booleans())
    def peer_reads(self, count: int, acknowledges: bool) -> None:
        for sequence, _ in self.sender.wire[:count]:
            if sequence > self.heard:
                self.taken.append(sequence)
                self.heard = sequence
        del self.sender.wire[:count]
        if acknowledges and self.sender.outbox.is_up:
            self.sender.outbox.acknowledged(self.heard)

    @rule()
    def connect(self) -> None:
        self.sender.wire.clear()
        if self.sender.outbox.is_up:
            self.sender.outbox.peer_is_down()
        self.sender.outbox.peer_is_up(self.heard)

    @rule()
    def disconnect(self) -> None:
        self.sender.wire.clear()
        self.sender.outbox.peer_is_down()

    @rule(accepts=st.booleans())
    def backlog(self, accepts: bool) -> None:
        self.sender.accepts = accepts
        if accepts:
            self.sender.outbox.flush()

    @rule()
    def crash(self) -> None:
        """Publishers without an answer have no promise."""
        self.lost |= self.waiting
        self.waiting = set()
        self.sender = Sender(self.disk, 10_000 * (self.sequence + 1))

    @precondition(lambda self: self.sequence)
    @rule()
    def everything_works_again(self) -> None:
        self.sender.accepts = True
        self.commit(True)
        self.connect()
        for _ in range(6):
            self.commit(True)
            self.peer_reads(1_000, True)
        assert not self.waiting
        missing = set(self.told_done) - set(self.taken)
        assert not missing, f"promised, and never arrived: {missing}"
        assert self.sender.outbox.count == self.sender.outbox.nbytes == 0
        self.commit(True)
        state = self.disk.state()
        assert not state.owed
        assert not state.messages
        assert not state.runs

    @invariant()
    def in_order_and_once(self) -> None:
        if hasattr(self, "taken"):
            assert self.taken == sorted(set(self.taken))
            assert set(self.taken).isdisjoint(self.refused)


OutboxMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestOwing = OutboxMachine.TestCase


def test_a_run_counts_as_all_its_messages_and_leaves_as_one() -> None:
    sender = Sender(Disk(), 1, messages_max=3)
    run = run_of(b"one", b"two")
    done: list[bool] = []
    sender.outbox.put(1, run, done.append)
    assert (sender.outbox.count, sender.outbox.nbytes) == (2, run.size)
    sender.outbox.put(2, run_of(b"three", b"four"), done.append)  # there is room for one
    assert (done, sender.shared.counters.peer_messages_dropped) == ([True], 2)
    sender.commit()
    assert done == [True, True]
    again = Sender(sender.disk, 100)
    again.outbox.peer_is_up(0)
    ((sequence, sent),) = again.wire
    assert isinstance(sent, StoredRun)
    assert (sequence, sent.run.data, sent.origin) == (1, run.run.data, "publisher")
    again.outbox.acknowledged(1)
    again.commit()
    assert (again.outbox.count, again.disk.state().runs) == (0, {})


def test_qos_2_is_on_disk_before_it_is_sent_and_holds_back_what_follows() -> None:
    sender = Sender(Disk(), 1)
    sender.outbox.peer_is_up(0)
    sender.outbox.put(1, Message(b"t", b"1", 1))
    sender.outbox.put(2, Message(b"t", b"2", 2))
    sender.outbox.put(3, Message(b"t", b"3", 1))
    assert [sequence for sequence, _ in sender.wire] == [1]
    sender.commit()
    assert [sequence for sequence, _ in sender.wire] == [1, 2, 3]
    assert list(sender.disk.state().owed) == [("peer", 2)]


def test_a_publisher_waits_for_the_peer_or_if_that_is_down_for_the_disk() -> None:
    sender = Sender(Disk(), 1)
    done: list[tuple[int, bool]] = []
    sender.outbox.put(1, Message(b"t", b"1", 1), lambda taken: done.append((1, taken)))
    assert not done
    sender.commit()
    assert done == [(1, True)]
    sender.outbox.peer_is_up(0)
    sender.outbox.put(2, Message(b"t", b"2", 1), lambda taken: done.append((2, taken)))
    sender.commit()
    assert done == [(1, True)]
    sender.outbox.acknowledged(2)
    assert done == [(1, True), (2, True)]
    sender.outbox.peer_is_down()
    sender.outbox.put(3, Message(b"t", b"3", 1), lambda taken: done.append((3, taken)))
    sender.commit(works=False)
    assert done[2:] == [(3, False)]


def test_a_publication_without_room_is_counted_and_delays_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sender = Sender(Disk(), 1, messages_max=2, bytes_max=1_000)
    done: list[bool] = []
    for sequence in range(1, 4):
        sender.outbox.put(sequence, Message(b"t", b"", 1), done.append)
    sender.outbox.put(4, Message(b"t", bytes(1_000), 1), done.append)
    assert done == [True, True]
    assert sender.shared.counters.peer_messages_dropped == 2
    assert sender.outbox.count == 2
    assert len(caplog.records) == 1  # the log is not filled with it
    assert "outbox for peer is full (2 publications" in caplog.text


def test_topics_on_which_qos_0_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits behind a retained message that waits for our disk."""
    sender = Sender(Disk(), 1)
    box = sender.outbox
    box.put(1, Message(b"a", b"1", retain=True))
    assert (box.waiting, box.holds_back) == ({b"a": 1}, False)  # the peer is down: it would be lost
    box.peer_is_up(0)
    box.put(2, Message(b"a", b"2"))
    box.put(3, Message(b"b", b"3", 1))
    assert (sender.wire, box.waiting, box.holds_back) == ([], {b"a": 2}, True)
    sender.commit()
    assert [sequence for sequence, _ in sender.wire] == [1, 2, 3]
    assert box.waiting == {}
    monkeypatch.setattr(outbox, "OUTBOX_WINDOW_MESSAGES", 3)
    for sequence in range(4, 8):
        box.put(sequence, Message(b"c", b"", retain=True))
    assert (box.waiting, box.holds_back) == ({b"c": 4}, False)  # that is a long queue
    box.peer_is_down()
    sender.commit()
    box.peer_is_up(6)
    assert box.waiting == {}
    assert [sequence for sequence, _ in sender.wire][3:] == [7]


def test_an_expired_publication_is_not_sent() -> None:
    """Numbers have gaps then, as after publications for other peers."""
    disk = Disk()
    sender = Sender(disk, 1)
    done: list[bool] = []
    for sequence, end in enumerate([None, 10.0, 30.0, 10.0, None], 1):
        message = Message(b"t", b"%d" % sequence, 1 + sequence % 2, expires_at=end)
        sender.outbox.put(sequence, message, done.append)
    sender.outbox.put(6, Message(b"t", b"6", 1, retain=True, expires_at=10.0))
    sender.commit()
    sender.shared.now = 20.0
    sender.outbox.peer_is_up(0)
    assert [sequence for sequence, _ in sender.wire] == [1, 3, 5, 6]  # the last replaces another
    assert (done, sender.outbox.count) == ([True] * 5, 4)
    assert sender.shared.counters.publishes_expired == 2
    sender.outbox.acknowledged(6)
    sender.commit()
    assert (sender.outbox.count, sender.outbox.nbytes, disk.state().messages) == (0, 0, {})


@pytest.mark.parametrize("crashes", [False, True])
def test_a_control_message_with_an_expired_message_is_sent(crashes: bool) -> None:
    """A client knows a message in flight by its packet identifier."""
    sender = Sender(Disk(), 1)
    sender.outbox.put(1, Message(CONTROL_TOPIC, b"", 2, expires_at=10.0), is_exempt=True)
    sender.commit()
    if crashes:
        sender = Sender(sender.disk, 2)
    sender.shared.now = 11.0
    sender.outbox.peer_is_up(0)
    assert [sequence for sequence, _ in sender.wire] == [1]


def test_an_expired_publication_gives_way() -> None:
    sender = Sender(Disk(), 1, messages_max=3)
    for sequence, end in enumerate([10.0, 30.0, 10.0], 1):
        sender.outbox.put(sequence, Message(b"t", b"", 1, expires_at=end))
    sender.commit()
    sender.shared.now = 20.0
    for sequence in range(4, 7):
        sender.outbox.put(sequence, Message(b"t", b"", 1))
    counters = sender.shared.counters
    assert (counters.publishes_expired, counters.peer_messages_dropped) == (2, 1)
    sender.commit()
    sender.outbox.peer_is_up(0)
    assert [sequence for sequence, _ in sender.wire] == [2, 4, 5]


def test_control_messages_take_no_room_from_publications() -> None:
    """As when thousands of sessions move while a broker is down."""
    disk = Disk()
    sender = Sender(disk, 1, messages_max=2, bytes_max=1_000)
    for sequence in range(1, 6):
        sender.outbox.put(sequence, Message(CONTROL_TOPIC, bytes(1_000), 2), is_exempt=True)
    for sequence in range(6, 9):
        sender.outbox.put(sequence, Message(b"t", b"", 1))
    assert sender.shared.counters.peer_messages_dropped == 1
    assert (sender.outbox.count, sender.outbox.nbytes) == (7, 5_007)
    sender.commit()
    sender = Sender(disk, 100, messages_max=3, bytes_max=1_000)
    for sequence in range(10, 12):
        sender.outbox.put(sequence, Message(b"t", b"", 1))
    assert sender.shared.counters.peer_messages_dropped == 1
    sender.outbox.acknowledged(11)
    assert (sender.outbox.count, sender.outbox.nbytes) == (0, 0)


def test_a_peer_that_is_forgotten_leaves_nothing_behind() -> None:
    sender = Sender(Disk(), 1)
    for sequence in range(1, 4):
        sender.outbox.put(sequence, Message(b"t", b"", 2))
    sender.commit()
    assert sender.outbox.clear() == 3
    sender.commit()
    assert not sender.disk.state().messages
    assert not sender.disk.state().owed


def test_what_the_disk_refused_does_not_count_in_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_WINDOW_MESSAGES", 3)
    sender = Sender(Disk(), 1)
    sender.outbox.peer_is_up(0)
    for sequence in range(1, 10):
        sender.outbox.put(sequence, Message(b"t", b"", 2))
    sender.commit(works=False)
    sender.outbox.put(10, Message(b"t", b"", 1))
    assert [sequence for sequence, _ in sender.wire] == [10]


def test_nobody_waits_for_long_for_a_peer_that_does_not_answer() -> None:
    """As when its disk is full: it counts as down, and still gets publications."""
    sender = Sender(Disk(), 1)
    sender.outbox.peer_is_up(0)
    done: list[bool] = []
    sender.outbox.put(1, Message(b"t", b"1", 1), done.append)
    sender.outbox.put(2, Message(b"t", b"2", 2), done.append)
    sender.commit()
    sender.shared.now += OUTBOX_WAIT_SECONDS_MAX
    sender.outbox.tick()
    assert (sender.outbox.is_stalled, done) == (False, [])
    sender.shared.now += 1
    sender.outbox.tick()
    assert done == [True]  # the second is on disk
    sender.commit()
    assert done == [True, True]
    sender.outbox.put(3, Message(b"t", b"3", 1), done.append)
    sender.commit()
    assert done == [True] * 3
    assert [sequence for sequence, _ in sender.wire] == [1, 2, 3]
    assert len(sender.disk.state().owed) == 3
    sender.outbox.acknowledged(3)
    assert not sender.outbox.is_stalled
    sender.outbox.put(4, Message(b"t", b"4", 1), done.append)
    assert len(done) == 3
    sender.commit()
    assert sender.disk.state().owed == {}


def test_a_peer_that_goes_on_taking_a_long_backlog_is_not_stalled() -> None:
    """A publisher waits behind the backlog, but not longer than the limit."""
    sender = Sender(Disk(), 1)
    for sequence in range(1, 1_001):
        sender.outbox.put(sequence, Message(b"t", b"", 1))
    sender.commit()
    sender.shared.now = 1_000.0
    sender.outbox.peer_is_up(0)
    done: list[bool] = []
    sender.outbox.put(1_001, Message(b"t", b"", 1), done.append)
    for second in range(1, 3 * int(OUTBOX_WAIT_SECONDS_MAX)):
        sender.shared.now += 1
        sender.outbox.acknowledged(second)
        sender.outbox.tick()
        sender.commit()
        assert not sender.outbox.is_stalled
        assert bool(done) == (second > OUTBOX_WAIT_SECONDS_MAX)
    assert ("peer", 1_001) in sender.disk.state().owed
    sender.shared.now += OUTBOX_WAIT_SECONDS_MAX + 1
    sender.outbox.tick()
    assert sender.outbox.is_stalled
    sender.outbox.acknowledged(1_001)
    assert not sender.outbox.is_stalled


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_retained_message_stays_though_the_disk_refuses(is_kept: bool) -> None:
    """This broker has it, so all others must get it. The same holds for what a peer gave us."""
    sender = Sender(Disk(), 1)
    sender.outbox.peer_is_up(0)
    done: list[bool] = []
    message = Message(b"t", b"1", 1, retain=not is_kept)
    sender.outbox.put(1, message, done.append, must_spool=is_kept)
    sender.commit(works=False)
    assert (done, sender.wire) == ([False], [])
    sender.commit(works=False)
    sender.commit()
    assert done == [False]
    assert [sequence for sequence, _ in sender.wire] == [1]
    sender.outbox.acknowledged(1)
    sender.commit()
    assert sender.disk.state().messages == {}


def test_what_is_too_large_for_a_peer_holds_nothing_up() -> None:
    sender = Sender(Disk(), 1)
    done: list[bool] = []
    sender.outbox.message_bytes_max = 100
    for sequence, size in enumerate([10, 1_000, 10], 1):
        sender.outbox.put(sequence, Message(b"t", bytes(size), 2), done.append)
    sender.commit()
    sender.outbox.peer_is_up(0)
    assert [sequence for sequence, _ in sender.wire] == [1, 3]
    assert sender.shared.counters.peer_messages_dropped == 1
    sender.outbox.acknowledged(3)
    sender.commit()
    assert (done, sender.outbox.count, sender.disk.state().owed) == ([True] * 3, 0, {})
