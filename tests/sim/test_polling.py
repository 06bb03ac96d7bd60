"""Handles that are polled at any broker while brokers fail, on a virtual clock.

A failing seed is in the test's name, and can be replayed.
"""

from collections.abc import Callable, Iterable
from random import Random

import pytest

from dovetail.broker.mailbox import Handle, Mailbox, new_handle
from dovetail.broker.peering.control_messages import (
    HandoverHeader,
    HandoverMessage,
    HandoverReady,
    RedirectEnd,
)
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN
from dovetail.codec.packets import Subscribe, SubscriptionRequest
from dovetail.errors import ReasonCode
from support.brokers.mailboxes import begin
from support.clusters.clients import PersistentSender
from support.clusters.simulated_cluster import SimulatedBroker, SimulatedCluster

NAMES = ("a", "b", "c")
QUIET_SECONDS = 60
TRY_AGAIN = {
    ReasonCode.SERVER_BUSY,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SESSION_TAKEN_OVER,
}
"""Reasons to refuse a handle that exists."""


class HandleReader:
    """Polls and acknowledges, each at a random broker."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        *,
        number: int = 0,
        step_seconds_max: float = 0.2,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._step_seconds_max = step_seconds_max
        self.handle = new_handle(number.to_bytes(16), None, 100_000)
        self.got: list[tuple[str, str]] = []
        self.done: set[tuple[str, str]] = set()
        self.resent: list[tuple[str, str]] = []
        """What came though the broker had said that it would not."""
        self.refused: list[ReasonCode] = []
        self._step: Callable[[], None] = self._rest
        self._pump()

    def subscribe(self, name: str) -> None:
        node = self._cluster.nodes[name]
        node.wake()
        mailbox = begin(node)
        mailbox.open(self.handle, None, 0, is_new=True)
        packet = Subscribe(1, [SubscriptionRequest("t/#", qos=1)])
        node.broker.slices.begin(node.broker.subscribe(mailbox, packet))
        node.settle()
        self._cluster.run(2)
        assert mailbox.reasons == [1]
        node.wake()
        mailbox.close(with_will=False)
        node.settle()
        self._step = self._poll

    def _pump(self) -> None:
        pause = self._random.uniform(0.01, self._step_seconds_max)
        self._cluster.clock.after(pause, self._pump)
        self._step()

    def rest(self) -> None:
        """Ask for nothing more."""
        self._step = self._rest

    def _rest(self) -> None:
        """Nothing to do."""

    def _node(self) -> SimulatedBroker | None:
        node = self._cluster.nodes[self._random.choice(NAMES)]
        return node if node.is_running and node.is_open else None

    def _poll(self) -> None:
        node = self._node()
        if node is None:
            return
        node.wake()
        mailbox = begin(node)
        mailbox.open(self.handle, None, self._random.choice((1, 10, 100)))
        node.settle()
        until = self._cluster.clock.now + self._random.uniform(0, 3)

        def look() -> None:
            if not node.is_running or mailbox.error is not None:
                self._note(mailbox)
                self._step = self._poll
            elif mailbox.messages:
                node.wake()
                mailbox.shut()
                node.shared.journal.when_stored(stored)
                node.settle()
                self._step = self._rest
                self._cluster.clock.after(1, give_up)
            elif self._cluster.clock.now > until:
                self._close(node, mailbox)
                self._step = self._poll

        def give_up() -> None:
            if self._step == self._rest:
                self._step = self._poll

        def stored(is_stored: bool) -> None:
            if is_stored and self._step == self._rest:
                found = {one.id: (one.topic, one.payload) for one in mailbox.messages}
                self.got += found.values()
                self.resent += [one for one in found.values() if one in self.done]
                self._close(node, mailbox)
                self._step = lambda: self._acknowledge(found)

        self._step = look

    def _acknowledge(self, found: dict[int, tuple[str, str]]) -> None:
        self._step = self._poll
        node = self._node()
        if node is None or self._random.random() < 0.1:
            return
        node.wake()
        mailbox = begin(node, is_shut=True)
        mailbox.open(self.handle, None, 1)
        node.settle()

        def look() -> None:
            if not node.is_running or mailbox.error is not None:
                self._note(mailbox)
                self._step = self._poll
            elif mailbox.is_connected:
                node.wake()
                assert mailbox.session is not None
                known = {
                    one for packet_id, one in found.items()
                    if mailbox.session.handle_puback(packet_id, node.now)
                }  # fmt: skip
                node.shared.journal.when_stored(lambda stored: self._is_done(known, stored))
                self._close(node, mailbox)
                self._step = self._poll

        self._step = look

    def _is_done(self, known: set[tuple[str, str]], stored: bool) -> None:
        if stored:
            self.done |= known

    def _note(self, mailbox: Mailbox) -> None:
        if mailbox.error is not None:
            self.refused.append(mailbox.error.reason)

    @staticmethod
    def _close(node: SimulatedBroker, mailbox: Mailbox) -> None:
        if node.is_running:
            node.wake()
            mailbox.close(with_will=False)
            node.settle()


class ResendingSender(PersistentSender):
    """A sender that records the messages that it resent: those may be doubled."""

    def __init__(self, cluster: SimulatedCluster, home: str) -> None:
        super().__init__(cluster, home, f"sender-{home}", f"t/{home}".encode(), 1)
        self.repeated: set[int] = set()

    def send_again(self) -> None:
        self.repeated |= {number for number, _ in self._open.values()}
        super().send_again()


class Scenario:
    """Senders at all brokers and one reader."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, *NAMES)
        self.cluster.run(3)
        self.reader = HandleReader(self.cluster, self.random)
        self.reader.subscribe("a")
        self.senders = [ResendingSender(self.cluster, name) for name in NAMES]
        self.story: list[str] = []
        self._started_at = 0.0
        self._pump()

    def _pump(self) -> None:
        for sender in self.senders:
            sender.pump()
        self.cluster.clock.after(0.2, self._pump)

    def strike(self) -> None:
        name = self.random.choice(NAMES)
        is_running = self.cluster.nodes[name].is_running
        self.story.append(
            f"{self.cluster.clock.now:.2f}: {'kill' if is_running else 'start'} {name}"
        )
        (self.cluster.kill if is_running else self.cluster.start)(name)

    def strike_one(self) -> None:
        """Who comes back meets all others before the next one goes."""
        down = [node.name for node in self.cluster.nodes.values() if not node.is_running]
        name = self.random.choice(NAMES)
        if down:
            self.cluster.start(down[0])
            self._started_at = self.cluster.clock.now
        elif self.cluster.clock.now > self._started_at + 2:
            self.cluster.kill(name)
        else:
            self.cluster.drop(name)

    def resent(self) -> set[tuple[str, str]]:
        """What came though it was done with, and was not sent twice either."""
        repeated = {
            (sender.topic.decode(), str(number))
            for sender in self.senders
            for number in sender.repeated
        }
        return {*self.reader.resent} - repeated

    def end(self) -> None:
        for sender in self.senders:
            sender.is_sending = False
        for name in NAMES:
            if not self.cluster.nodes[name].is_running:
                self.cluster.start(name)
        for _ in range(QUIET_SECONDS):
            self.cluster.run(1)
            if not self.missing() and all(sender.is_done for sender in self.senders):
                return

    def missing(self) -> dict[str, list[int]]:
        return missing(self.reader, self.senders)


