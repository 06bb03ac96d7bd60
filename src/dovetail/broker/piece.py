"""The piece of a client's bytes that is taken at once. The rest waits for its turn. Pure.

One read may bring work that would keep other clients waiting: many packets, or one with many
filters. Whoever takes packets adds the effort to `spent`. What takes long is a work (slices.py),
which has to end before the next packet is taken. packet_reader.py stops when the piece is full.
"""

from collections.abc import Sequence

from dovetail.broker.limits import EFFORT_PER_PIECE
from dovetail.broker.outgoing_message import SubscriberLink
from dovetail.slices import Work, run_slice


class Piece:
    """The effort of one piece, and the work that it has begun."""

    __slots__ = ("awaited", "spent", "work")

    def __init__(self) -> None:
        self.spent = 0
        self.awaited: Sequence[SubscriberLink] = ()
        """The receivers that have to catch up before anything else is taken (back_pressure.py)."""
        self.work: Work | None = None
        """Has to end before the next packet is taken."""

    @property
    def is_full(self) -> bool:
        return self.work is not None or self.spent >= EFFORT_PER_PIECE

    def wait_for(self, receivers: Sequence[SubscriberLink]) -> None:
        """End the piece, and wait for these receivers before the next one."""
        self.awaited = receivers
        self.spent = EFFORT_PER_PIECE

    def begin(self, work: Work) -> None:
        """Begin work that has to end before the next packet is taken."""
        if not run_slice(work):
            self.work = work
