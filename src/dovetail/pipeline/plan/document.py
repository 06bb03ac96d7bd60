"""A plan as it is written down: what was counted, what follows, and places for a cluster to adopt.

`SCHEMA` rises with every change after which older readers would misunderstand it. Numbers are as
they were computed; sentences are for people.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail.api.reports import PlanOrder, SpacePlaces
from dovetail.errors import ConfigError

SCHEMA = "dovetail-plan/1"
_BYTES_MAX = 64 << 20


class SketchSize(Struct, frozen=True):
    """For so many false positives a look-up."""

    false_positive_rate: float
    bits: int
    bytes: int


class SketchFigures(Struct, frozen=True):
    """Of one broker's subscriptions, as other brokers have it."""

    broker: str
    """Empty: if one had all of them."""
    filters: int
    elements: int
    """That the sketch holds: filters share beginnings."""
    sizes: tuple[SketchSize, ...]
    """The first is what brokers make of it by themselves."""


class HotTopic(Struct, frozen=True):
    topic: str
    messages: int
    share: float


class Level(Struct, frozen=True):
    """Topics with so many levels."""

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
    """Publications that are asked about together, as was assumed."""


class LoadFigures(Struct, frozen=True):
    """Estimated, for some borders."""

    capacity: float | None
    """Publications of this space a second at which the busiest matcher has no time left; None: any,
    as nothing costs anything."""
    unevenness: float
    """What the busiest has to do, by the mean."""
    questions: float
    """For each publication."""
    copies: float
    """Of a box."""
    shares: tuple[float, ...]
    """Of all work, by matcher."""


class DimensionFigures(Struct, frozen=True):
    name: str
    low: float
    high: float
    is_searchable: bool
    missing_share: float
    """Of publications: they have no value there."""
    outside_share: float
    """Beyond the bounds."""
    narrow_share: float
    """Of boxes: matchers can hold them along this dimension."""
    open_share: float
    """Of boxes: any value will do."""
    width_median: float
    """Of the boxes that are not open, as a share of the bounds."""
    skew: float
    """Publications in the fullest of as many even segments as there are matchers, by the mean."""
    cells: tuple[tuple[float, int, int], ...]
    """Of the whole archive: where a cell begins, publications in it, boxes that overlap it."""
    even_borders: tuple[float, ...]
    planned_borders: tuple[float, ...]


class SetFigures(Struct, frozen=True):
    """If these dimensions were searchable, with borders planned for them."""

    dimensions: tuple[str, ...]
    wide_share: float
    """Of boxes that no matcher could hold."""
    capacity: float | None
    even_capacity: float | None
    questions: float
    copies: float


class SpaceFigures(Struct, frozen=True):
    space: str
    layout: str
    """The definition that was planned, as matchers name it: another one refuses the plan."""
    messages: int
    share: float
    """Of all messages."""
    boxes: int
    wide_boxes: int
    """That are narrow on no searchable dimension."""
    sampled_points: int
    sampled_boxes: int
    dimensions: tuple[DimensionFigures, ...]
    sets: tuple[SetFigures, ...]
    recommended: tuple[str, ...]
    why: str
    even: LoadFigures
    now: LoadFigures | None
    """In the places that matchers have now, where a node was asked."""
    planned: LoadFigures
    places: tuple[tuple[float, ...], ...]
    """One for each matcher: where its segments begin, for each searchable dimension."""


class NeedFigures(Struct, frozen=True):
    """Matchers for a rate."""

    rate: float
    """Messages a second, spread as in the archive."""
    busy_share_max: float
    """Of its time that the busiest shall work at most."""
    matchers: int | None
    """None: more than were tried."""
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


def order_of(document: PlanDocument) -> PlanOrder:
    """For a cluster."""
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
    return PlanOrder(planned)


def to_json(document: PlanDocument) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def read_document(path: Path) -> PlanDocument:
    """A plan that was written down before."""
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
