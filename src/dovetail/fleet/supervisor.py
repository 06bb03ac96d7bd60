"""Processes that belong together: started, watched, started again when they end, and stopped.

    start -> says that it is up -> ends by itself -> pause, longer each time -> start ...
       |                                                            |
       +-- says what is wrong, at the first start: all are stopped  +-- at a later one: tried again

Rules:

- A process is told what it is by its standard input, which stays open: at its end the process
  stops, so none outlives this one, however that ends.
- A process answers on its standard output with lines of JSON: once with what it has to say when it
  is up, or with the error that keeps it from starting. Its log goes where ours goes.
- One that says that somebody had it leave (`dovetail drain`) is not started again.
- Of a pool as many run as somebody else decides, who is told how busy they are. One that is to go
  is told to stop, and has time to hand over.
- Some need the others: they begin when these are up, may fail without harm to them, and are
  stopped first.
- They are in process groups of their own. Ctrl-C is for this one, which tells them to stop.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from dovetail.fleet.child import Part, Supervised
from dovetail.fleet.limits import MATCHERS_LOOK_SECONDS, STOP_SECONDS_MAX
from dovetail.matcher.autoscaler import Change, Place, Standing
from dovetail.process.logs import about

log = logging.getLogger("dovetail.up")


@dataclass(frozen=True)
class Pool:
    """Parts of which some run. `decide` is told how they are, and the time."""

    parts: Sequence[Part]
    count: int
    """That run from the start, the first ones."""
    decide: Callable[[Sequence[Place], float], Change | None]


def supervise(
    parts: Sequence[Part],
    announce: Callable[[dict[str, Any]], None],
    pool: Pool | None = None,
    after: Sequence[Part] = (),
) -> None:
    """Run them until SIGINT or SIGTERM. `announce` gets what they said when all are up.

    Those that come `after` need the others: they begin when these are up, and end before them.
    """
    asyncio.run(_Supervisor(parts, announce, pool, after).run())


class _Supervisor:
    def __init__(
        self,
        parts: Sequence[Part],
        announce: Callable[[dict[str, Any]], None],
        pool: Pool | None,
        after: Sequence[Part],
    ) -> None:
        self._parts = [*parts, *(pool.parts[: pool.count] if pool is not None else ())]
        """Those that have to be up at first."""
        self._announce = announce
        self._pool = pool
        self._after = after
        self._processes: dict[str, Supervised] = {}
        self._lives: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._signal, signal.SIGHUP)
        for part in self._parts:
            self._begin(Supervised(part))
        waiting = asyncio.create_task(stopped.wait())
        tasks: list[asyncio.Task[Any]] = [waiting]
        try:
            said = asyncio.gather(*(process.said for process in self._processes.values()))
            await _first_of(said, waiting)
            if said.done():
                self._announce(dict(zip(self._processes, said.result(), strict=True)))
                for part in self._after:
                    self._begin(process := Supervised(part, is_first=False))
                    process.said.add_done_callback(partial(_say_up, part.name))
                if self._pool is not None:
                    tasks.append(asyncio.create_task(self._adapt(self._pool)))
            await waiting
        finally:
            tasks += self._lives
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    def _begin(self, process: Supervised) -> None:
        self._processes[process.part.name] = process
        life = asyncio.create_task(process.run())
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)

    async def _adapt(self, pool: Pool) -> NoReturn:
        """As many of the pool as are needed."""
        loop = asyncio.get_running_loop()
        parts = {part.name: part for part in pool.parts}
        while True:
            places = [
                self._processes[name].place
                if name in self._processes
                else Place(name, Standing.AWAY)
                for name in parts
            ]
            change = pool.decide(places, loop.time())
            if change is None:
                await asyncio.sleep(MATCHERS_LOOK_SECONDS)
            elif change.is_start:
                log.info("%s: is started: %s", change.name, change.reason, extra=about(change.name))
                self._begin(Supervised(parts[change.name], is_first=False))
            else:
                log.info(
                    "%s: hands over and leaves: %s",
                    change.name,
                    change.reason,
                    extra=about(change.name),
                )
                self._processes[change.name].leave()

    async def _stop(self) -> None:
        """A second Ctrl-C does not wait."""
        loop = asyncio.get_running_loop()
        hurry = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, hurry.set)
        hurried = asyncio.create_task(hurry.wait())
        last = {part.name for part in self._after}
        for is_last in (True, False):
            ending = [one for name, one in self._processes.items() if (name in last) == is_last]
            await self._end(ending, hurried)
        hurried.cancel()

    async def _end(self, processes: Sequence[Supervised], hurried: asyncio.Task[Any]) -> None:
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


def _say_up(name: str, said: asyncio.Future[Any]) -> None:
    if not said.cancelled():
        places = "; ".join(f"{kind} {where}" for kind, where in said.result())
        log.info("%s: is up: %s", name, places or "it has nothing to tell", extra=about(name))


async def _first_of(*futures: asyncio.Future[Any], seconds_max: float | None = None) -> None:
    await asyncio.wait(futures, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
