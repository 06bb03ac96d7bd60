"""A network of TCP relays, for machines where no namespaces can be made.

Weaker than a real network: packets are neither lost nor delayed, two brokers cannot be cut off from
each other alone, and the kernel of each broker sees a healthy connection to the relay.
"""

import asyncio
from collections.abc import Sequence

from reliability.network import CUT, ONE_WAY, RESET, SLOW
from support.clusters.network import HOST, ClusterNetwork, Cut

_CUTS = {CUT: Cut.STALLED, ONE_WAY: Cut.ONE_WAY, RESET: Cut.RESET, SLOW: Cut.SLOW}


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
