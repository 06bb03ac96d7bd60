"""Runs a node until a signal stops it: event loop, log and signals.

SIGINT and SIGTERM stop the node, even while it starts. SIGHUP makes it read its files again.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol, TypeVar

import uvloop

from dovetail.cluster.agent import NodeAgent
from dovetail.process.descriptors import raise_descriptor_limit
from dovetail.process.logs import set_up_logging


class Service(Protocol):
    """A node that `run_service` can run: a broker, a matcher or both."""

    @property
    def addresses(self) -> list[tuple[str, str]]:
        """Return the addresses of the node, each with the name of its protocol."""

    async def start(self) -> None: ...

    async def start_http(self) -> None: ...

    async def run(self) -> None:
        """Wait until `stop_soon` is called."""

    def stop_soon(self) -> None: ...

    async def stop(self) -> None: ...

    def reload(self) -> None: ...


ServiceType = TypeVar("ServiceType", bound=Service)


def run_service(
    make: Callable[[], ServiceType],
    *,
    level: str,
    log_name: str | None,
    begin: Callable[[ServiceType], None] | None,
    announce: Callable[[ServiceType], None] | None,
) -> None:
    """Run the node that `make` returns. `make` and `begin` are called first, in the loop."""
    set_up_logging(level, log_name)
    raise_descriptor_limit()

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
            # A start may wait for other nodes. A stop does not.
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


async def _start(service: ServiceType, announce: Callable[[ServiceType], None] | None) -> None:
    await service.start()
    await service.start_http()
    if announce is not None:
        announce(service)


def addresses_of(
    http_address: tuple[str, int] | None, agent: NodeAgent | None
) -> list[tuple[str, str]]:
    """Return the addresses for HTTP and for other nodes, each with the name of its protocol."""
    found = []
    if http_address is not None:
        found.append(("HTTP", http_url(http_address)))
    if agent is not None:
        found.append(("links", str(agent.transport.address)))
    return found


def http_url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
