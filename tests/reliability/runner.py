"""Runs clients, faults and brokers from the first process to the last.

The phases are events of the history:

- **start**: brokers and clients start, and clients subscribe in a calm cluster;
- **workload**: clients publish, connections are lost, faults come as scheduled;
- **healing**: the last fault is over, and the cluster must become whole;
- **draining**: publishers stop, and every promised message must arrive. Then each publishes a
  little more: a late repetition would come before that;
- **reading**: retained messages are read at all brokers;
- **over**.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from reliability import schedule, workload
from reliability.builder import build
from reliability.checker import group, loss, will
from reliability.clients.client import Client
from reliability.clients.handle_reader import HandleReader
from reliability.clients.publisher import Publisher
from reliability.clients.retained_reader import read_all
from reliability.clients.short_lived import ShortLivedClient
from reliability.clients.subscriber import Subscriber
from reliability.clients.transient import TransientClient
from reliability.cluster import Cluster
from reliability.disks import Disks
from reliability.history import Event, Phase, Recorder, Run, Whole
from reliability.injector import Injector
from reliability.network import Network
from reliability.schedule import DISK, PlannedFault
from reliability.workload import ClientPlan
from reliability.world import World

READY_SECONDS_MAX = 60.0
WHOLE_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 60.0
ARRIVAL_SECONDS_MAX = 120.0
READING_SECONDS_MAX = 30.0

_TURN_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_MORE_SECONDS = 2.0


@dataclass(frozen=True)
class Settings:
    seed: int
    seconds: float
    """The length of the workload."""
    nodes: tuple[str, ...]
    rate: float
    kinds: tuple[str, ...]
    version: str
    options: dict[str, str]


class Runner:
    """One run. `stop_soon` ends the workload early; the other phases follow."""

    def __init__(
        self, settings: Settings, folder: Path, network: Network, recorder: Recorder
    ) -> None:
        self.settings = settings
        self.world = World(recorder, settings.nodes, settings.rate)
        self.phase = ""
        self.planned: tuple[PlannedFault, ...] = ()
        self.work_until = 0.0
        self._network = network
        self._disks = Disks({name: folder / "data" / name for name in settings.nodes})
        self._cluster = Cluster(folder, network, self.world)
        self.injector = Injector(self._cluster, network, self._disks, self.world)
        self._clients: list[Client | HandleReader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._whole_at = 0.0
        """When the cluster was last whole."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the requested faults that are possible here."""
        possible = {*schedule.PROCESS, *self._network.kinds}
        if self._disks.can_be_filled:
            possible |= {*DISK}
        return tuple(kind for kind in self.settings.kinds if kind in possible)

    def stop_soon(self) -> None:
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        """Return whether the workload is over."""
        return self._stop.is_set() or self.phase not in {"", "start", "workload"}

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cluster.stop()
        await self._network.close()
        self._disks.close()

    async def _run(self) -> None:
        settings, world = self.settings, self.world
        plan = workload.plan(settings.seed, settings.nodes)
        self.planned = schedule.plan(settings.seed, settings.seconds, settings.nodes, self.kinds)
        world.record(
            Run(
                world.now(),
                settings.seed,
                settings.nodes,
                self._network.name,
                f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
                settings.version,
                settings.options,
            )
        )
        self._begin("start")
        await self._cluster.start()
        self._start_clients(plan.clients)
        self._spawn(self._watch_wholeness())
        await self._wait(self._is_ready, READY_SECONDS_MAX)
        await self._work()
        self._begin("healing")
        await self._wait(self._is_whole_since(world.now()), WHOLE_SECONDS_MAX)
        self._begin("draining")
        await self._drain()
        world.is_publishing = True
        await asyncio.sleep(_MORE_SECONDS)
        await self._drain()
        self._begin("reading")
        await read_all(world, plan.retained_topics, READING_SECONDS_MAX)
        self._begin("over")

    def _begin(self, phase: str) -> None:
        self.phase = phase
        self.world.record(Phase(self.world.now(), phase))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _wait(self, condition: Callable[[], bool], seconds_max: float) -> bool:
        """Return whether the condition came true in time; if not, checkers will notice."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while not condition():
                    self._raise_faults()
                    await asyncio.sleep(_TURN_SECONDS)
                return True
        return False

    def _raise_faults(self) -> None:
        """Raise the error of a task that has ended, which is a fault of the tool."""
        for task in self._tasks:
            if task.done():
                task.result()

    # Clients --------------------------------------------------------------------------------------

    def _start_clients(self, plans: Sequence[ClientPlan]) -> None:
        shares = sum(one.publisher_plan.share for one in plans if one.publisher_plan is not None)
        for plan in plans:
            client = self._make_client(plan, shares)
            self._clients.append(client)
            self._spawn(client.run())

    def _make_client(self, plan: ClientPlan, shares: float) -> Client | HandleReader:
        if plan.is_handle:
            return HandleReader(plan, self.world)
        if plan.is_short_lived:
            return ShortLivedClient(plan, self.world)
        if plan.is_transient:
            return TransientClient(plan, self.world)
        client = Client(plan, self.world)
        roles: list[Publisher | Subscriber] = []
        if plan.publisher_plan is not None:
            publisher = Publisher(client, plan.publisher_plan, plan.publisher_plan.share / shares)
            roles.append(publisher)
            self._spawn(publisher.run())
        if plan.subscriber_plan is not None:
            roles.append(Subscriber(client, plan.subscriber_plan))
        client.roles = roles
        return client

    def _is_ready(self) -> bool:
        return all(client.is_done for client in self._clients) and bool(self._whole_at)

    # Phases ---------------------------------------------------------------------------------------

    async def _work(self) -> None:
        self._begin("workload")
        world = self.world
        world.is_publishing = world.is_disrupting = True
        begin = world.now()
        self.work_until = begin + self.settings.seconds
        faults = asyncio.create_task(self.injector.run(self.planned, begin))
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({stop}, timeout=self.settings.seconds)
            self._raise_faults()
            if self._stop.is_set():
                self.injector.stop_soon()
            await faults
        finally:
            stop.cancel()
            faults.cancel()
            world.is_disrupting = False

    async def _drain(self) -> None:
        self.world.is_publishing = False
        await self._wait(
            lambda: all(client.is_done for client in self._clients), ANSWER_SECONDS_MAX
        )
        until = self.world.now() + ARRIVAL_SECONDS_MAX
        while (now := self.world.now()) < until:
            events = self.world.recorder.events[:]
            if await asyncio.to_thread(_has_arrived, events) and await self._cluster.is_quiet():
                return
            # Leave clients half of the time.
            await asyncio.sleep(max(_TURN_SECONDS, self.world.now() - now))

    # Wholeness ------------------------------------------------------------------------------------

    async def _watch_wholeness(self) -> None:
        while True:
            began_at, count = self.world.now(), self.injector.count
            is_whole = not self.injector.active and await self._cluster.is_whole()
            if is_whole and not self.injector.active and self.injector.count == count:
                self._whole_at = began_at
                self.world.record(Whole(began_at))
            self.world.recorder.flush()
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_whole_since(self, at: float) -> Callable[[], bool]:
        return lambda: self._whole_at >= at


def _has_arrived(events: Sequence[Event]) -> bool:
    """Return whether every promised message has arrived."""
    record = build(events)
    return all(
        verdict.holds
        for check in (loss.check, group.check, will.check)
        for verdict in check(record)
    )
