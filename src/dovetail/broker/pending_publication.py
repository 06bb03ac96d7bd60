"""Publications that wait for matchers, then for the disk and the brokers that take them. Pure.

matcher_client.py makes them, in the order of their publisher. When matchers have answered, `resume`
lets dispatch.py or run_dispatch.py continue.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dovetail.attributes.box_index import Slots
from dovetail.attributes.space import Point
from dovetail.broker.local_delivery import LocalEntry, OutgoingMessages
from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.publication_point import RunPoints
from dovetail.broker.route import Route
from dovetail.messages import Message

Truths = npt.NDArray[np.bool_]

MatchingBrokers = frozenset[str] | None
"""The brokers with a matching clause. None: unknown, so all that may have one get it."""


class Resumable(Protocol):
    """What waits in the queue of its publisher."""

    def resume(self) -> None:
        """Continue: matchers have answered for it, and for all before it."""
        ...


class _Pending(Ticket):
    """A ticket that closes when the publication has continued and is where it has to be."""

    __slots__ = ("_done", "_waiters")

    def __init__(self) -> None:
        super().__init__()
        self._done = self.expect()
        self._waiters: list[Callable[[bool], None]] = []

    def when_settled(self, act: Callable[[bool], None]) -> None:
        """Also call `act` when it is settled."""
        self._waiters.append(act)

    def settle(self, taken: bool) -> None:
        """Report the end: `taken` says whether the disk and all brokers have it."""
        self._done(taken)
        for act in self._waiters:
            act(taken)


class PendingPublication(_Pending):
    """One message."""

    __slots__ = ("_resume", "before_dispatch", "entries", "matching_brokers", "message", "point")

    def __init__(
        self,
        message: Message,
        point: Point | None,
        resume: "Callable[[PendingPublication], None]",
    ) -> None:
        super().__init__()
        self._resume = resume
        self.message = message
        self.point = point
        self.entries: OutgoingMessages = []
        """The local deliveries that begin when it continues."""
        self.before_dispatch: Callable[[], None] | None = None
        """Called before the publication continues. It writes into the batch of the deliveries."""
        self.matching_brokers: MatchingBrokers = None

    def resume(self) -> None:
        self._resume(self)


class PendingRun(_Pending):
    """A run."""

    __slots__ = (
        "_brokers",
        "_is_answered",
        "_may_match",
        "_resume",
        "entries",
        "points",
        "route",
        "rows_left",
        "stored",
        "tables",
    )

    def __init__(
        self,
        route: Route,
        tables: int,
        stored: StoredRun,
        points: RunPoints | None,
        resume: "Callable[[PendingRun], None]",
    ) -> None:
        super().__init__()
        self._resume = resume
        self.route = route
        self.tables = tables
        """The version of the router's tables that the route was made from."""
        self.stored = stored
        self.points = points
        self.entries: list[LocalEntry] = []
        """The local deliveries that begin when it continues."""
        self.rows_left = 0
        """Rows that matchers were asked about, and have not answered yet."""
        self._brokers: tuple[str, ...] = ()
        self._is_answered: Truths | None = None
        # By row, and by broker that matchers were asked about:
        self._may_match: Truths | None = None

    def resume(self) -> None:
        self._resume(self)

    def ask(self, brokers: tuple[str, ...], rows: Slots) -> None:
        """Note that matchers are asked about these brokers and rows. In others no clause holds."""
        self.rows_left = len(rows)
        self._brokers = brokers
        self._may_match = np.zeros((self.stored.packets, len(brokers)), np.bool_)
        self._may_match[rows] = True
        self._is_answered = np.ones(self.stored.packets, np.bool_)
        self._is_answered[rows] = False

    def answer(self, rows: Slots, may_match: Truths) -> None:
        """Note for which brokers a clause may hold, by row and broker."""
        assert self._may_match is not None
        assert self._is_answered is not None
        self._may_match[rows] = may_match
        self._is_answered[rows] = True
        self.rows_left -= len(rows)

    def rows_of(self, name: str) -> Slots:
        """Return the rows for which a clause may hold at a broker. Call this once it resumes."""
        if self._may_match is None:
            return np.arange(self.stored.packets)
        return np.flatnonzero(self._may_match[:, self._brokers.index(name)])

    def matching_brokers(self, row: int) -> MatchingBrokers:
        """Return the brokers with a matching clause for one row."""
        if self._may_match is None or self._is_answered is None or not self._is_answered[row]:
            return None
        may_match = self._may_match[row].tolist()
        return frozenset(name for name, may in zip(self._brokers, may_match, strict=True) if may)
