"""What the pages of a node are made of: functions that say how things are when they are called."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dovetail.api.engine import Engine
from dovetail.api.handles import Handles
from dovetail.api.reports import (
    ArchiveReport,
    ClusterReport,
    DrainReport,
    NodeReport,
    PeerReport,
    PlanOrder,
    PlanReport,
    RouteReport,
    RowsQuery,
    SketchReport,
    SpacesReport,
)
from dovetail.stats import Counters, Gauges


class Claim(NamedTuple):
    """Who asks, as it says: a name and password to be judged, or none."""

    user: str | None
    password: bytes | None
    host: str
    """The address that the request comes from: its sender's, or the last proxy's."""
    is_local: bool
    """Does it come from this machine, and not through a proxy?"""


class ArchiveView(Protocol):
    """A broker's archive, for who reads it over HTTP (archive/reader.py)."""

    async def report(self, after: int) -> ArchiveReport:
        """Which rows there are above an offset."""

    async def rows(self, query: RowsQuery) -> tuple[bytes, int]:
        """An Arrow stream of rows, and the offset that it leads to."""

    async def subscriptions(self, known: str) -> tuple[bytes | None, str]:
        """An Arrow stream of them, unless this version is known; and their version."""


@dataclass(frozen=True)
class MatcherViews:
    """A matcher's. The first two must not wait for anything."""

    health: Callable[[], tuple[bool, str]]
    report: Callable[[], NodeReport]
    cluster: Callable[[], Awaitable[ClusterReport]]


@dataclass(frozen=True)
class Views:
    """A broker's. Called in the event loop's thread, where the numbers that they read are written.

    The first four must not wait for anything.
    """

    stats: Callable[[], tuple[Counters, Gauges]]
    health: Callable[[], tuple[bool, str]]
    """Is all well, and if not, why."""
    sketch: Callable[[], SketchReport | None]
    """None: it is in no cluster."""
    peers: Callable[[], Sequence[PeerReport]]
    cluster: Callable[[], Awaitable[ClusterReport]]
    route: Callable[[str, Mapping[str, str]], Awaitable[RouteReport]]
    """Of a topic and attributes. A ClientError if it is no name of one, or they cannot be read."""
    spaces: Callable[[], SpacesReport]
    log_in: Callable[[Claim], Awaitable[str | None]]
    """The name that a user has proven; None: it may do without one. A ClientError if it may not."""
    administer: Callable[[Claim], Awaitable[None]]
    """The same of who wants to change the cluster. A ClientError if it may not."""
    inspect: Callable[[Claim], Awaitable[None]]
    """The same of who wants to see what clients have subscribed to."""
    drain: Callable[[str], Awaitable[DrainReport]]
    """Have a matcher hand over and leave."""
    plan: Callable[[PlanOrder], Awaitable[PlanReport]]
    """Give matchers other places. A ClientError says why they cannot have them."""
    handles: Handles
    engine: Engine
    archive: ArchiveView | None = None
    """None: it has none."""
