"""What nodes tell of themselves: to each other, over HTTP, and to the commands that show it.

Data, and nothing else. The names of counters and gauges are those of stats.py.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dovetail.limits import (
    ATTRIBUTE_NAME_CHARACTERS_MAX,
    CLUSTER_NODES_MAX,
    NODE_NAME_BYTES_MAX,
    SPACE_DIMENSIONS_MAX,
    SPACES_MAX,
)

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
    """Of the last second or so, spent on questions and on boxes that were fed."""
    parts: tuple[PartReport, ...] = ()
    """Of each space and dimension."""
    plan: int = 0
    """The number of the plan by which it moves, or has moved last; 0: none."""
    is_moving: bool = False
    """It serves, and is on its way to the place that the plan has for it."""


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
    http: str = ""
    """Where its own HTTP is, as it listens; empty: nowhere, or it is not told."""


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


class ArchiveReport(Struct, frozen=True):
    """The rows of a broker's archive that are on disk, by their sequences."""

    name: str
    """The broker's."""
    folder: str
    topics: tuple[str, ...]
    earliest: int | None
    """None: there is no row."""
    latest: int | None
    runs: tuple[tuple[int, int], ...]
    """Of rows above the offset that was asked for: first and last of what has no gap."""


class ArchiveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What is there above an offset?"""

    after: Annotated[int, Meta(ge=0)] = 0


class RowsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows above an offset; 0 of the others: whatever there is, and as much as is given."""

    after: Annotated[int, Meta(ge=0)] = 0
    upto: Annotated[int, Meta(ge=0)] = 0
    rows: Annotated[int, Meta(ge=0)] = 0
    bytes: Annotated[int, Meta(ge=0)] = 0


class SubscriptionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The version that whoever asks has already."""

    known: Annotated[str, Meta(max_length=64)] = ""


Drained = Literal["leaves", "unknown", "broker", "left", "dead", "silent"]
"""A matcher leaves; or why it does not: there is no such node, it is a broker, it has left before,
it is dead, it does not answer."""


class DrainReport(Struct, frozen=True):
    """What a broker knows after it has told a matcher to hand over and leave."""

    name: str
    verdict: Drained
    others: tuple[str, ...]
    """The other matchers that are there."""


class SpacePlaces(Struct, frozen=True, forbid_unknown_fields=True):
    """Of one space, as many places as there are matchers."""

    space: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_NAME_CHARACTERS_MAX)]
    layout: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_NAME_CHARACTERS_MAX + 17)]
    """The definition of the space that was planned, as matchers name it."""
    places: Annotated[
        list[Annotated[list[float], Meta(min_length=1, max_length=SPACE_DIMENSIONS_MAX)]],
        Meta(min_length=1, max_length=CLUSTER_NODES_MAX),
    ]
    """Where the segments of each begin: a value for each searchable dimension."""


class PlanOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the matchers of a cluster shall be."""

    spaces: Annotated[list[SpacePlaces], Meta(min_length=1, max_length=SPACES_MAX)]


class PlanReport(Struct, frozen=True):
    """Which matcher was given which place, and who did not answer."""

    number: int
    places: dict[str, dict[str, tuple[float, ...]]]
    """By matcher and by the name of the space."""
    silent: tuple[str, ...]


Kind = tuple[str, ...]
"""Of boxes: the dimensions on which they are narrow. Matchers hold them along these."""

Reason = Literal["asked", "none", "wide", "unknown", "busy"]
"""What is done about a broker that may have clauses for a publication.

asked: matchers are asked about it; none: it has no boxes in this space; the others get it in any
case: wide: it has boxes that no matcher holds; unknown: it has not told of its boxes yet; busy: too
many publications wait for matchers."""

Why = Literal["only", "cheapest", "cover", "drawn"]
"""Why this matcher is asked.

only: some boxes can be asked for along this dimension only; cheapest: it costs least of those that
could answer; cover: it costs least for each kind of box that it answers for; drawn: any could
answer."""

Place = Literal["inside", "below", "above", "missing", "text", "unknown"]
"""Of a value: within the bounds of its dimension, or not; or it is no dimension's."""

Unasked = Literal["", "space", "attributes", "alone", "matchers", "here", "spark"]
"""Why no matcher is asked.

space: none governs the topic; attributes: none is of the space; alone: it is no cluster; matchers:
none serves; here: no other broker may have a clause for it. Empty: some are asked."""


class LoadReport(Struct, frozen=True):
    """What a matcher told of one dimension."""

    queue: int
    arrival_rate: float
    matching_rate: float
    boxes: int
    seconds_ago: float
    queue_now: float
    """What it is likely to be by now."""


class CandidateReport(Struct, frozen=True):
    """Who could answer along one dimension."""

    dimension: str
    matcher: str
    """Empty: there is no value to choose it by."""
    segment: SegmentReport | None = None
    load: LoadReport | None = None
    """None: it has told nothing yet, and would be tried."""
    cost: float | None = None
    """By the policy. None: it has not answered lately, and is passed over."""


class QuestionReport(Struct, frozen=True):
    matcher: str
    dimension: str
    kinds: tuple[Kind, ...]
    why: Why


class SubjectReport(Struct, frozen=True):
    """A broker that may have clauses for a publication."""

    name: str
    reason: Reason
    kinds: tuple[Kind, ...]
    """Of its boxes in this space."""


class MatchingReport(Struct, frozen=True):
    """Which matchers would be asked about a publication."""

    scheme: str
    policy: str
    subjects: tuple[SubjectReport, ...]
    impossible: tuple[Kind, ...]
    """Boxes that are narrow where it has no value."""
    candidates: tuple[CandidateReport, ...]
    """One for each searchable dimension."""
    questions: tuple[QuestionReport, ...]
    stuck: tuple[Kind, ...]
    """Boxes that nobody can be asked for: their brokers look themselves."""
    then: tuple[tuple[QuestionReport, ...], ...]
    """Who is asked next, and next, while none of those who were has answered."""
    question_seconds: float
    asking_seconds: float


class AttributeReport(Struct, frozen=True):
    name: str
    given: str
    place: Place
    low: float | None = None
    high: float | None = None
    """Bounds, of a dimension."""


class AttributesReport(Struct, frozen=True):
    """What a publication's attributes lead to."""

    space: str
    topics: str
    values: tuple[AttributeReport, ...]
    unasked: Unasked = ""
    matching: MatchingReport | None = None


class FilterMatch(Struct, frozen=True):
    """A filter that matches a topic, and how many have subscribed to it at one broker."""

    filter: str
    subscribers: int
    group: str | None = None
    """Of a shared subscription: one of these subscribers gets a publication."""
    holding: int | None = None
    """Of clauses: how many hold for the publication. None: it has no attributes."""


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
    attributes: AttributesReport | None = None
    """None: nothing was said of attributes."""
    is_archived: bool | None = None
    """By the broker that it is sent to. None: a broker of an older version."""


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
    engine: str = "live"
    """Who looks at clauses: live, or spark, a stream that serves the space."""


class SpacesReport(Struct, frozen=True):
    asked: str
    spaces: tuple[SpaceReport, ...]