def missing(reader: HandleReader, senders: Iterable[PersistentSender]) -> dict[str, list[int]]:
    """Return what each sender has an acknowledgement for, and the reader did not get."""
    got = set(reader.got)
    found = {
        sender.client_id: [
            number
            for number in sender.acknowledged
            if (sender.topic.decode(), str(number)) not in got
        ]
        for sender in senders
    }
    return {name: numbers for name, numbers in found.items() if numbers}


class SteadySender(PersistentSender):
    """A sender with a steady, low rate."""

    _next_at = 0.0

    def work(self) -> None:
        now = self.cluster.clock.now
        if self.trying_since is None and now >= self._next_at:
            self._next_at = now + 0.25
            self.messages_max = self.sent + 1
            super().work()


class FastScenario:
    """Handles that move several times a second, while brokers are killed, stopped and cut off.

    Faults last from 0.1 to 10 s, as in `scripts/soak`, and overlap.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, *NAMES)
        self.cluster.run(3)
        self.readers = [
            HandleReader(self.cluster, self.random, number=number, step_seconds_max=0.08)
            for number in range(2)
        ]
        for reader in self.readers:
            reader.subscribe(self.random.choice(NAMES))
        self.senders = [
            SteadySender(
                self.cluster, home, f"sender-{home}-{qos}", f"t/{home}/{qos}".encode(), qos
            )
            for home in NAMES
            for qos in (1, 2)
        ]
        self.story: list[str] = []
        self._busy_until: dict[str, float] = {}
        self._pump()

    def _pump(self) -> None:
        for sender in self.senders:
            sender.pump()
        self.cluster.clock.after(0.1, self._pump)

    def strike(self) -> None:
        cluster = self.cluster
        kind = self.random.choice(("kill", "kill", "kill", "stop", "cut", "part", "drop"))
        one, other, _ = self.random.sample(NAMES, 3)
        seconds = self._draw_seconds()
        key = "network" if kind in {"cut", "part"} else one
        if self._busy_until.get(key, 0) > cluster.clock.now:
            return
        self.story.append(f"{cluster.clock.now:.2f}: {kind} {one} {other} for {seconds:.2f} s")
        if kind == "drop":
            cluster.drop(one)
            return
        self._busy_until[key] = cluster.clock.now + seconds
        faults: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "kill": (lambda: cluster.kill(one), lambda: cluster.start(one)),
            "stop": (lambda: cluster.pause(one, True), lambda: cluster.pause(one, False)),
            "cut": (lambda: cluster.cut(one), cluster.heal),
            "part": (lambda: cluster.part(one, other), cluster.heal),
        }
        begin, end = faults[kind]
        begin()
        cluster.clock.after(seconds, end)

    def _draw_seconds(self) -> float:
        draw = self.random.random()
        if draw < 0.5:
            return self.random.uniform(0.1, 2)
        return self.random.uniform(2, 5) if draw < 0.8 else self.random.uniform(6, 10)

    def missing(self) -> list[dict[str, list[int]]]:
        found = [missing(reader, self.senders) for reader in self.readers]
        return [one for one in found if one]

    def play(self, seconds: float) -> None:
        end = self.cluster.clock.now + seconds
        while self.cluster.clock.now < end:
            self.strike()
            self.cluster.run(self.random.uniform(0, 3))
        self.cluster.run(11)  # the last fault ends
        for sender in self.senders:
            sender.is_sending = False
        for _ in range(QUIET_SECONDS):
            self.cluster.run(1)
            if not self.missing() and all(sender.is_done for sender in self.senders):
                return


@pytest.mark.parametrize("seed", [0, 4, 6])
def test_messages_come_in_order_while_brokers_crash_and_the_handle_moves(seed: int) -> None:
    """One broker at a time is down, briefly; connections break, too."""
    scene = Scenario(seed)
    end = scene.cluster.clock.now + 30
    while scene.cluster.clock.now < end:
        scene.strike_one()
        scene.cluster.run(scene.random.uniform(0, 2))
    scene.end()
    assert not scene.missing()
    for sender in scene.senders:
        topic = sender.topic.decode()
        numbers = [int(number) for found, number in scene.reader.got if found == topic]
        first = [*dict.fromkeys(numbers)]
        assert first == sorted(first), topic


@pytest.mark.parametrize("seed", [4, 7])
def test_nothing_is_lost(seed: int) -> None:
    """Several brokers may crash at once. Then messages may be doubled."""
    scene = Scenario(seed)
    for _ in range(20):
        scene.strike()
        scene.cluster.run(scene.random.uniform(0, 2))
    scene.end()
    story = "\n".join(scene.story)
    assert not scene.missing(), story
    assert set(scene.reader.refused) <= TRY_AGAIN
    assert all(len(sender.acknowledged) > 10 for sender in scene.senders)


@pytest.mark.parametrize("seed", [12])
def test_acknowledged_messages_do_not_come_again(seed: int) -> None:
    """Brokers crash, one at a time, and connections break."""
    scene = Scenario(seed)
    for _ in range(20):
        scene.strike_one()
        scene.cluster.run(scene.random.uniform(0, 2))
    scene.end()
    assert not scene.missing()
    assert not scene.resent()
    assert len(scene.reader.done) > 100


@pytest.mark.parametrize("seed", [9, 11, 14, 18, 23, 2009])
def test_nothing_is_lost_while_handles_move_fast(seed: int) -> None:
    scene = FastScenario(seed)
    scene.play(30)
    story = "\n".join(scene.story)
    assert not scene.missing(), story
    assert all(set(reader.refused) <= TRY_AGAIN for reader in scene.readers), story
    assert all(sender.is_done for sender in scene.senders)
    assert all(len(sender.acknowledged) > 10 for sender in scene.senders)


def early_message(client_id: str, stamp: int, payload: bytes) -> HandoverMessage:
    return HandoverMessage(
        client_id,
        stamp,
        user=None,
        topic=b"t/early",
        payload=payload,
        message_qos=1,
        message_retain=False,
        properties=b"",
        expires_at=None,
        origin="",
        qos=1,
        retain=False,
        packet_id=0,
        released=False,
        identifiers=(),
    )


def ask(cluster: SimulatedCluster, name: str, handle: Handle) -> Mailbox:
    """Poll at this broker for some seconds, and return the mailbox."""
    node = cluster.nodes[name]
    node.wake()
    mailbox = begin(node)
    mailbox.open(handle, None, 100)
    node.settle()
    cluster.run(8)
    node.wake()
    mailbox.close(with_will=False)
    node.settle()
    return mailbox


@pytest.mark.parametrize("seed", range(3))
def test_messages_without_their_session_do_not_pass_for_it(seed: int) -> None:
    """Their broker gives them to another one; the session is on its way to one that is down."""
    cluster = SimulatedCluster(seed, *NAMES)
    cluster.run(3)
    reader = HandleReader(cluster, Random(seed))
    reader.subscribe("b")
    reader.rest()
    handle = reader.handle
    sender = PersistentSender(cluster, "b", "sender", b"t/b", 1)
    cluster.wires["b", "c"].slow_down(1)
    node = cluster.nodes["c"]
    node.wake()
    begin(node).open(handle, None, 100)
    node.settle()
    cluster.run_until(lambda: cluster.nodes["b"].mesh.session_moves.has_ghosts, seconds_max=1)
    cluster.run(0.1)
    cluster.kill("c")
    cluster.run(1)
    node = cluster.nodes["a"]
    node.wake()
    node.mesh.session_moves.take("c", early_message(handle.client_id, 1, b"early"))
    node.settle()
    for name in "ba":
        mailbox = ask(cluster, name, handle)
        assert mailbox.error is not None
        assert mailbox.error.reason == ReasonCode.SERVER_BUSY
    sender.messages_max = 1
    for _ in range(20):
        sender.pump()
        cluster.run(0.1)
    assert sender.acknowledged == [1]
    cluster.start("c")
    cluster.run(8)
    mailbox = ask(cluster, "c", handle)
    assert {message.payload for message in mailbox.messages} == {"early", "1"}


def test_messages_that_arrive_one_after_the_other_have_numbers_of_their_own() -> None:
    """The session has arrived in between. Two rows on disk with one number would be one row."""
    cluster = SimulatedCluster(0, *NAMES)
    cluster.run(3)
    node = cluster.nodes["a"]
    for stamp in (5, 6):
        header = HandoverHeader(
            "k",
            stamp,
            stamp_before=NEVER_BEGUN,
            void_before=0,
            user=None,
            expiry_seconds=1_000,
            next_packet_id=1,
            incoming=[],
            sources=[],
            behind=[],
            is_loss_unconfirmed=False,
        )
        node.wake()
        for message in (
            header,
            early_message("k", stamp, b"%d" % stamp),
            HandoverReady("k", stamp),
            RedirectEnd("k", stamp),
        ):
            node.mesh.session_moves.take("b", message)
        node.settle()
        cluster.run(3)
    cluster.kill("a")
    node = cluster.start("a")
    waiting = node.broker.sessions["k"].queue.messages()
    assert [entry.message.payload for entry in waiting] == [b"5", b"6"]
