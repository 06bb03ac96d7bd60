"""What is between the brokers: a protocol with two implementations, namespaces.py and relays.py."""

from collections.abc import Sequence
from typing import Protocol

CUT, ONE_WAY, RESET = "cut", "one-way", "reset"
DELAY, LOSS, SLOW = "delay", "loss", "slow"

LINK_PORT = 7883
"""Of a broker that has an address of its own."""


class NetworkError(Exception):
    """This machine does not let us make such a network: why."""


class Network(Protocol):
    name: str
    """For the report."""

    @property
    def kinds(self) -> Sequence[str]:
        """Return the faults that it can make."""

    def host(self, node: str) -> str:
        """Return the address at which clients reach a broker."""

    def link(self, node: str) -> tuple[str, int]:
        """Return the address and port on which a broker listens for others."""

    def advertised(self, node: str) -> tuple[str, int]:
        """Return the address and port at which others dial it."""

    def command(self, node: str) -> Sequence[str]:
        """Return what stands before the command that starts a broker."""

    async def disturb(self, kind: str, nodes: Sequence[str], amount: float) -> None:
        """Cut one node off from the rest, or two from each other."""

    async def heal(self) -> None:
        """Take every disturbance back."""

    async def close(self) -> None: ...
