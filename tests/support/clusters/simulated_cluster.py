"""A cluster of whole brokers on a virtual clock: real cores, disks that survive crashes, links.

Links behave as TCP: ordered, complete, and broken when an end crashes or the network is cut. Frames
on a broken link are lost or come late, when their sender already uses another link. Nodes learn a
while later which others are alive; sim/test_gossip_cluster.py tests how gossip finds that out.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

from dovetail.attributes.space import Space
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.net.limits import STORE_RETRY_SECONDS
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.sim.clock import Clock
from support.brokers.harness import Disk, World

SEED = 77
_EPOCH = 1_000_000.0


class Pipe:
    """One direction of a connection between two lives of two nodes."""

    def __init__(self, cluster: "SimulatedCluster", latency_seconds: float) -> None:
        self._cluster = cluster
        self.latency = latency_seconds
        self._free_at = 0.0

    def carry(self, deliver: Callable[[], None]) -> None:
        clock = self._cluster.clock
        delay = self._cluster.random.uniform(0.5, 1.5) * self.latency
        self._free_at = max(self._free_at, clock.now + delay)
        clock.at(self._free_at, deliver)


class Endpoint(Protocol):
    """A node as wires see it."""

    name: str
    is_running: bool
    is_paused: bool
    kept: list[Callable[[], None]]

    def received(
        self, origin: str, kind: int, body: bytes, answer: Callable[[int, bytes], None]
    ) -> None: ...

    def answered(self, peer: str, kind: int, body: bytes) -> None: ...

    def lost(self, peer: str) -> None: ...


class Wire:
    """A connection that `origin` has opened to `target`: frames there, answers back."""

    def __init__(
        self, cluster: "SimulatedCluster", origin: "SimulatedBroker", target: Endpoint
    ) -> None:
        self.cluster = cluster
        self.ends = (origin, target)
        self.is_open = True
        self._lingers = False
        latency = cluster.random.choice([0.000_2, 0.002, 0.02])
        self._there = Pipe(cluster, latency)
        self._back = Pipe(cluster, latency)

    def send(self, kind: int, body: bytes) -> None:
        origin, target = self.ends

        def answer(kind: int, body: bytes) -> None:
            self._back.carry(lambda: self._arrive(origin, origin.answered, target, kind, body))

        self._there.carry(lambda: self._arrive(target, target.received, origin, kind, body, answer))

    def _arrive(
        self, to: Endpoint, act: Callable[..., None], origin: Endpoint, *frame: object
    ) -> None:
        if not to.is_running or not (self.is_open or (self._lingers and to is self.ends[1])):
            return
        if to.is_paused:
            to.kept.append(lambda: self._arrive(to, act, origin, *frame))
        else:
            act(origin.name, *frame)

    def slow_down(self, latency_seconds: float) -> None:
        self._there.latency = self._back.latency = latency_seconds

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._lingers = self.cluster.random.random() < 0.5
            origin, target = self.ends
            del self.cluster.wires[origin.name, target.name]
            if origin.is_running:
                origin.lost(target.name)


class SimulatedBroker(World):
    """One life of a broker in the cluster."""

    def __init__(self, cluster: "SimulatedCluster", name: str, disk: Disk, life: int) -> None:
        self.cluster = cluster
        self.name = name
        self.is_running = True
        self.is_paused = False
        self.kept: list[Callable[[], None]] = []
        self._life = life
        self._committing = False
        self.is_open = False
        """Are clients let in? Only once the broker knows the subscriptions of the others."""
        super().__init__(disk, now=self._time(), spaces=cluster.spaces, auto_commit=False)

    def _time(self) -> float:
        """Return the time of day by this broker's clock."""
        return _EPOCH + self.cluster.clock.now + self.cluster.ahead_seconds.get(self.name, 0.0)

    def membership(self) -> ClusterMembership:
        return ClusterMembership(self.name, hash_of(self.name), self._life, SEED, self.send_to_peer)

    def make_archive(self) -> ArchiveQueue | None:
        if self.cluster.archived is None:
            return None
        stored = max(self.disk.tables["archive"], default=0)
        return ArchiveQueue(
            self.shared,
            self.name,
            self.cluster.archived,
            bytes_max=1 << 20,
            next_sequence=stored + 1_000,
        )

    @property
    def mesh(self) -> Mesh:
        assert self.broker.mesh is not None
        return self.broker.mesh

    # The shell's part -----------------------------------------------------------------------------

    def send_to_peer(self, peer: str, kind: int, body: bytes) -> bool:
        wire = self.cluster.wires.get((self.name, peer))
        if wire is None:
            return False
        wire.send(kind, body)
        return True

    def settle(self) -> None:
        """End a turn: send and store what has changed."""
        if not self.is_running:
            return
        self.work()
        self.mesh.send_changes()
        if not self._committing and not self.shared.journal.open.is_empty:
            self._committing = True
            batch = self.shared.journal.close()
            assert batch is not None
            delay = self.cluster.random.uniform(0.000_1, 0.01)
            if self.shared.journal.failing:
                delay = STORE_RETRY_SECONDS

            def stored() -> None:
                if not self.is_running:
                    return  # killed between the two: the disk may have it, or not
                self.wake()
                if self.disk_works:
                    self.disk.write(batch)
                self.shared.journal.finished(stored=self.disk_works)
                self._committing = False
                self.settle()

            self.cluster.clock.after(delay, stored)

    def wake(self) -> None:
        self.now = self._time()
        self.shared.now = self.now

    def tick(self) -> None:
        if self.is_running:
            if not self.is_paused:
                self.wake()
                self.broker.tick(self.now)
                self.mesh.tick(self.now)
                self.is_open = self.is_open or self.mesh.is_synchronous
                self.settle()
            self.cluster.clock.after(0.05, self.tick)

    def received(
        self, origin: str, kind: int, body: bytes, answer: Callable[[int, bytes], None]
    ) -> None:
        self.wake()
        self.mesh.receive(origin, kind, body, answer)
        self.settle()

    def answered(self, peer: str, kind: int, body: bytes) -> None:
        self.wake()
        self.mesh.answered(peer, kind, body)
        self.settle()

    def lost(self, peer: str) -> None:
        self.wake()
        self.cluster.disconnected(self, peer)
        self.settle()


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode()) + 1


