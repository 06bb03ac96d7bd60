"""The network between brokers: a protocol that namespaces.py and relays.py implement."""

from collections.abc import Sequence
from typing import Protocol

CUT, ONE_WAY, RESET = "cut", "one-way", "reset"
DELAY, LOSS, SLOW = "delay", "loss", "slow"

LINK_PORT = 7883
"""The links' port of a broker with an address of its own."""


class NetworkError(Exception):
    """This machine does not allow such a network. The text says why."""


class Network(Protocol):
    name: str
    """The name in the report."""

    @property
    def kinds(self) -> Sequence[str]:
        """Return the kinds of faults that it supports."""

    def host(self, node: str) -> str:
        """Return the address at which clients reach a broker."""

    def link(self, node: str) -> tuple[str, int]:
        """Return the address and port on which a broker listens for others."""

    def advertised(self, node: str) -> tuple[str, int]:
        """Return the address and port at which others dial it."""

    def command(self, node: str) -> Sequence[str]:
        """Return the prefix of the command that starts a broker."""

    async def disturb(self, kind: str, nodes: Sequence[str], amount: float) -> None:
        """Cut one node off from the rest, or two from each other."""

    async def heal(self) -> None:
        """Take back every fault."""

    async def close(self) -> None: ...
