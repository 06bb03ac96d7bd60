"""Live nodes of a cluster in one process: brokers, and agents that record what happens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from dovetail.api.reports import NodeRole
from dovetail.cluster.addresses import Address
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.node_settings import NodeSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.node.broker import BrokerNode
from dovetail.settings import HttpSettings, Settings
from support.processes.broker_process import WAIT_SECONDS


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert condition(), what


@asynccontextmanager
async def running(
    folder: Path,
    name: str,
    *join: BrokerNode | Address,
    forget_seconds: float = 86_400.0,
    secret: bytes = b"",
    join_seconds: float = 1.0,
) -> AsyncIterator[BrokerNode]:
    """Run a broker without listeners: only other nodes connect."""
    links = LinkSettings(name=name, port=0, secret=secret)
    seeds = tuple(one if isinstance(one, Address) else address_of(one) for one in join)
    part = NodeSettings(
        links, join=seeds, join_seconds_max=join_seconds, forget_seconds=forget_seconds
    )
    settings = Settings(name=name, data=str(folder), listeners=(), http=HttpSettings(enabled=False))
    node = BrokerNode(settings, cluster=part)
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


def address_of(node: BrokerNode) -> Address:
    assert node.agent is not None
    return node.agent.transport.address


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


class RecordingAgent(NodeAgent):
    """An agent that records what it is told of other nodes."""

    def __init__(self, name: str, role: NodeRole, *join: Address, incarnation: int = 1) -> None:
        part = NodeSettings(LinkSettings(name=name, port=0, role=role), join)
        super().__init__(part, part.links, incarnation=incarnation, random=Random(name))
        self.events: list[tuple[object, ...]] = []
        self.links: dict[str, PeerLink] = {}
        """The links that others have opened, of each the one of the last frame."""

    async def start(self) -> None:
        await self._listen()
        self._dial_seeds()
        self._turn()

    async def stop(self, *, keeps: bool = False) -> None:
        await self._say_goodbye(keeps=keeps)

    def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
        if not link.is_dialed:
            self.links[link.name] = link
        self.events.append(("frame", link.name, kind, body))

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        self.events.append(("up", name, role, address))

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        self.events.append(("down", name, role, is_alive))

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        self.events.append(("live", name, role, is_alive))

    def _has_left(self, name: str, role: NodeRole) -> None:
        self.events.append(("left", name, role))

    def _is_forgotten(self, name: str) -> None:
        self.events.append(("forgotten", name))

    def _address_known(self, name: str, role: NodeRole, address: Address) -> None:
        self.events.append(("at", name, role, address))

    def _gossip_answered(self, role: NodeRole) -> None:
        self.events.append(("told", role))


@asynccontextmanager
async def bare(
    name: str, role: NodeRole, *join: Address, incarnation: int = 1
) -> AsyncIterator[RecordingAgent]:
    agent = RecordingAgent(name, role, *join, incarnation=incarnation)
    try:
        await agent.start()
        yield agent
    finally:
        await agent.stop()
