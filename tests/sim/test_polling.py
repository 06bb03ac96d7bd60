"""A handle that is polled at any broker while brokers crash and restart, on a virtual clock.

A failing seed is in the test's name, and can be replayed.
"""

from collections.abc import Callable
from random import Random

import pytest

from dovetail.broker.mailbox import Mailbox, new_handle
from dovetail.codec.packets import Subscribe, SubscriptionRequest
from dovetail.errors import ReasonCode
from support.brokers.mailboxes import begin
from support.clusters.clients import PersistentSender
from support.clusters.simulated_cluster import SimulatedBroker, SimulatedCluster

NAMES = ("a", "b", "c")
QUIET_SECONDS = 60


class HandleReader:
    """Polls and acknowledges, each at a random broker."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self.handle = new_handle(bytes(16), None, 100_000)
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
        self._cluster.clock.after(self._random.uniform(0.01, 0.2), self._pump)
        self._step()

    def _rest(self) -> None:
        """Nothing to do yet."""

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
        got = set(self.reader.got)
        found = {
            sender.client_id: [
                number
                for number in sender.acknowledged
                if (sender.topic.decode(), str(number)) not in got
            ]
            for sender in self.senders
        }
        return {name: numbers for name, numbers in found.items() if numbers}


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
    assert set(scene.reader.refused) <= {
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SESSION_TAKEN_OVER,
    }
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