class SimulatedCluster:
    """Simulated brokers by name. Each dials all others again and again."""

    def __init__(
        self,
        seed: int,
        *names: str,
        spaces: Sequence[Space] = (),
        ahead_seconds: Mapping[str, float] | None = None,
        archived: Sequence[str] | None = None,
    ) -> None:
        """`ahead_seconds` has, by name, how far clocks are ahead.

        `archived` has the filters of topics that are archived; None for brokers without an archive.
        """
        self.random = Random(seed)
        self.ahead_seconds = ahead_seconds or {}
        self.clock = Clock()
        self.spaces = spaces
        self.archived = archived
        self.wires: dict[tuple[str, str], Wire] = {}
        self.disks = {name: Disk() for name in names}
        self.nodes: dict[str, SimulatedBroker] = {}
        self._lives = dict.fromkeys(names, 0)
        self._sides: dict[str, int] = {}
        self._parted: set[frozenset[str]] = set()
        for name in names:
            self.start(name)
        self.clock.after(0.0, self._dial)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def run_until(self, is_so: Callable[[], bool], *, seconds_max: float) -> None:
        end = self.clock.now + seconds_max
        while not is_so():
            assert self.clock.now < end
            self.run(0.05)

    def add(self, name: str) -> SimulatedBroker:
        """Add a broker that no other knows."""
        self.disks[name] = Disk()
        self._lives[name] = 0
        return self.start(name)

    def start(self, name: str) -> SimulatedBroker:
        self._lives[name] += 1
        node = self.nodes[name] = SimulatedBroker(self, name, self.disks[name], self._lives[name])
        self.clock.after(0.05, node.tick)
        self._tell(name)
        return node

    def kill(self, name: str) -> None:
        """Kill a broker. Its unfinished batch is on disk, or not."""
        node = self.nodes[name]
        batch = node.shared.journal.outstanding
        if batch is not None and self.random.random() < 0.5:
            node.disk.write(batch)
        node.is_running = False
        self._break(name)
        self._tell(name)

    def pause(self, name: str, is_paused: bool) -> None:
        node = self.nodes[name]
        node.is_paused = is_paused
        if not is_paused:
            kept, node.kept = node.kept, []
            for act in kept:
                self.clock.after(0.0, act)

    def cut(self, *names: str) -> None:
        """Cut these brokers off from the rest."""
        self._sides = dict.fromkeys(names, 1)
        self._break_closed()

    def part(self, one: str, other: str) -> None:
        """Cut two brokers off from each other only."""
        self._parted.add(frozenset((one, other)))
        self._break_closed()

    def _break_closed(self) -> None:
        for origin, target in list(self.wires):
            if not self._is_open(origin, target):
                self.wires[origin, target].close()

    def drop(self, name: str) -> None:
        """Break the connections of a broker, and dial again."""
        self._break(name)
        self._dial_all()

    def heal(self) -> None:
        self._sides = {}
        self._parted.clear()

    def _is_open(self, one: str, other: str) -> bool:
        is_parted = frozenset((one, other)) in self._parted
        return not is_parted and self._sides.get(one, 0) == self._sides.get(other, 0)

    def _break(self, name: str) -> None:
        for ends, wire in list(self.wires.items()):
            if name in ends:
                wire.close()

    def _tell(self, name: str) -> None:
        """Tell others whether the broker lives, each after a random time; tell it of them."""
        node = self.nodes[name]
        for other in self.nodes.values():
            if other.name == name:
                continue
            self.clock.after(self.random.uniform(0, 3), self._say, other, node)
            if node.is_running:
                self._say(node, other)

    def _say(self, to: SimulatedBroker, about: SimulatedBroker) -> None:
        if to.is_running and self.nodes[about.name] is about:
            to.wake()
            to.mesh.peer_is_live(about.name, about.is_running)
            to.settle()

    def connected(self, origin: SimulatedBroker, name: str) -> None:
        origin.mesh.peer_is_up(name)

    def disconnected(self, origin: SimulatedBroker, name: str) -> None:
        origin.mesh.peer_is_down(name)

    def _dial(self) -> None:
        self._dial_all()
        self.clock.after(0.1, self._dial)

    def _dial_all(self) -> None:
        for origin in self.nodes.values():
            for target in self.nodes.values():
                ends = (origin.name, target.name)
                if (
                    origin is not target
                    and origin.is_running
                    and target.is_running
                    and not (origin.is_paused or target.is_paused)
                    and ends not in self.wires
                    and self._is_open(*ends)
                ):
                    self.wires[ends] = Wire(self, origin, target)
                    origin.wake()
                    self.connected(origin, target.name)
                    origin.settle()
