"""A network of TCP relays, for machines that allow no namespaces.

Weaker than a real network: packets are neither lost nor delayed, the link between two brokers
cannot be cut alone, and the kernel of each broker sees a healthy connection to the relay.
"""

import asyncio
from collections.abc import Sequence

from reliability.network import CUT, ONE_WAY, RESET, SLOW
from support.clusters.network import HOST, ClusterNetwork, CutMode

_CUTS = {CUT: CutMode.STALLED, ONE_WAY: CutMode.ONE_WAY, RESET: CutMode.RESET, SLOW: CutMode.SLOW}


class Relays:
    name = "TCP relays"
    kinds = tuple(_CUTS)

    def __init__(self, nodes: Sequence[str]) -> None:
        self._network = ClusterNetwork(*nodes)
        self._network.__enter__()

    def host(self, _node: str) -> str:
        return HOST

    def link(self, node: str) -> tuple[str, int]:
        return HOST, self._network.node_ports[node]

    def advertised(self, node: str) -> tuple[str, int]:
        return HOST, self._network.ports[node]

    def command(self, _node: str) -> Sequence[str]:
        return ()

    async def disturb(self, kind: str, nodes: Sequence[str], _amount: float) -> None:
        await asyncio.to_thread(self._network.cut_off, nodes[0], how=_CUTS[kind])

    async def heal(self) -> None:
        await asyncio.to_thread(self._network.heal)

    async def close(self) -> None:
        await asyncio.to_thread(self._network.close)
