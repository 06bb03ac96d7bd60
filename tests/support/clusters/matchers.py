"""Real matchers on the clock of a simulated cluster (simulated_cluster.py).

Brokers dial matchers as they dial brokers. A matcher's gossip, and its death, reach each node after
a random time.
"""

from collections.abc import Callable

from dovetail.matcher.layout import layout_of, layouts_of
from dovetail.matcher.matcher_messages import ANSWER, LOADS
from dovetail.matcher.matcher_side import MatcherSide
from support.clusters.simulated_cluster import SimulatedBroker, SimulatedCluster, Wire

_TICK_SECONDS = 0.05
_POINT_SECONDS = 20e-6


class SimulatedMatcher:
    """One life of a matcher; an `Endpoint` of wires, as brokers are."""

    def __init__(self, cluster: "ClusterWithMatchers", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.is_running = True
        self.is_paused = False
        self.is_slow = False
        self.kept: list[Callable[[], None]] = []
        layouts = layouts_of([layout_of(space) for space in cluster.matchers_spaces])
        self.side = MatcherSide(name, layouts, cluster.clock.now)
        self._answers: dict[str, Callable[[int, bytes], None]] = {}
        self._is_busy = False
        self.record: bytes | None = None
        for other in cluster.matchers.values():
            if other.is_running and other.record is not None:
                self.side.receive_record(other.name, other.record)
        self.side.join(cluster.clock.now)
        cluster.clock.after(_TICK_SECONDS, self.tick)

    def received(
        self, origin: str, kind: int, body: bytes, answer: Callable[[int, bytes], None]
    ) -> None:
        self._answers[origin] = answer
        self.side.receive(origin, kind, body, answer, self.cluster.clock.now)
        self._work()

    def answered(self, peer: str, kind: int, body: bytes) -> None:
        raise AssertionError(f"a matcher dials nobody here: {peer}, {kind}, {body!r}")

    def lost(self, peer: str) -> None:
        raise AssertionError(f"a matcher dials nobody here: {peer}")

    def _work(self) -> None:
        if self._is_busy or not self.is_running or self.is_paused:
            return
        job = self.side.answers.next_job(self.cluster.clock.now)
        if job is None:
            return
        self._is_busy = True
        seconds = _POINT_SECONDS * job.points + (0.5 if self.is_slow else 0.0)

        def finish() -> None:
            self._is_busy = False
            if not self.is_running:
                return
            self.cluster.answered_points += job.points
            for asker, body in self.side.answers.finish_job(job, seconds):
                self._answers[asker](ANSWER, body)
            self._work()

        self.cluster.clock.after(seconds, finish)

    def tick(self) -> None:
        if not self.is_running:
            return
        self.cluster.clock.after(_TICK_SECONDS, self.tick)
        if self.is_paused:
            return
        brokers = [node.name for node in self.cluster.nodes.values() if node.is_running]
        loads, record = self.side.tick(self.cluster.clock.now, brokers)
        if loads is not None:
            for answer in self._answers.values():
                answer(LOADS, loads)
        if record is not None:
            self.record = record
            self.cluster.tell_of(self)
        self._work()


class ClusterWithMatchers(SimulatedCluster):
    """A simulated cluster with matchers."""

    def __init__(self, *args: object, **fields: object) -> None:
        self.matchers: dict[str, SimulatedMatcher] = {}
        self.answered_points = 0
        """Points answered by all lives of all matchers."""
        super().__init__(*args, **fields)  # type: ignore[arg-type]
        self.matchers_spaces = self.spaces

    def add_matcher(self, name: str) -> SimulatedMatcher:
        matcher = self.matchers[name] = SimulatedMatcher(self, name)
        return matcher

    def kill_matcher(self, name: str) -> None:
        matcher = self.matchers[name]
        matcher.is_running = False
        self._break(name)
        self.tell_of(matcher)

    def pause_matcher(self, name: str, is_paused: bool) -> None:
        matcher = self.matchers[name]
        matcher.is_paused = is_paused
        if not is_paused:
            kept, matcher.kept = matcher.kept, []
            for act in kept:
                self.clock.after(0.0, act)

    def tell_of(self, matcher: SimulatedMatcher) -> None:
        """Tell all nodes of the matcher's record, each after a random time."""
        for node in self.nodes.values():
            self.clock.after(self.random.uniform(0, 1), self._say_to_broker, node, matcher)
        for other in self.matchers.values():
            if other is not matcher:
                self.clock.after(self.random.uniform(0, 1), self._say_to_matcher, other, matcher)

    def _say_to_broker(self, node: SimulatedBroker, matcher: SimulatedMatcher) -> None:
        if node.is_running and self.matchers[matcher.name] is matcher:
            node.wake()
            told = matcher.record if matcher.is_running else None
            node.mesh.matcher_client.receive_record(matcher.name, told)
            node.settle()

    def _say_to_matcher(self, other: SimulatedMatcher, matcher: SimulatedMatcher) -> None:
        if other.is_running and self.matchers[matcher.name] is matcher:
            other.side.receive_record(matcher.name, matcher.record if matcher.is_running else None)

    def start(self, name: str) -> SimulatedBroker:
        node = super().start(name)
        for matcher in self.matchers.values():
            if matcher.is_running and matcher.record is not None:
                self.clock.after(self.random.uniform(0, 1), self._say_to_broker, node, matcher)
        return node

    # Connections ----------------------------------------------------------------------------------

    def connected(self, origin: SimulatedBroker, name: str) -> None:
        if name in self.matchers:
            origin.mesh.matcher_client.matcher_is_up(name)
        else:
            super().connected(origin, name)

    def disconnected(self, origin: SimulatedBroker, name: str) -> None:
        if name in self.matchers:
            origin.mesh.matcher_client.matcher_is_down(name)
        else:
            super().disconnected(origin, name)

    def _dial_all(self) -> None:
        super()._dial_all()
        for origin in self.nodes.values():
            for matcher in self.matchers.values():
                ends = (origin.name, matcher.name)
                if (
                    origin.is_running
                    and matcher.is_running
                    and not (origin.is_paused or matcher.is_paused)
                    and ends not in self.wires
                    and self._is_open(*ends)
                ):
                    self.wires[ends] = Wire(self, origin, matcher)
                    origin.wake()
                    self.connected(origin, matcher.name)
                    origin.settle()
