"""Every number that BlueDove's text gives of its evaluation, beside ours.

The paper's numbers are of one test bed. Ours agree if they are within a quarter of them, for boxes
of either width (`run_configuration.py` explains why there are two). The simulator cannot know the
speed of the paper's machines: it is fitted, and that row says so.
"""

from collections.abc import Callable
from dataclasses import replace

from dovetail.papers.bluedove.elasticity_numbers import (
    TOLERANCE,
    crash_numbers,
    growth_number,
    overhead_numbers,
    rounded,
)
from dovetail.papers.bluedove.figures import PAPER_RATE
from dovetail.papers.bluedove.hypotheses import HYPOTHESES
from dovetail.papers.bluedove.run_configuration import (
    BOX_SECONDS,
    BOXES,
    FLAT_CHANGE,
    HELD,
    NARROW,
    OVER_FULL,
    OVER_P2P,
    OVER_P2P_SECOND,
    RATE,
    REASONS,
    UNEVENNESS,
    WIDE,
    Configuration,
    TrialMeans,
)
from dovetail.papers.comparison_table import NOT_RUN, Comparison

ALL = Configuration()
P2P = Configuration(system="p2p")
FULL = Configuration(system="full")

ONE_SEGMENT = (
    "A box 250 wide overlaps 6 of 20 segments, so a matcher holds a third of all boxes, and no "
    "choice among such matchers can be 67 times as good as full replication. The paper's figures "
    "fit boxes that lie in one segment of each dimension."
)
P2P_WHY = (
    "Ours uses the first dimension, whose hot spot is the sharpest, near the end of the axis. The "
    "paper does not say which dimension it used."
)
"""`_HypothesisTexts` and runs along the second dimension add to this."""

POWER, COST, LARGE_COST = (
    float([one.name for one in HYPOTHESES].index(name))
    for name in (
        "time with boxes to the power of 1.25",
        "a message costs as much as 500 boxes",
        "a message costs as much as 1,500 boxes",
    )
)

MeasuredValue = Callable[[float], float | None]
"""A function from the width of boxes to our number, or to None if it was not run."""


def compare(measured: TrialMeans) -> list[Comparison]:
    def ratio(top: Configuration, bottom: Configuration, measure: str = RATE) -> MeasuredValue:
        def of(width: float) -> float | None:
            above = measured.value(replace(top, width=width), measure)
            below = measured.value(replace(bottom, width=width), measure)
            return above / below if above is not None and below else None

        return of

    def value(configuration: Configuration, measure: str) -> MeasuredValue:
        return lambda width: measured.value(replace(configuration, width=width), measure)

    def at(configuration: Configuration, matchers: int) -> Configuration:
        return replace(configuration, matchers=matchers)

    def held(configuration: Configuration) -> Configuration:
        return replace(configuration, experiment=HELD, messages_per_second=PAPER_RATE)

    def policy(name: str) -> Configuration:
        return Configuration(system=name)

    def p2p(ours: Configuration, theirs: Configuration, measure: str = RATE) -> str:
        """Return the reason, with our number along the second dimension."""
        second = replace(theirs, along=1)
        found = [ratio(ours, second, measure)(width) for width in (WIDE, NARROW)]
        if None in found:
            return P2P_WHY
        along = " and ".join(f"{one:.1f} x" for one in found)
        return f"{P2P_WHY} Along the second: {along}.{hypotheses.p2p}"

    hypotheses = _HypothesisTexts(measured)
    fitted = " and ".join(
        f"{seconds * 1e9:.0f} ns (boxes {'250 wide' if width == WIDE else 'in one segment'})"
        for width, seconds in BOX_SECONDS.items()
    )
    return [
        _row(
            "Saturation, 20 matchers, 40,000 boxes (fig. 6(a))",
            114_000,
            value(ALL, RATE),
            " msg/s",
            f"Fitted: looking at a box takes {fitted}. All other rates follow.",
        ),
        _row(
            "The same for each of 80 cores",
            1_425,
            lambda width: _by_core(value(ALL, RATE)(width)),
            " msg/s",
            "A matcher here is one server that is as fast as the paper's four cores.",
        ),
        _row(
            "Against P2P, 5 matchers",
            3.5,
            ratio(at(ALL, 5), at(P2P, 5)),
            " x",
            p2p(at(ALL, 5), at(P2P, 5)),
        ),
        _row(
            "Against full replication, 5 matchers",
            14,
            ratio(at(ALL, 5), at(FULL, 5)),
            " x",
            ONE_SEGMENT,
        ),
        _row("Against P2P, 20 matchers", 4.2, ratio(ALL, P2P), " x", p2p(ALL, P2P)),
        _row("Against full replication, 20 matchers", 67, ratio(ALL, FULL), " x", ONE_SEGMENT),
        _row(
            "Boxes held at 100,000 msg/s, against P2P (fig. 6(b))",
            4,
            ratio(held(ALL), held(P2P), BOXES),
            " x",
            p2p(held(ALL), held(P2P), BOXES),
        ),
        _row(
            "Boxes held at 100,000 msg/s, against full replication",
            30,
            ratio(held(ALL), held(FULL), BOXES),
            " x",
            "Where time is in proportion to boxes, this is the ratio of figure 6(a), where the "
            "paper has 67. By reasoning, not tested: time that grows faster than boxes would make "
            f"it smaller than that.{hypotheses.power}",
        ),
        _row(
            "Adaptive against response time (fig. 7)",
            1.1,
            ratio(ALL, policy("response-time")),
            " x",
            "By reasoning, not tested: ours counts what a broker itself has sent since the last "
            "report, where the paper's takes the rate of all for it.",
        ),
        _row(
            "Adaptive against subscription amount",
            1.2,
            ratio(ALL, policy("subscription-amount")),
            " x",
            "",
        ),
        _row("Adaptive against random", 3.5, ratio(ALL, policy("random")), " x", ""),
        _row(
            "Unevenness of load: standard deviation by mean (fig. 8)",
            0.14,
            value(ALL, UNEVENNESS),
            "",
            "The paper's is of one-minute averages of the machines' load, ours of matching time.",
        ),
        _row("The same of P2P", 0.82, value(P2P, UNEVENNESS), "", ""),
        _row(
            "4 searchable dimensions against 1 (fig. 11(a))",
            5.5,
            ratio(ALL, replace(ALL, searchable=1)),
            " x",
            "With one dimension it is P2P along the first. " + p2p(ALL, P2P),
        ),
        _row(
            "Standard deviation of boxes from 250 to 1,000 (fig. 11(b))",
            -40,
            _change(ratio(replace(ALL, spread=1_000.0), ALL)),
            " %",
            "Where time is in proportion to boxes, flat boxes leave each of 20 matchers a "
            f"twentieth of the work of full replication, so 67 times becomes some 20."
            f"{hypotheses.flat}",
        ),
        _row(
            "All 4 dimensions adversely skewed (fig. 11(c))",
            -50,
            _change(ratio(replace(ALL, skewed=4), ALL)),
            " %",
            "Messages and boxes are densest in the same places there.",
            is_at_least=True,
        ),
        _row(
            "The rate that is left then",
            50_000,
            value(replace(ALL, skewed=4), RATE),
            " msg/s",
            "By reasoning, not tested: what makes boxes that are spread evenly slower here than in "
            "the paper does so where all candidates are on hot spots, too.",
        ),
        growth_number(measured),
        *crash_numbers(measured),
        *overhead_numbers(measured),
    ]


