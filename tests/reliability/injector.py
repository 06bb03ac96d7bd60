"""Injects the faults of a schedule into a real cluster.

A fault whose target already has another fault is skipped, and counted. The injector records
`FaultEnded` when it has taken a fault back: the process is up again, the network or disk is as
before.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from reliability.cluster import Broker, Cluster, StartError
from reliability.disks import Disks
from reliability.history import Exited, FaultBegan, FaultEnded
from reliability.network import Network
from reliability.schedule import DISK, NETWORK, PlannedFault
from reliability.world import World

_START_AGAIN_SECONDS = 0.5


class Injector:
    def __init__(self, cluster: Cluster, network: Network, disks: Disks, world: World) -> None:
        self.active: dict[int, PlannedFault] = {}
        """By number."""
        self.count = 0
        self.skipped = 0
        self._cluster = cluster
        self._network = network
        self._disks = disks
        self._world = world
        self._process_locks = {name: asyncio.Lock() for name in world.nodes}
        self._fills = dict.fromkeys(world.nodes, 0)
        self._full = {name: asyncio.Lock() for name in world.nodes}
        self._network_lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._offsets = dict.fromkeys(world.nodes, 0.0)

    async def run(self, planned: Iterable[PlannedFault], begin: float) -> None:
        """Inject each fault at its time, and return when the last one is taken back."""
        async with asyncio.TaskGroup() as tasks:
            for fault in planned:
                await self._pause(begin + fault.at - self._world.now())
                if self._stopping.is_set():
                    return
                tasks.create_task(self._inject(fault))

    def stop_soon(self) -> None:
        """Take back active faults, and start no more."""
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._stopping.wait()

    async def _inject(self, fault: PlannedFault) -> None:
        if fault.kind in NETWORK:
            await self._disturb_network(fault)
        elif fault.kind in DISK:
            await self._fill_disk(fault)
        elif fault.kind == "rolling":
            await self._restart_all(fault)
        else:
            await self._disturb_process(fault, self._cluster.brokers[fault.nodes[0]])

    @contextlib.asynccontextmanager
    async def _recorded(self, fault: PlannedFault) -> AsyncIterator[None]:
        world = self._world
        number = world.recorder.next_number()
        self.count += 1
        self.active[number] = fault
        world.record(FaultBegan(world.now(), number, fault.kind, fault.nodes, fault.detail))
        try:
            yield
        finally:
            del self.active[number]
            world.record(FaultEnded(world.now(), number))

    # Processes ------------------------------------------------------------------------------------

    async def _disturb_process(self, fault: PlannedFault, broker: Broker) -> None:
        lock = self._process_locks[broker.name]
        if lock.locked() or not broker.is_running:
            self.skipped += 1
            return
        async with lock, self._recorded(fault):
            match fault.kind:
                case "kill":
                    await self._kill(broker, fault.seconds)
                case "stop":
                    await self._stop(broker, fault)
                case "restart":
                    await broker.terminate()
                    await self._pause(fault.seconds)
                    await self._start(broker)
                case "clock":
                    self._offsets[broker.name] += fault.amount
                    broker.shift_clock(self._offsets[broker.name])
                    await self._kill(broker, fault.seconds)

    async def _kill(self, broker: Broker, seconds: float) -> None:
        await broker.kill()
        await self._pause(seconds)
        await self._start(broker)

    async def _start(self, broker: Broker) -> None:
        """Start a broker. If its disk is full, start it again when there is room."""
        full = self._full[broker.name]
        while True:
            was_full, fills = full.locked(), self._fills[broker.name]
            try:
                await broker.start()
            except StartError as error:
                if not was_full and fills == self._fills[broker.name]:
                    self._world.record(Exited(self._world.now(), broker.name, 1, str(error)))
            else:
                return
            async with full:
                await asyncio.sleep(_START_AGAIN_SECONDS)

    async def _stop(self, broker: Broker, fault: PlannedFault) -> None:
        broker.suspend()
        await self._pause(fault.seconds)
        if fault.amount:  # it never goes on
            await self._kill(broker, 0)
        else:
            broker.resume()

    async def _restart_all(self, fault: PlannedFault) -> None:
        if any(lock.locked() for lock in self._process_locks.values()):
            self.skipped += 1
            return
        async with contextlib.AsyncExitStack() as held, self._recorded(fault):
            for lock in self._process_locks.values():
                await held.enter_async_context(lock)
            for name in fault.nodes:
                broker = self._cluster.brokers[name]
                await broker.terminate()
                await self._start(broker)

    # The network and disks ------------------------------------------------------------------------

    async def _disturb_network(self, fault: PlannedFault) -> None:
        if self._network_lock.locked():
            self.skipped += 1
            return
        async with self._network_lock, self._recorded(fault):
            await self._network.disturb(fault.kind, fault.nodes, fault.amount)
            try:
                await self._pause(fault.seconds)
            finally:
                await self._network.heal()

    async def _fill_disk(self, fault: PlannedFault) -> None:
        (node,) = fault.nodes
        if self._full[node].locked():
            self.skipped += 1
            return
        async with self._full[node], self._recorded(fault):
            self._fills[node] += 1
            self._disks.fill(node)
            try:
                await self._pause(fault.seconds)
            finally:
                self._disks.free(node)
