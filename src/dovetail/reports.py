"""What nodes tell of themselves: to each other, over HTTP, and to the commands that show it.

Data, and nothing else. The names of counters and gauges are those of stats.py.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dovetail.config import NODE_NAME_BYTES_MAX

State = Literal["alive", "suspect", "dead", "left"]
"""As one node sees another. Suspect: it counts as alive, but is late, or there is no connection."""

NodeRole = Literal["broker", "matcher"]
"""What a node is for."""

Guess = Literal["maybe", "no", "unknown"]
"""What a peer's sketch says about a topic; unknown: there is no sketch of it here yet."""


class SketchReport(Struct, frozen=True):
    """A broker's own sketch, which all others have."""

    bits: int
    elements: int
    fill: float
    """The share of bits that are set."""
    false_positive_rate: float
    """Of a single look-up, as the bits are now."""


class PeerReport(Struct, frozen=True):
    """Another broker, as the one that reports sees it."""

    name: str
    address: str
    state: State
    is_connected: bool
    is_sketch_known: bool
    owed_messages: int
    owed_bytes: int
    forwarded: int
    """Publications sent or owed to it since the start."""
    sketch_bits: int = 0
    """Of its sketch as it is known here; 0 while it is not."""
    sketch_fill: float = 0.0
    """The share of them that are set."""


class SegmentReport(Struct, frozen=True):
    """Values that a matcher answers for, from `low` on and below `high`. None: there is no end."""

    low: float | None = None
    high: float | None = None


class PartReport(Struct, frozen=True):
    """A matcher's part of one dimension of a space."""

    space: str
    dimension: str
    """Empty where each matcher has everything."""
    segment: SegmentReport | None
    """None: it has none."""
    boxes: int
    """That it holds along this dimension."""
    queue: int
    """Points that wait."""
    arrival_rate: float
    """Points a second that came."""
    matching_rate: float
    """Points a second that it can match; 0 while it has not matched any."""


class MatcherReport(Struct, frozen=True):
    """What a matcher has to do. Counts are since its start."""

    phase: str
    """joining, serving, leaving or away."""
    boxes: int
    """That it holds, of all brokers and spaces."""
    points_waiting: int
    points_answered: int
    points_unsure: int
    """Of these, how many brokers had to look themselves for."""
    busy_share: float
    """Of the last second or so, spent on matching."""
    parts: tuple[PartReport, ...] = ()
    """Of each space and dimension."""


class NodeReport(Struct, frozen=True):
    """One node, in its own words."""

    name: str
    version: str
    roles: tuple[str, ...]
    uptime_seconds: float
    counters: dict[str, int]
    gauges: dict[str, int]
    sketch: SketchReport | None = None
    peers: tuple[PeerReport, ...] = ()
    matcher: MatcherReport | None = None
    """Of a matcher, which counts nothing else."""


class NodeEntry(Struct, frozen=True):
    """One node of the cluster, as the one that was asked sees it, and what it says itself."""

    name: str
    address: str
    state: State
    report: NodeReport | None = None
    """None: it did not answer."""
    role: NodeRole = "broker"


class ClusterReport(Struct, frozen=True):
    cluster: str
    """Its name; empty for a broker that is alone."""
    asked: str
    """Which node gathered this."""
    nodes: tuple[NodeEntry, ...]


class DrainOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Which matcher shall hand over and leave."""

    name: Annotated[str, Meta(min_length=1, max_length=NODE_NAME_BYTES_MAX)]


Drained = Literal["leaves", "unknown", "broker", "left", "dead", "silent"]
"""A matcher leaves; or why it does not: there is no such node, it is a broker, it has left before,
it is dead, it does not answer."""


class DrainReport(Struct, frozen=True):
    """What a broker knows after it has told a matcher to hand over and leave."""

    name: str
    verdict: Drained
    others: tuple[str, ...]
    """The other matchers that are there."""


class FilterMatch(Struct, frozen=True):
    """A filter that matches a topic, and how many have subscribed to it at one broker."""

    filter: str
    subscribers: int
    group: str | None = None
    """Of a shared subscription: one of these subscribers gets a publication."""


class Matches(Struct, frozen=True):
    """What a topic leads to at one broker."""

    filters: tuple[FilterMatch, ...]
    count: int
    """Of the filters, of which the first are listed."""
    has_retained: bool
    """Is there a retained message on the topic?"""

    @property
    def plain(self) -> int:
        """Listed filters that are not of groups."""
        return sum(match.group is None for match in self.filters)


class PeerRoute(Struct, frozen=True):
    """Would a publication go to this peer, and is anybody there?"""

    name: str
    state: State
    guess: Guess
    is_forwarded: bool
    matches: Matches | None = None
    """None: it did not answer."""
    wants_attributes: bool = False
    """It goes there if it has attributes, for who has a where-clause."""


class RouteReport(Struct, frozen=True):
    """Where a publication on a topic would go that a client of one node sends."""

    topic: str
    asked: str
    here: Matches
    peers: tuple[PeerRoute, ...] = ()


class DimensionReport(Struct, frozen=True):
    """An attribute that is a number."""

    name: str
    low: float
    high: float
    is_searchable: bool


class SpaceReport(Struct, frozen=True):
    """A space as one broker has it, and what clients of this broker want of it."""

    name: str
    topics: str
    dimensions: tuple[DimensionReport, ...]
    texts: tuple[str, ...]
    json_fields: bool
    subscriptions: int
    """With a where-clause; a group is one."""
    boxes: int
    """Of their clauses."""
    scheme: str = "mpartition"
    """How matchers share its boxes: mpartition, p2p or full."""
    along: str = ""
    """The one dimension of p2p."""
    policy: str = "adaptive"
    """Which of the matchers that could answer is asked."""


class SpacesReport(Struct, frozen=True):
    asked: str
    spaces: tuple[SpaceReport, ...]
