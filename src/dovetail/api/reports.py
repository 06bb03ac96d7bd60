"""The reports of nodes, and the orders to them: between nodes, over HTTP, and in commands.

These types are data only. The names of counters and gauges are those of stats.py.
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

NodeStatus = Literal["alive", "suspect", "dead", "left"]
"""The state of a node as another one sees it. A suspect node counts as alive, but it is late or not
connected."""

NodeRole = Literal["broker", "matcher"]
"""The role of a node."""

SketchVerdict = Literal["maybe", "no", "unknown"]
"""The answer of a peer's sketch about a topic; unknown: the node does not have the sketch yet."""


class SketchReport(Struct, frozen=True):
    """A broker's own sketch, of which all other brokers have a copy."""

    bits: int
    elements: int
    fill: float
    """The share of bits that are set."""
    false_positive_rate: float
    """The rate for a single look-up, with the current bits."""


class PeerReport(Struct, frozen=True):
    """Another broker, as the reporting node sees it."""

    name: str
    address: str
    state: NodeStatus
    is_connected: bool
    is_sketch_known: bool
    owed_messages: int
    owed_bytes: int
    forwarded: int
    """Publications sent or spooled to it since the start."""
    sketch_bits: int = 0
    """Bits of our copy of its sketch; 0 without a copy."""
    sketch_fill: float = 0.0
    """The share of these bits that are set."""


class SegmentReport(Struct, frozen=True):
    """Values that a matcher is responsible for: `low` <= value < `high`. None: unbounded."""

    low: float | None = None
    high: float | None = None


class PartReport(Struct, frozen=True):
    """The load and the segment of a matcher in one dimension of a space."""

    space: str
    dimension: str
    """Empty in the scheme `full`, where each matcher has all boxes."""
    segment: SegmentReport | None
    """None: it has no segment."""
    boxes: int
    """Boxes that it holds along this dimension."""
    queue: int
    """Points that wait."""
    arrival_rate: float
    """Points that arrive per second."""
    matching_rate: float
    """Points that it can match per second; 0 until it has matched one."""


class MatcherReport(Struct, frozen=True):
    """The load of a matcher. Counts start with the process."""

    phase: str
    """joining, serving, leaving or away."""
    boxes: int
    """Boxes that it holds, of all brokers and spaces."""
    points_waiting: int
    points_answered: int
    points_unsure: int
    """Of these, the points for which a broker had to evaluate its own clauses."""
    busy_share: float
    """The share of the last second or so spent on questions and on the feed of boxes."""
    parts: tuple[PartReport, ...] = ()
    """One report for each space and dimension."""
    plan: int = 0
    """The number of the plan that it follows, or followed last; 0: none."""
    is_moving: bool = False
    """It serves, and has not reached its place in the plan yet."""


class NodeReport(Struct, frozen=True):
    """The report of one node about itself."""

    name: str
    version: str
    roles: tuple[str, ...]
    uptime_seconds: float
    counters: dict[str, int]
    gauges: dict[str, int]
    sketch: SketchReport | None = None
    peers: tuple[PeerReport, ...] = ()
    matcher: MatcherReport | None = None
    """Only matchers have this; their counters and gauges are empty."""
    http: str = ""
    """The URL where it serves HTTP; empty: none, or unknown."""


class NodeEntry(Struct, frozen=True):
    """One node of the cluster: how the asked node sees it, and its own report."""

    name: str
    address: str
    state: NodeStatus
    report: NodeReport | None = None
    """None: it did not answer."""
    role: NodeRole = "broker"


class ClusterReport(Struct, frozen=True):
    """All nodes of a cluster."""

    cluster: str
    """The name of the cluster; empty for a standalone broker."""
    asked: str
    """The node that collected this report."""
    nodes: tuple[NodeEntry, ...]


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Tells a matcher to hand over and leave."""

    name: Annotated[str, Meta(min_length=1, max_length=NODE_NAME_BYTES_MAX)]


class ArchiveReport(Struct, frozen=True):
    """The rows of a broker's archive that are on disk, by their sequences."""

    name: str
    """The name of the broker."""
    folder: str
    topics: tuple[str, ...]
    earliest: int | None
    """None: the archive has no rows."""
    latest: int | None
    runs: tuple[tuple[int, int], ...]
    """Rows above the given offset: first and last sequence of each run without a gap."""


class ArchiveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Asks which rows there are above an offset."""

    after: Annotated[int, Meta(ge=0)] = 0


class RowsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for rows above an offset. For the other fields, 0 means: no limit but the server's."""

    after: Annotated[int, Meta(ge=0)] = 0
    upto: Annotated[int, Meta(ge=0)] = 0
    rows: Annotated[int, Meta(ge=0)] = 0
    bytes: Annotated[int, Meta(ge=0)] = 0


class SubscriptionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for subscriptions, unless their version is `known`."""

    known: Annotated[str, Meta(max_length=64)] = ""


DrainVerdict = Literal["leaves", "unknown", "broker", "left", "dead", "silent"]
"""A matcher leaves, or why not: there is no such node, it is a broker, it has left before, it is
dead, it does not answer."""


class DrainReport(Struct, frozen=True):
    """The result of an order to drain a matcher."""

    name: str
    verdict: DrainVerdict
    others: tuple[str, ...]
    """The other matchers of the cluster."""


class SpacePlaces(Struct, frozen=True, forbid_unknown_fields=True):
    """The places of one space: one for each matcher."""

    space: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_NAME_CHARACTERS_MAX)]
    layout: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_NAME_CHARACTERS_MAX + 17)]
    """The identifier that matchers give to the definition of the planned space."""
    places: Annotated[
        list[Annotated[list[float], Meta(min_length=1, max_length=SPACE_DIMENSIONS_MAX)]],
        Meta(min_length=1, max_length=CLUSTER_NODES_MAX),
    ]
    """For each place, the low borders of its segments: one value per searchable dimension."""


class PlanRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Moves the matchers of a cluster to these places."""

    spaces: Annotated[list[SpacePlaces], Meta(min_length=1, max_length=SPACES_MAX)]


class PlanReport(Struct, frozen=True):
    """Which place each matcher was given, and which matchers did not answer."""

    number: int
    places: dict[str, dict[str, tuple[float, ...]]]
    """By the name of the matcher and of the space."""
    silent: tuple[str, ...]


BoxKind = tuple[str, ...]
"""A kind of boxes: the dimensions on which they are narrow. Matchers hold them along these."""

SubjectStatus = Literal["asked", "none", "wide", "unknown", "busy"]
"""How a broker that may have clauses for a publication is treated.

asked: matchers are asked whether it needs the publication. none: it has no boxes in this space. In
the other cases the publication goes there without a question. wide: it has boxes that no matcher
holds. unknown: its announcement has not arrived yet. busy: too many publications wait for
matchers."""

ChoiceReason = Literal["only", "cheapest", "cover", "drawn"]
"""Why this matcher is asked.

only: some boxes are held along this dimension only. cheapest: it has the least cost of all
candidates. cover: it has the least cost for each kind of box that it answers for. drawn: any
candidate could answer, and one was drawn."""

ValuePosition = Literal["inside", "below", "above", "missing", "text", "unknown"]
"""The position of a value: inside the bounds of its dimension or not, or why it has no position."""

SkipReason = Literal["", "space", "attributes", "alone", "matchers", "here", "spark"]
"""Why no matcher is asked.

space: no space governs the topic. attributes: none of them belongs to the space. alone: the broker
has no cluster. matchers: no matcher serves. here: no other broker may have a matching clause.
spark: a stream evaluates the clauses. Empty: matchers are asked."""


class LoadReport(Struct, frozen=True):
    """The last load report of a matcher about one dimension."""

    queue: int
    arrival_rate: float
    matching_rate: float
    boxes: int
    seconds_ago: float
    queue_now: float
    """The estimated queue at this moment."""


class CandidateReport(Struct, frozen=True):
    """The matcher that could answer along one dimension."""

    dimension: str
    matcher: str
    """Empty: the publication has no value in this dimension."""
    segment: SegmentReport | None = None
    load: LoadReport | None = None
    """None: it has sent no report yet, and would be tried."""
    cost: float | None = None
    """The cost by the policy. None: it has not answered lately, and is skipped."""


