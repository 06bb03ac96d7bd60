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


class AccessView(Protocol):
    """Decides what the user of a request may do. Each method raises ClientError to refuse."""

    async def log_in(self, claim: Claim) -> str | None:
        """Return the proven user name; None for an anonymous user."""

    async def inspect(self, claim: Claim) -> None:
        """May this user see what clients have subscribed to?"""

    async def administer(self, claim: Claim) -> None:
        """May this user change the cluster and read the archive?"""


class Views(Protocol):
    """A broker. Pages call these in the thread of the event loop, which writes what they read."""

    @property
    def access(self) -> AccessView: ...

    @property
    def handles(self) -> Handles: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def archive(self) -> ArchiveView | None:
        """None: the broker has no archive."""

    def stats(self) -> tuple[Counters, Gauges]: ...

    def health(self) -> tuple[bool, str]:
        """Return whether all is well, and if not, why."""

    def sketch(self) -> SketchReport | None:
        """Return None for a broker without a cluster."""

    def peers(self) -> Sequence[PeerReport]: ...

    def spaces(self) -> SpacesReport: ...

    async def cluster(self) -> ClusterReport: ...

    async def route(self, topic: str, attributes: Mapping[str, str]) -> RouteReport:
        """Explain a publication. Raise ClientError for an invalid topic name or attribute."""

    async def drain(self, name: str) -> DrainReport:
        """Tell a matcher to hand over and leave."""

    async def plan(self, order: PlanOrder) -> PlanReport:
        """Move the matchers. Raise ClientError if they cannot have these places."""
