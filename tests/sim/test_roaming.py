"""Clients that reconnect to another broker each time, on a virtual clock.

To them the cluster looks like one broker. A failing seed is in the test's name; it replays.
"""

from collections.abc import Callable, Mapping
from random import Random

import pytest

from support.clusters.clients import PersistentReceiver, PersistentSender
from support.clusters.simulated_cluster import SimulatedCluster

NAMES = ("a", "b", "c")


class RoamingScenario:
    """Roaming receivers, and senders that may roam, too."""

    def __init__(self, seed: int, *, senders_roam: bool, may_lose_session: bool) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, *NAMES)
        self.receivers = [
            PersistentReceiver(self.cluster, home, f"receiver-{home}-{qos}", topic_filter, qos)
            for home in NAMES
            for qos, topic_filter in ((1, "t/#"), (2, "t/+/x"))
        ]
        self.senders = [
            PersistentSender(
                self.cluster, home, f"sender-{home}-{qos}", b"t/%s%d/x" % (home.encode(), qos), qos
            )
            for home in NAMES
            for qos in (1, 2)
        ]
        for receiver in self.receivers:
            receiver.roams = self.random
            receiver.may_lose_session = may_lose_session
        if senders_roam:
            for sender in self.senders:
                sender.roams = self.random
        self.story: list[str] = []
        self._has_begun = False
        self._started_at = 0.0
        self._is_parted = False
        self._pump()

    def _pump(self) -> None:
        for client in self.receivers:
            client.pump()
        self._has_begun = self._has_begun or all(receiver.ready for receiver in self.receivers)
        if self._has_begun:
            for sender in self.senders:
                sender.pump()
        self.cluster.clock.after(0.05, self._pump)

    def strike(self, deeds: Mapping[str, Callable[[str], object]]) -> None:
        name = self.random.choice(NAMES)
        deed = self.random.choice(list(deeds))
        self.story.append(f"{self.cluster.clock.now:.2f}: {deed} {name}")
        deeds[deed](name)

    def lose(self, _name: str) -> None:
        client = self.random.choice([*self.receivers, *self.senders])
        self.story[-1] += f" {client.client_id} at {client.home}"
        client.lose()

    def kill(self, name: str) -> None:
        node = self.cluster.nodes[name]
        (self.cluster.kill if node.is_running else self.cluster.start)(name)

    def kill_one(self, name: str) -> None:
        """One at a time: who comes back meets all others before the next one goes."""
        down = [node.name for node in self.cluster.nodes.values() if not node.is_running]
        if down:
            self.cluster.start(down[0])
            self._started_at = self.cluster.clock.now
        elif self.cluster.clock.now > self._started_at + 2:
            self.cluster.kill(name)

    def pause(self, name: str) -> None:
        self.cluster.pause(name, not self.cluster.nodes[name].is_paused)

    def cut(self, name: str) -> None:
        """The other two, whom this one reaches; or heal that, and give them time to meet."""
        one, other = (one for one in NAMES if one != name)
        if self._is_parted:
            self.cluster.heal()
            self._started_at = self.cluster.clock.now
        elif self.cluster.clock.now > self._started_at + 1:
            self.cluster.part(one, other)
        else:
            return
        self._is_parted = not self._is_parted

    def end(self) -> None:
        for sender in self.senders:
            sender.is_sending = False
        self.cluster.heal()
        for name in NAMES:
            self.cluster.pause(name, False)
            if not self.cluster.nodes[name].is_running:
                self.cluster.start(name)
        for _ in range(80):
            self.cluster.run(0.5)
            if self.is_quiet():
                break
        self.cluster.run(1)

    def is_quiet(self) -> bool:
        return (
            all(sender.is_done for sender in self.senders)
            and all(receiver.ready for receiver in self.receivers)
            and all(
                node.mesh.outbox(peer).count == 0
                for node in self.cluster.nodes.values()
                for peer in NAMES
                if peer != node.name
            )
            and not any(node.mesh.session_moves.ghosts for node in self.cluster.nodes.values())
            and not any(
                session.queue.count or session.inflight
                for node in self.cluster.nodes.values()
                for session in node.broker.sessions.values()
            )
        )

    def check(self, *, in_order: bool, once: bool) -> None:
        assert self.is_quiet(), "it does not come to rest"
        for receiver in self.receivers:
            for sender in self.senders:
                self._check(receiver, sender, in_order=in_order, once=once)

    def _check(
        self, receiver: PersistentReceiver, sender: PersistentSender, *, in_order: bool, once: bool
    ) -> None:
        who = f"{sender.client_id} to {receiver.client_id}"
        got = receiver.numbers(sender.topic)
        missing = [
            number
            for number in sorted(set(sender.acknowledged) - set(got))
            if not any(
                sender.times[number][0] <= until and sender.times[number][1] >= since
                for since, until in receiver.away
            )
        ]
        assert not missing, f"{who}: acknowledged, and lost: {missing[:10]}"
        first = list(dict.fromkeys(got))
        if in_order:
            assert first == sorted(first), f"{who}: out of order: {first}"
        if once and min(receiver.qos, sender.qos) == 2:
            doubled = {number for number in first if got.count(number) > 1}
            doubled -= {number for topic, number in receiver.in_doubt if topic == sender.topic}
            assert not doubled, f"{who}: doubled: {sorted(doubled)[:10]}"


