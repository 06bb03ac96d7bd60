"""A node that is a broker and a matcher, in one process: `node --role both`.

To the cluster they are two: the matcher is NAME-matcher, with links of its own, and is fed and
asked over them as any other. So nothing else knows of this; and it is for few nodes, or small
machines, as both share one core. The matcher begins when the broker is up, hands over before it
stops, and may be drained alone: the broker stays.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from dovetail.cluster.addresses import Address
from dovetail.errors import ConfigError
from dovetail.matcher.held_boxes import load_kernels
from dovetail.node.broker import Node
from dovetail.node.matcher import MatcherNode
from dovetail.node.service import run_until_told
from dovetail.settings import Settings, as_matcher

log = logging.getLogger("dovetail.matcher")


class BothRoles:
    """Driven as one (service.py)."""

    def __init__(
        self, settings: Settings, *, load: Callable[[], Settings], movable: frozenset[str]
    ) -> None:
        if settings.cluster.advertise:
            raise ConfigError(
                "a node with both roles has two addresses for others, and --advertise names one.",
                hint="Start the matcher apart: dovetail node --role matcher.",
            )
        self.broker = Node(settings, load=load, movable=movable)
        self.matcher: MatcherNode | None = None
        self._load = load
        self._leaving: asyncio.Task[None] | None = None

    @property
    def places(self) -> list[tuple[str, str]]:
        own = [] if self.matcher is None else self.matcher.places
        return self.broker.places + own

    async def start(self) -> None:
        load_kernels()  # as all that is read from files: before clients come
        await self.broker.start()
        assert self.broker.agent is not None, "a node of a cluster has one"
        address = self.broker.agent.transport.address

        def beside() -> Settings:
            return settings_beside(self._load(), self.broker.name, address)

        first = settings_beside(self.broker.settings, self.broker.name, address)
        self.matcher = MatcherNode(first, load=beside)
        await self.matcher.start()
        self._leaving = asyncio.create_task(self._leave(self.matcher), name="matcher")

    async def _leave(self, matcher: MatcherNode) -> None:
        """When it is told to, by whomever."""
        await matcher.run()
        await matcher.stop()
        self.matcher = None

    async def start_http(self) -> None:
        await self.broker.start_http()

    async def run(self) -> None:
        await self.broker.run()

    def stop_soon(self) -> None:
        if self.matcher is not None:
            self.matcher.stop_soon()  # the second time: without handing over
        self.broker.stop_soon()

    async def stop(self) -> None:
        if self.matcher is not None:
            self.matcher.stop_soon()
            if self._leaving is not None:
                await self._leaving
        await self.broker.stop()

    def reload(self) -> None:
        self.broker.reload()
        if self.matcher is not None:
            self.matcher.reload()


def settings_beside(settings: Settings, name: str, broker: Address) -> Settings:
    """Those of a matcher, for the process of the broker with these."""
    cluster = replace(settings.cluster, join=(str(broker),), port=0)
    http = replace(settings.http, enabled=False)
    return replace(as_matcher(settings), name=f"{name}-matcher", cluster=cluster, http=http)


def run_both(
    settings: Settings,
    *,
    load: Callable[[], Settings],
    movable: frozenset[str],
    announce: Callable[[BothRoles], None] | None,
) -> None:
    """Run until SIGINT or SIGTERM."""
    run_until_told(
        lambda: BothRoles(settings, load=load, movable=movable),
        level=settings.log.level,
        log_name=None,
        begin=None,
        announce=announce,
    )
