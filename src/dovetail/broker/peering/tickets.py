"""Tickets: an acknowledgement that waits until several peers have a publication. Pure."""

from collections.abc import Callable

from dovetail.broker.peering.outbox import Done
from dovetail.messages import Message

Post = Callable[[str, Message, bool, "Ticket | None"], None]
"""Puts a packed control message into a peer's outbox; with the flag, even if there is no room."""


class Ticket:
    """Waits for the peers that have to take a publication."""

    __slots__ = ("_act", "_refused", "_waiting")

    def __init__(self) -> None:
        self._waiting = 1
        self._refused = False
        self._act: Done | None = None

    def expect(self) -> Done:
        """Wait for one more peer; the result is its callback."""
        self._waiting += 1
        return self._answered

    def close(self, act: Done) -> None:
        """Call `act` when all have answered, maybe now. No more peers are expected."""
        self._act = act
        self._answered(True)

    def _answered(self, taken: bool) -> None:
        self._waiting -= 1
        self._refused = self._refused or not taken
        if not self._waiting and self._act is not None:
            self._act(not self._refused)
