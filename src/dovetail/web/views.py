"""The views that the HTTP pages read: protocols for brokers, a dataclass for matchers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dovetail.api.engine import EngineService
from dovetail.api.handles import HandleService
from dovetail.api.reports import (
    ArchiveReport,
    ClusterReport,
    DrainReport,
    NodeReport,
    PeerReport,
    PlanReport,
    PlanRequest,
    RouteReport,
    RowsQuery,
    SketchReport,
    SpacesReport,
)
from dovetail.stats import Counters, Gauges


class HttpCredentials(NamedTuple):
    """The credentials of an HTTP request, not checked yet. Anonymous ones have no name."""

    user: str | None
    password: bytes | None
    host: str
    """The address of the sender, or of the last proxy."""
    is_local: bool
    """Does the request come from this machine, and not through a proxy?"""


class ArchiveView(Protocol):
    """The archive of a broker, as HTTP reads it (archive/reader.py)."""

    async def report(self, after: int) -> ArchiveReport:
        """Return which rows there are above an offset."""

    async def rows(self, query: RowsQuery) -> tuple[bytes, int]:
        """Return an Arrow stream of rows, and the offset that it reaches."""

    async def subscriptions(self, known: str) -> tuple[bytes | None, str]:
        """Return the subscriptions as an Arrow stream, and their version.

        The stream is None if `known` is their version.
        """


@dataclass(frozen=True)
class MatcherViews:
    """The views of a matcher. The first two must not block."""

    health: Callable[[], tuple[bool, str]]
    report: Callable[[], NodeReport]
    cluster: Callable[[], Awaitable[ClusterReport]]


class AccessView(Protocol):
    """Decides what the user of a request may do. Each method raises ClientError to refuse."""

    async def log_in(self, credentials: HttpCredentials) -> str | None:
        """Return the authenticated user name; None for an anonymous user."""

    async def inspect(self, credentials: HttpCredentials) -> None:
        """Check that this user may see the subscriptions of clients."""

    async def administer(self, credentials: HttpCredentials) -> None:
        """Check that this user may change the cluster and read the archive."""


class Views(Protocol):
    """The views of a broker. Pages call them in the thread of the event loop."""

    @property
    def access(self) -> AccessView: ...

    @property
    def handles(self) -> HandleService: ...

    @property
    def engine(self) -> EngineService: ...

    @property
    def archive(self) -> ArchiveView | None:
        """The archive; None if the broker has none."""

    def stats(self) -> tuple[Counters, Gauges]: ...

    def health(self) -> tuple[bool, str]:
        """Return whether the broker is healthy, and if not, the reason."""

    def sketch(self) -> SketchReport | None:
        """Return None for a broker without a cluster."""

    def peers(self) -> Sequence[PeerReport]: ...

    def spaces(self) -> SpacesReport: ...

    async def cluster(self) -> ClusterReport: ...

    async def route(self, topic: str, attributes: Mapping[str, str]) -> RouteReport:
        """Explain a publication. Raise ClientError for an invalid topic name or attribute."""

    async def drain(self, name: str) -> DrainReport:
        """Tell a matcher to hand over and leave."""

    async def plan(self, order: PlanRequest) -> PlanReport:
        """Move the matchers. Raise ClientError if they cannot have these places."""