class QuestionReport(Struct, frozen=True):
    """A question to one matcher along one dimension."""

    matcher: str
    dimension: str
    kinds: tuple[BoxKind, ...]
    why: ChoiceReason


class SubjectReport(Struct, frozen=True):
    """A broker that may have clauses for a publication."""

    name: str
    reason: SubjectStatus
    kinds: tuple[BoxKind, ...]
    """The kinds of its boxes in this space."""


class MatchingReport(Struct, frozen=True):
    """Which matchers would be asked about a publication."""

    scheme: str
    policy: str
    subjects: tuple[SubjectReport, ...]
    impossible: tuple[BoxKind, ...]
    """Kinds that are narrow in a dimension where the publication has no value."""
    candidates: tuple[CandidateReport, ...]
    """One for each searchable dimension."""
    questions: tuple[QuestionReport, ...]
    stuck: tuple[BoxKind, ...]
    """Kinds for which no matcher can be asked: their brokers evaluate the clauses themselves."""
    then: tuple[tuple[QuestionReport, ...], ...]
    """The next questions, in order, while the matchers asked before do not answer."""
    question_seconds: float
    asking_seconds: float


class AttributeReport(Struct, frozen=True):
    name: str
    given: str
    place: ValuePosition
    low: float | None = None
    high: float | None = None
    """The bounds of a dimension."""


class AttributesReport(Struct, frozen=True):
    """How the attributes of a publication are matched."""

    space: str
    topics: str
    values: tuple[AttributeReport, ...]
    unasked: SkipReason = ""
    matching: MatchingReport | None = None


class FilterMatch(Struct, frozen=True):
    """A filter that matches a topic, and the number of its subscribers at one broker."""

    filter: str
    subscribers: int
    group: str | None = None
    """The name of a shared subscription, of which one subscriber gets a publication."""
    holding: int | None = None
    """Where-clauses that hold for the publication. None: it has no attributes."""


class TopicMatches(Struct, frozen=True):
    """The filters of one broker that match a topic."""

    filters: tuple[FilterMatch, ...]
    count: int
    """The number of all such filters; the first ones are listed."""
    has_retained: bool
    """Does the topic have a retained message?"""

    @property
    def plain(self) -> int:
        """The number of listed filters that are not shared."""
        return sum(match.group is None for match in self.filters)


class PeerRoute(Struct, frozen=True):
    """Whether a publication would be forwarded to this peer, and its subscribers there."""

    name: str
    state: NodeStatus
    guess: SketchVerdict
    is_forwarded: bool
    matches: TopicMatches | None = None
    """None: it did not answer."""
    wants_attributes: bool = False
    """It is forwarded if it has attributes, because of where-clauses."""


class RouteReport(Struct, frozen=True):
    """Where a publication would go that a client sends to the asked broker."""

    topic: str
    asked: str
    here: TopicMatches
    peers: tuple[PeerRoute, ...] = ()
    attributes: AttributesReport | None = None
    """None: the request named no attributes."""
    is_archived: bool | None = None
    """Does the asked broker archive the topic? None: it has an older version."""


class DimensionReport(Struct, frozen=True):
    """A number attribute."""

    name: str
    low: float
    high: float
    is_searchable: bool


class SpaceReport(Struct, frozen=True):
    """A space of one broker, and the subscriptions of its clients in it."""

    name: str
    topics: str
    dimensions: tuple[DimensionReport, ...]
    texts: tuple[str, ...]
    json_fields: bool
    subscriptions: int
    """Subscriptions with a where-clause; a group counts once."""
    boxes: int
    """The boxes of their clauses."""
    scheme: str = "mpartition"
    """How matchers share its boxes: mpartition, p2p or full."""
    along: str = ""
    """The one dimension of p2p."""
    policy: str = "adaptive"
    """The rule by which a broker chooses among candidates."""
    engine: str = "live"
    """The engine that evaluates the clauses: live (brokers and matchers), or spark (a stream)."""


class SpacesReport(Struct, frozen=True):
    asked: str
    spaces: tuple[SpaceReport, ...]