def run_scenario(
    travels: RoamingScenario,
    deeds: Mapping[str, Callable[[str], object]],
    *,
    strikes: int,
    in_order: bool,
    once: bool,
    pause_seconds_max: float = 0.5,
) -> None:
    seed_story = travels.story
    travels.cluster.run(5)
    assert all(receiver.ready for receiver in travels.receivers)
    try:
        for _ in range(strikes):
            travels.strike(deeds)
            travels.cluster.run(travels.random.uniform(0, pause_seconds_max))
        travels.end()
        travels.check(in_order=in_order, once=once)
    except AssertionError as error:
        pytest.fail(f"{error}\n" + "\n".join(seed_story))
    assert all(len(sender.acknowledged) > 10 for sender in travels.senders)


@pytest.mark.parametrize("seed", range(8))
def test_sessions_follow_their_clients_with_all_pending_messages(seed: int) -> None:
    """Connections break and clients reconnect elsewhere: messages come in order, each once."""
    travels = RoamingScenario(seed, senders_roam=True, may_lose_session=False)
    deeds = {"lose": travels.lose}
    run_scenario(travels, deeds, strikes=40, in_order=True, once=True)


@pytest.mark.parametrize("seed", [*range(6), 87, 99])
def test_sessions_follow_clients_that_move_fast(seed: int) -> None:
    """Clients move many times before any broker knows of the first move."""
    travels = RoamingScenario(seed, senders_roam=False, may_lose_session=False)
    deeds = {"lose": travels.lose}
    run_scenario(travels, deeds, strikes=60, in_order=True, once=True, pause_seconds_max=0.06)


@pytest.mark.parametrize("seed", [*range(8), 65, 146])
def test_messages_at_a_crashed_broker_come_when_it_is_back(seed: int) -> None:
    """A new session starts elsewhere. Earlier messages come when the broker is back, once."""
    travels = RoamingScenario(seed, senders_roam=False, may_lose_session=True)
    deeds = {"lose": travels.lose, "kill": travels.kill_one, "drop": travels.cluster.drop}
    run_scenario(travels, deeds, strikes=25, in_order=False, once=True)


@pytest.mark.parametrize("seed", [*range(8), 383, 393, 502, 954])
def test_sessions_on_both_sides_of_a_cut_become_one(seed: int) -> None:
    """Nothing is lost. A message that both sessions got comes twice."""
    travels = RoamingScenario(seed, senders_roam=False, may_lose_session=True)
    deeds = {
        "lose": travels.lose,
        "kill": travels.kill,
        "drop": travels.cluster.drop,
        "pause": travels.pause,
        "cut": travels.cluster.cut,
        "heal": lambda _name: travels.cluster.heal(),
    }
    run_scenario(travels, deeds, strikes=25, in_order=False, once=False)


@pytest.mark.parametrize("seed", range(4))
def test_no_session_is_lost_between_two_brokers_that_a_third_one_reaches(seed: int) -> None:
    travels = RoamingScenario(seed, senders_roam=False, may_lose_session=False)
    deeds = {"lose": travels.lose, "lose again": travels.lose, "cut": travels.cut}
    run_scenario(travels, deeds, strikes=40, in_order=False, once=True)
