"""The JSON document of a plan: counts, estimates, and places for a cluster to adopt.

`SCHEMA` rises with each change that older readers would misunderstand. Numbers are not rounded;
sentences are for people.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail.api.reports import PlanRequest, SpacePlaces
from dovetail.errors import ConfigError

SCHEMA = "dovetail-plan/1"
_BYTES_MAX = 64 << 20


class SketchSize(Struct, frozen=True):
    """The size of a sketch for a false positive rate."""

    false_positive_rate: float
    bits: int
    bytes: int


class SketchFigures(Struct, frozen=True):
    """The sketch of one broker's subscriptions."""

    broker: str
    """Empty: of one broker with all subscriptions."""
    filters: int
    elements: int
    """Elements in the sketch. Filters with a common prefix share elements."""
    sizes: tuple[SketchSize, ...]
    """The first is the size that brokers choose."""


class HotTopic(Struct, frozen=True):
    topic: str
    messages: int
    share: float


class Level(Struct, frozen=True):
    """The topics with this number of levels."""

    levels: int
    topics: int
    messages: int


class TopicFigures(Struct, frozen=True):
    topics: int
    hot: tuple[HotTopic, ...]
    levels: tuple[Level, ...]


class CostFigures(Struct, frozen=True):
    """Seconds of a matcher's core, measured where the plan was made."""

    question_seconds: float
    point_seconds: float
    box_seconds: float
    match_seconds: float
    boxes: int
    question_points: int
    """The assumed number of publications in a question."""


class LoadFigures(Struct, frozen=True):
    """The estimated load of matchers with given borders."""

    capacity: float | None
    """Publications of this space a second at which the busiest matcher is fully busy. None: there
    is no work, so any rate is possible."""
    unevenness: float
    """The work of the busiest matcher, divided by the mean."""
    questions: float
    """Questions for each publication."""
    copies: float
    """Copies of each box."""
    shares: tuple[float, ...]
    """By matcher: its share of all work."""


class DimensionFigures(Struct, frozen=True):
    name: str
    low: float
    high: float
    is_searchable: bool
    missing_share: float
    """Share of the publications without a value in this dimension."""
    outside_share: float
    """Share of the publications with a value beyond the bounds."""
    narrow_share: float
    """Share of the boxes that are narrow here: matchers can hold them along this dimension."""
    open_share: float
    """Share of the boxes that allow any value here."""
    width_median: float
    """Median width of the boxes that are not open, as a share of the bounds."""
    skew: float
    """Publications in the fullest of as many even segments as there are matchers, divided by the
    mean."""
    cells: tuple[tuple[float, int, int], ...]
    """For each cell, over the whole archive: its lower edge, publications, overlapping boxes."""
    even_borders: tuple[float, ...]
    planned_borders: tuple[float, ...]


class SetFigures(Struct, frozen=True):
    """Estimates for a set of searchable dimensions, with borders planned for it."""

    dimensions: tuple[str, ...]
    wide_share: float
    """Share of the boxes that no matcher could hold."""
    capacity: float | None
    even_capacity: float | None
    questions: float
    copies: float


class SpaceFigures(Struct, frozen=True):
    space: str
    layout: str
    """The planned definition's identifier. Matchers with another definition refuse the plan."""
    messages: int
    share: float
    """Share of all messages."""
    boxes: int
    wide_boxes: int
    """Boxes that are narrow on no searchable dimension."""
    sampled_points: int
    sampled_boxes: int
    dimensions: tuple[DimensionFigures, ...]
    sets: tuple[SetFigures, ...]
    recommended: tuple[str, ...]
    why: str
    even: LoadFigures
    now: LoadFigures | None
    """With the matchers' current places, if a node was asked."""
    planned: LoadFigures
    places: tuple[tuple[float, ...], ...]
    """For each matcher: where its segments begin, in each searchable dimension."""


class NeedFigures(Struct, frozen=True):
    """The number of matchers for a rate."""

    rate: float
    """Messages a second, distributed as in the archive."""
    busy_share_max: float
    """The busiest matcher shall work at most this share of its time."""
    matchers: int | None
    """None: more than `tried_max`."""
    even_matchers: int | None
    tried_max: int


class PlanDocument(Struct, frozen=True):
    schema: str
    version: str
    messages: int
    subscriptions: int
    matchers: int
    spaces: tuple[SpaceFigures, ...]
    need: NeedFigures | None
    costs: CostFigures | None
    sketches: tuple[SketchFigures, ...]
    topics: TopicFigures


def order_of(document: PlanDocument) -> PlanRequest:
    """Return the order with which a cluster adopts the plan."""
    planned = [
        SpacePlaces(one.space, one.layout, [[*place] for place in one.places])
        for one in document.spaces
        if one.places
    ]
    if not planned:
        raise ConfigError(
            "the plan has no places: there is no space that matchers share.",
            hint="--config names the file that declares the spaces.",
        )
    return PlanRequest(planned)


def to_json(document: PlanDocument) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def read_document(path: Path) -> PlanDocument:
    """Read the document of a plan."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigError(f"{path} is too long for a plan.")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    try:
        schema = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("schema", b"")
        if bytes(schema) != msgspec.json.encode(SCHEMA):
            raise ConfigError(
                f"{path} is no plan of this version ({SCHEMA}).",
                hint="It takes the .json file that `dovetail plan` writes beside its page.",
            )
        return msgspec.json.decode(data, type=PlanDocument)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no plan: {error}.") from None
