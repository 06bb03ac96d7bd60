"""The figures beyond the paper: more matchers, more boxes, larger crashes. Pure."""

from dataclasses import replace

from dovetail.papers.bluedove.figure_model import Curve, Figure, Panel, ScalingCheck
from dovetail.papers.bluedove.run_configuration import (
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
from dovetail.papers.bluedove.scale_experiments import BOXES, MATCHERS, SAMPLE, SIMULATED_MAX

MILLION = 1e6
NAMES = {WIDE: "boxes 250 wide", NARROW: "boxes 1 wide"}
GOSSIP_RUN = Configuration(CHATTER)
LARGE_CRASH_RUN = Configuration(CRASHES, matchers=100)
SMALLER_SAMPLE = 4_000
COUNTED_MAX = 4_000_000
"""Up to so many boxes all are counted; of more, a sample."""
HOLDERS = (20, 200, 2_000)
SIMULATED = tuple(count for count in MATCHERS if count <= SIMULATED_MAX)
"""Numbers of matchers whose queues are simulated. The rates of more matchers are computed."""


def rate_configuration(matchers: int, width: float) -> Configuration:
    return Configuration(SCALED, matchers=matchers, width=width)


def holding_configuration(matchers: int, width: float) -> Configuration:
    return replace(rate_configuration(matchers, width), experiment=HOLDING)


def with_boxes(configuration: Configuration, boxes: int, drawn: int = SAMPLE) -> Configuration:
    """Set the number of boxes, with a sample if there are more than `drawn`."""
    return replace(configuration, boxes=boxes, drawn=drawn if boxes > drawn else 0)


def with_counted_boxes(configuration: Configuration, boxes: int) -> Configuration:
    """Set the number of boxes to count: all up to `COUNTED_MAX`, a larger sample beyond."""
    return with_boxes(configuration, boxes, COUNTED_MAX if boxes <= COUNTED_MAX else 10 * SAMPLE)


def _over_matchers(name: str, width: float, experiment: str, measure: str) -> Curve:
    if experiment == SCALED:
        return Curve(
            name, tuple((count, rate_configuration(count, width)) for count in SIMULATED), measure
        )
    return Curve(
        name, tuple((count, holding_configuration(count, width)) for count in MATCHERS), measure
    )


def _over_boxes(name: str, start: Configuration, measure: str) -> Curve:
    of = with_boxes if start.experiment == SCALED else with_counted_boxes
    return Curve(name, tuple((count / MILLION, of(start, count)) for count in BOXES), measure)


def _rates(simulated: Curve, limit: Curve, index: Curve) -> tuple[Curve, ...]:
    return (
        replace(simulated, name="each box looked at: simulated"),
        replace(limit, name="each box looked at: at best"),
        replace(index, name="Dovetail's index: at best"),
    )


def _checks(
    subject: str, measure: str, whole: Configuration, part: Configuration
) -> list[ScalingCheck]:
    """Return a check for each width of boxes."""
    return [
        ScalingCheck(
            f"{subject}, {name}", measure, replace(whole, width=width), replace(part, width=width)
        )
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
                Curve("nothing changes", ((0.0, GOSSIP_RUN),), GOSSIP_QUIET, is_own=True),
                Curve("every load changes", ((0.0, GOSSIP_RUN),), GOSSIP_BUSY, is_own=True),
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
                    _over_boxes("", rate_configuration(20, width), RATE),
                    _over_boxes("", holding_configuration(20, width), LIMIT),
                    _over_boxes("", holding_configuration(20, width), LIMIT_INDEX),
                ),
                unit=1e3,
            )
            for width, name in NAMES.items()
        ),
        *(
            Panel(
                f"Index of the fullest matcher, {name}",
                tuple(
                    _over_boxes(
                        f"{count:,} matchers", holding_configuration(count, width), HOLDS_BYTES
                    )
                    for count in HOLDERS
                ),
                "MB",
                unit=MILLION,
            )
            for width, name in NAMES.items()
        ),
        Panel(
            "Boxes that a message is in, 250 wide",
            (_over_boxes("boxes", holding_configuration(20, WIDE), MATCHES),),
            "thousand boxes",
            unit=1e3,
        ),
    ),
    "log",
    (
        *_checks(
            "Rate of 20 matchers: 40,000 boxes, and 4,000 that stand for them",
            RATE,
            rate_configuration(20, WIDE),
            with_boxes(rate_configuration(20, WIDE), SAMPLE, SMALLER_SAMPLE),
        ),
        *_checks(
            "Boxes at the fullest of 20: 4 million counted, and 40,000 that stand for them",
            HOLDS_MOST,
            with_counted_boxes(holding_configuration(20, WIDE), COUNTED_MAX),
            with_boxes(holding_configuration(20, WIDE), COUNTED_MAX),
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
        Panel("Response time", (Curve("response time", ((0.0, LARGE_CRASH_RUN),)),)),
        Panel(
            "Messages asked about again",
            (Curve("share of messages", ((0.0, LARGE_CRASH_RUN),), LATE),),
            "share of messages",
        ),
    ),
    "time",
)

SCALE_FIGURES = (SCALE_MATCHERS, SCALE_BOXES, CRASH_MANY)
