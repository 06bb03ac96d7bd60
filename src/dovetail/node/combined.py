"""A node that is a broker and a matcher, in one process: `node --role both`.

The cluster sees two nodes. The matcher is NAME-matcher and has links of its own, over which brokers
feed it and ask it as any other matcher. So no other module needs to know. Both share one core, so
this is for clusters of few nodes, or small machines. The matcher starts when the broker is up and
hands over before it stops. It may be drained alone: the broker stays.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from dovetail.cluster.addresses import Address
from dovetail.errors import ConfigError
from dovetail.matcher.held_boxes import load_kernels
from dovetail.node.broker import BrokerNode
from dovetail.node.matcher import MatcherNode
from dovetail.node.service import run_service
from dovetail.settings import Settings, as_matcher

log = logging.getLogger("dovetail.matcher")


class CombinedNode:
    """A broker and a matcher that run as one service (service.py)."""

    def __init__(
        self, settings: Settings, *, load: Callable[[], Settings], movable: frozenset[str]
    ) -> None:
        if settings.cluster.advertise:
            raise ConfigError(
                "a node with both roles has two addresses for others, and --advertise names one.",
                hint="Start the matcher apart: dovetail node --role matcher.",
            )
        self.broker = BrokerNode(settings, load=load, movable=movable)
        self.matcher: MatcherNode | None = None
        self._load = load
        self._matcher_end: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> list[tuple[str, str]]:
        own = [] if self.matcher is None else self.matcher.addresses
        return self.broker.addresses + own

    async def start(self) -> None:
        load_kernels()  # before clients connect, like everything that is read from files
        await self.broker.start()
        assert self.broker.agent is not None, "a node of a cluster has an agent"
        address = self.broker.agent.transport.address

        def load() -> Settings:
            return matcher_settings(self._load(), self.broker.name, address)

        settings = matcher_settings(self.broker.settings, self.broker.name, address)
        self.matcher = MatcherNode(settings, load=load)
        await self.matcher.start()
        self._matcher_end = asyncio.create_task(self._stop_drained(self.matcher), name="matcher")

    async def _stop_drained(self, matcher: MatcherNode) -> None:
        """Stop the matcher when it is drained or the node stops."""
        await matcher.run()
        await matcher.stop()
        self.matcher = None

    async def start_http(self) -> None:
        await self.broker.start_http()

    async def run(self) -> None:
        await self.broker.run()

    def stop_soon(self) -> None:
        if self.matcher is not None:
            self.matcher.stop_soon()  # a second call skips the hand-over
        self.broker.stop_soon()

    async def stop(self) -> None:
        if self.matcher is not None:
            self.matcher.stop_soon()
            if self._matcher_end is not None:
                await self._matcher_end
        await self.broker.stop()

    def reload(self) -> None:
        self.broker.reload()
        if self.matcher is not None:
            self.matcher.reload()


def matcher_settings(settings: Settings, name: str, broker: Address) -> Settings:
    """Return the settings of the matcher beside the broker with `settings`."""
    cluster = replace(settings.cluster, join=(str(broker),), port=0)
    http = replace(settings.http, enabled=False)
    return replace(as_matcher(settings), name=f"{name}-matcher", cluster=cluster, http=http)


def run_combined(
    settings: Settings,
    *,
    load: Callable[[], Settings],
    movable: frozenset[str],
    announce: Callable[[CombinedNode], None] | None,
) -> None:
    """Run until SIGINT or SIGTERM."""
    run_service(
        lambda: CombinedNode(settings, load=load, movable=movable),
        level=settings.log.level,
        log_name=None,
        begin=None,
        announce=announce,
    )
