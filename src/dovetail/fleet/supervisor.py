"""Supervises the processes of a fleet: starts, watches, restarts and stops them.

    start -> reports that it is up -> ends by itself -> pause, longer each time -> start ...
       |                                                            |
       +-- error at the first start: all processes are stopped      +-- error later: tried again

Rules:

- A process gets its configuration on its standard input, which stays open. The process stops at its
  end, so none outlives the supervisor, however that ends.
- A process answers with lines of JSON on its standard output: its addresses when it is up, or the
  error that keeps it from starting. Its log goes where the supervisor's log goes.
- A process that reports that it was drained (`dovetail drain`) is not started again.
- A pool runs as many processes as its `decide` function wants, which gets their load. A process
  that is to leave is told to stop, and has time to hand over.
- Processes in `after` need the others. They start when the others are up, may fail without harm to
  them, and are stopped first.
- Processes are in their own process groups. Ctrl-C reaches the supervisor, which stops them.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from dovetail.fleet.child import ChildProcess, ProcessSpec
from dovetail.fleet.limits import MATCHERS_LOOK_SECONDS, STOP_SECONDS_MAX
from dovetail.matcher.autoscaler import MatcherProcess, ProcessState, ScalingDecision
from dovetail.process.logs import about

log = logging.getLogger("dovetail.up")


@dataclass(frozen=True)
class MatcherPool:
    """Matcher processes of which some run. `decide` gets their states and the time."""

    specs: Sequence[ProcessSpec]
    count: int
    """So many run from the start, the first ones."""
    decide: Callable[[Sequence[MatcherProcess], float], ScalingDecision | None]


def supervise(
    specs: Sequence[ProcessSpec],
    announce: Callable[[dict[str, Any]], None],
    pool: MatcherPool | None = None,
    after: Sequence[ProcessSpec] = (),
) -> None:
    """Run processes until SIGINT or SIGTERM. `announce` gets their addresses when all are up.

    Those in `after` need the others: they start when these are up, and end before them.
    """
    asyncio.run(_Supervisor(specs, announce, pool, after).run())


class _Supervisor:
    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        announce: Callable[[dict[str, Any]], None],
        pool: MatcherPool | None,
        after: Sequence[ProcessSpec],
    ) -> None:
        self._first_specs = [*specs, *(pool.specs[: pool.count] if pool is not None else ())]
        """The processes that must be up before `announce` is called."""
        self._announce = announce
        self._pool = pool
        self._after = after
        self._processes: dict[str, ChildProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._signal, signal.SIGHUP)
        for spec in self._first_specs:
            self._begin(ChildProcess(spec))
        waiting = asyncio.create_task(stopped.wait())
        tasks: list[asyncio.Task[Any]] = [waiting]
        try:
            reports = asyncio.gather(*(process.ready for process in self._processes.values()))
            await _first_of(reports, waiting)
            if reports.done():
                self._announce(dict(zip(self._processes, reports.result(), strict=True)))
                for spec in self._after:
                    self._begin(process := ChildProcess(spec, is_first=False))
                    process.ready.add_done_callback(partial(_log_up, spec.name))
                if self._pool is not None:
                    tasks.append(asyncio.create_task(self._adapt(self._pool)))
            await waiting
        finally:
            tasks += self._tasks
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    def _begin(self, process: ChildProcess) -> None:
        self._processes[process.spec.name] = process
        task = asyncio.create_task(process.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _adapt(self, pool: MatcherPool) -> NoReturn:
        """Start and stop processes of the pool as it decides."""
        loop = asyncio.get_running_loop()
        specs = {spec.name: spec for spec in pool.specs}
        while True:
            matchers = [
                self._processes[name].matcher_process
                if name in self._processes
                else MatcherProcess(name, ProcessState.AWAY)
                for name in specs
            ]
            decision = pool.decide(matchers, loop.time())
            if decision is None:
                await asyncio.sleep(MATCHERS_LOOK_SECONDS)
            elif decision.is_start:
                log.info(
                    "%s: is started: %s", decision.name, decision.reason, extra=about(decision.name)
                )
                self._begin(ChildProcess(specs[decision.name], is_first=False))
            else:
                log.info(
                    "%s: hands over and leaves: %s",
                    decision.name,
                    decision.reason,
                    extra=about(decision.name),
                )
                self._processes[decision.name].leave()

    async def _stop(self) -> None:
        """Stop all processes. A second Ctrl-C kills them at once."""
        loop = asyncio.get_running_loop()
        hurry = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, hurry.set)
        hurried = asyncio.create_task(hurry.wait())
        last = {spec.name for spec in self._after}
        for is_last in (True, False):
            ending = [one for name, one in self._processes.items() if (name in last) == is_last]
            await self._end(ending, hurried)
        hurried.cancel()

    async def _end(self, processes: Sequence[ChildProcess], hurried: asyncio.Task[Any]) -> None:
        if not processes:
            return
        for process in processes:
            process.signal(signal.SIGTERM)
        ends = asyncio.gather(*(process.wait() for process in processes))
        await _first_of(ends, hurried, seconds_max=STOP_SECONDS_MAX)
        if not ends.done():
            log.warning("a node does not stop; it is killed")
            for process in processes:
                process.signal(signal.SIGKILL)
        await ends

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            process.signal(number)


def _log_up(name: str, ready: asyncio.Future[Any]) -> None:
    if not ready.cancelled():
        addresses = "; ".join(f"{kind} {where}" for kind, where in ready.result())
        log.info("%s: is up: %s", name, addresses or "it has nothing to tell", extra=about(name))


async def _first_of(*futures: asyncio.Future[Any], seconds_max: float | None = None) -> None:
    await asyncio.wait(futures, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