class _HypothesisTexts:
    """Sentences on the results of hypotheses (hypotheses.py), with boxes in one segment."""

    def __init__(self, measured: TrialMeans) -> None:
        one = Configuration(REASONS, width=NARROW)
        self.power = self.p2p = self.flat = ""
        if one not in measured:
            return
        full, first, second, flat = (
            dict(measured.over(one, measure))
            for measure in (OVER_FULL, OVER_P2P, OVER_P2P_SECOND, FLAT_CHANGE)
        )
        self.power = f" Tried: to the power of 1.25 it would be {full[POWER]:.0f} x in 6(a), too."
        self.p2p = (
            f" Tried: if a message costs as much as 500 boxes, {first[COST]:.1f} x at best with 20 "
            f"matchers, {second[COST]:.1f} x along the second."
        )
        others = [value for place, value in flat.items() if place not in (COST, LARGE_COST)]
        self.flat = (
            f" Tried: if a message costs as much as 1,500 boxes, {flat[LARGE_COST]:.0f} %, but "
            f"full replication is {full[LARGE_COST]:.0f} times as slow and not 67. Neither powers "
            f"of boxes nor other hot spots do it: {max(others):.0f} to {min(others):.0f} %."
        )


CORES = 80


def _by_core(rate: float | None) -> float | None:
    return None if rate is None else rate / CORES


def _change(ratio: MeasuredValue) -> MeasuredValue:
    def of(width: float) -> float | None:
        found = ratio(width)
        return None if found is None else (found - 1) * 100

    return of


def _row(
    what: str, paper: float, ours: MeasuredValue, unit: str, why: str, *, is_at_least: bool = False
) -> Comparison:
    said = f"{rounded(paper)}{unit}"
    if is_at_least:
        said = f"beyond {said}"
    found = {width: ours(width) for width in (WIDE, NARROW)}
    known = {width: value for width, value in found.items() if value is not None}
    if len(known) < len(found):
        return Comparison(what, said, NOT_RUN, "", "", None)
    nearest = min(known.values(), key=lambda value: abs(value - paper))
    text = f"{rounded(known[WIDE])}{unit} (250 wide), {rounded(known[NARROW])}{unit} (one segment)"
    if is_at_least:
        is_held = all(value / paper >= 1 for value in known.values())
        return Comparison(what, said, text, "" if is_held else "less", why, is_held)
    off = nearest / paper - 1
    return Comparison(what, said, text, f"{off * 100:+.0f} %", why, abs(off) <= TOLERANCE)
