"""A process that serves until it is told to stop: its loop, its log, and its signals.

SIGINT and SIGTERM stop it, also while it starts; SIGHUP has it read its files again.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol, TypeVar

import uvloop

from dovetail.cluster.agent import NodeAgent
from dovetail.process.descriptors import raise_limit
from dovetail.process.logs import set_up_logging


class Service(Protocol):
    """What runs: a broker or a matcher, with everything around it."""

    @property
    def places(self) -> list[tuple[str, str]]:
        """Where it can be reached, and how."""

    async def start(self) -> None: ...

    async def start_http(self) -> None: ...

    async def run(self) -> None:
        """Until `stop_soon` is called."""

    def stop_soon(self) -> None: ...

    async def stop(self) -> None: ...

    def reload(self) -> None: ...


Served = TypeVar("Served", bound=Service)


def run_until_told(
    make: Callable[[], Served],
    *,
    level: str,
    log_name: str | None,
    begin: Callable[[Served], None] | None,
    announce: Callable[[Served], None] | None,
) -> None:
    """`make` and `begin` are called before anything else, in the loop."""
    set_up_logging(level, log_name)
    raise_limit()

    async def main() -> None:
        service = make()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, service.stop_soon)
        loop.add_signal_handler(signal.SIGHUP, service.reload)
        if begin is not None:
            begin(service)
        starting = asyncio.create_task(_start(service, announce))
        stopped = asyncio.create_task(service.run())
        try:
            # Who starts may wait for other nodes; who is told to stop waits for nobody.
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopped
        finally:
            starting.cancel()
            stopped.cancel()
            await asyncio.gather(starting, stopped, return_exceptions=True)
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def _start(service: Served, announce: Callable[[Served], None] | None) -> None:
    await service.start()
    await service.start_http()
    if announce is not None:
        announce(service)


def places_of(
    http_address: tuple[str, int] | None, agent: NodeAgent | None
) -> list[tuple[str, str]]:
    """Where people and other nodes reach a service, and how."""
    found = []
    if http_address is not None:
        found.append(("HTTP", http_url(http_address)))
    if agent is not None:
        found.append(("links", str(agent.transport.address)))
    return found


def http_url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
