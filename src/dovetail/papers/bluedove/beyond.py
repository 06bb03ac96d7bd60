"""The figures that the paper does not have: more matchers, more boxes, larger crashes. Pure."""

from dataclasses import replace

from dovetail.papers.bluedove.configuration import (
    CANDIDATES,
    CHATTER,
    COPIES,
    CRASHES,
    GOSSIP_BUSY,
    GOSSIP_QUIET,
    HOLDING,
    HOLDS_BYTES,
    HOLDS_MOST,
    LATE,
    LIMIT,
    LIMIT_INDEX,
    MATCHES,
    NARROW,
    RATE,
    RESPONSE_SECONDS,
    SCALED,
    TABLE_BYTES,
    WIDE,
    Configuration,
)
from dovetail.papers.bluedove.figure_parts import Check, Figure, Line, Panel
from dovetail.papers.bluedove.scale import BOXES, MATCHERS, SAMPLE, SIMULATED_MAX

MILLION = 1e6
NAMES = {WIDE: "boxes 250 wide", NARROW: "boxes 1 wide"}
CHATTERING = Configuration(CHATTER)
CRASHING_MANY = Configuration(CRASHES, matchers=100)
SMALLER_SAMPLE = 4_000
COUNTED_MAX = 4_000_000
"""So many boxes are counted, each by itself; of more a sample is."""
HOLDERS = (20, 200, 2_000)
SIMULATED = tuple(count for count in MATCHERS if count <= SIMULATED_MAX)
"""Numbers of matchers whose queues are simulated; what more of them could take is computed."""


def scaled(matchers: int, width: float) -> Configuration:
    return Configuration(SCALED, matchers=matchers, width=width)


def holding(matchers: int, width: float) -> Configuration:
    return replace(scaled(matchers, width), experiment=HOLDING)


def with_boxes(one: Configuration, boxes: int, drawn: int = SAMPLE) -> Configuration:
    """By a sample, where there are more."""
    return replace(one, boxes=boxes, drawn=drawn if boxes > drawn else 0)


def counted(one: Configuration, boxes: int) -> Configuration:
    """All of them as far as that goes, a larger sample beyond."""
    return with_boxes(one, boxes, COUNTED_MAX if boxes <= COUNTED_MAX else 10 * SAMPLE)


def _over_matchers(name: str, width: float, experiment: str, measure: str) -> Line:
    if experiment == SCALED:
        return Line(name, tuple((count, scaled(count, width)) for count in SIMULATED), measure)
    return Line(name, tuple((count, holding(count, width)) for count in MATCHERS), measure)


def _over_boxes(name: str, start: Configuration, measure: str) -> Line:
    of = with_boxes if start.experiment == SCALED else counted
    return Line(name, tuple((count / MILLION, of(start, count)) for count in BOXES), measure)


def _rates(simulated: Line, limit: Line, index: Line) -> tuple[Line, ...]:
    return (
        replace(simulated, name="each box looked at: simulated"),
        replace(limit, name="each box looked at: at best"),
        replace(index, name="Dovetail's index: at best"),
    )


def _checks(what: str, measure: str, whole: Configuration, part: Configuration) -> list[Check]:
    """For each width."""
    return [
        Check(f"{what}, {name}", measure, replace(whole, width=width), replace(part, width=width))
        for width, name in NAMES.items()
    ]


SCALE_MATCHERS = Figure(
    "scale-matchers",
    "20 to 2,000 matchers, 40,000 boxes",
    "matchers",
    "million messages a second",
    RATE,
    (
        *(
            Panel(
                f"Saturation rate, {name}",
                _rates(
                    _over_matchers("", width, SCALED, RATE),
                    _over_matchers("", width, HOLDING, LIMIT),
                    _over_matchers("", width, HOLDING, LIMIT_INDEX),
                ),
                unit=MILLION,
            )
            for width, name in NAMES.items()
        ),
        Panel(
            "Matchers that hold a box",
            tuple(_over_matchers(name, width, HOLDING, COPIES) for width, name in NAMES.items()),
            "matchers a box",
        ),
        Panel(
            "Boxes at the fullest matcher",
            tuple(
                _over_matchers(name, width, HOLDING, HOLDS_MOST) for width, name in NAMES.items()
            ),
            "thousand boxes",
            unit=1e3,
        ),
        Panel(
            "Gossip that a matcher sends (computed above 200)",
            (
                Line("nothing changes", ((0.0, CHATTERING),), GOSSIP_QUIET, is_own=True),
                Line("every load changes", ((0.0, CHATTERING),), GOSSIP_BUSY, is_own=True),
            ),
            "kB a second",
            unit=1e3,
        ),
        Panel(
            "Records of all matchers, which every node keeps",
            (_over_matchers("bytes", WIDE, HOLDING, TABLE_BYTES),),
            "kB",
            unit=1e3,
        ),
        Panel(
            "Different candidates of a message",
            (_over_matchers("candidates", WIDE, HOLDING, CANDIDATES),),
            "candidates",
        ),
    ),
    "log",
)

SCALE_BOXES = Figure(
    "scale-boxes",
    "40,000 to 100 million boxes",
    "million boxes",
    "thousand messages a second",
    RATE,
    (
        *(
            Panel(
                f"Saturation rate of 20 matchers, {name}",
                _rates(
                    _over_boxes("", scaled(20, width), RATE),
                    _over_boxes("", holding(20, width), LIMIT),
                    _over_boxes("", holding(20, width), LIMIT_INDEX),
                ),
                unit=1e3,
            )
            for width, name in NAMES.items()
        ),
        *(
            Panel(
                f"Index of the fullest matcher, {name}",
                tuple(
                    _over_boxes(f"{count:,} matchers", holding(count, width), HOLDS_BYTES)
                    for count in HOLDERS
                ),
                "MB",
                unit=MILLION,
            )
            for width, name in NAMES.items()
        ),
        Panel(
            "Boxes that a message is in, 250 wide",
            (_over_boxes("boxes", holding(20, WIDE), MATCHES),),
            "thousand boxes",
            unit=1e3,
        ),
    ),
    "log",
    (
        *_checks(
            "Rate of 20 matchers: 40,000 boxes, and 4,000 that stand for them",
            RATE,
            scaled(20, WIDE),
            with_boxes(scaled(20, WIDE), SAMPLE, SMALLER_SAMPLE),
        ),
        *_checks(
            "Boxes at the fullest of 20: 4 million counted, and 40,000 that stand for them",
            HOLDS_MOST,
            counted(holding(20, WIDE), COUNTED_MAX),
            with_boxes(holding(20, WIDE), COUNTED_MAX),
        ),
    ),
)

CRASH_MANY = Figure(
    "crash-100",
    "A matcher of 100 that crashes",
    "seconds",
    "response time, s",
    RESPONSE_SECONDS,
    (
        Panel("Response time", (Line("response time", ((0.0, CRASHING_MANY),)),)),
        Panel(
            "Messages asked about again",
            (Line("share of messages", ((0.0, CRASHING_MANY),), LATE),),
            "share of messages",
        ),
    ),
    "time",
)

BEYOND = (SCALE_MATCHERS, SCALE_BOXES, CRASH_MANY)
