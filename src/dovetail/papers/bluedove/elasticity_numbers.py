"""The paper's numbers on joining and crashing matchers, and on overhead, beside ours."""

import math

from dovetail.papers.bluedove.figures import CRASH_RUN, GROWTH_RUN, IDLE_RUN
from dovetail.papers.bluedove.run_configuration import (
    DOUBLED,
    DUE,
    EVENT,
    GOSSIP_BUSY,
    GOSSIP_BYTES,
    GOSSIP_QUIET,
    LATE,
    LOAD_BYTES,
    LOST,
    SERVES,
    Configuration,
    TrialMeans,
)
from dovetail.papers.bluedove.scale_figures import GOSSIP_RUN, LARGE_CRASH_RUN
from dovetail.papers.comparison_table import NOT_RUN, Comparison
from dovetail.sim.gossip_cost import brokers_of, gossip_partners

NODES = IDLE_RUN.matchers + brokers_of(IDLE_RUN.matchers)
LOST_MANY = "Deliveries lost by a crash among 100 matchers"
TOLERANCE = 0.25
"""The share of the paper's number by which ours may differ and still agree."""


def growth_number(measured: TrialMeans) -> Comparison:
    what, paper = "New matcher to falling response time (fig. 9)", 5.0
    felt = [seconds for _, seconds in measured.over(GROWTH_RUN, EVENT) if math.isfinite(seconds)]
    if GROWTH_RUN not in measured:
        return Comparison(what, f"{paper:g} s", NOT_RUN, "", "", None)
    if not felt:
        return Comparison(what, f"{paper:g} s", "never", "", "No matcher was added.", False)
    mean = sum(felt) / len(felt)
    serves = [seconds for _, seconds in measured.over(GROWTH_RUN, SERVES)]
    each = ", ".join(f"{seconds:g}" for seconds in felt)
    return Comparison(
        what,
        f"{paper:g} s",
        f"{mean:.1f} s (each: {each}; of {len(serves)} matchers)",
        f"{(mean / paper - 1) * 100:+.0f} %",
        f"A new one serves {max(serves):g} s after its start at the latest. In the rest of the "
        "time the others work off their queues, while the rate stays too high for them.",
        abs(mean / paper - 1) <= TOLERANCE,
    )


def crash_numbers(measured: TrialMeans) -> list[Comparison]:
    share, lost, back = (
        "Messages that a crash meets, in the second after it (fig. 10)",
        "Deliveries lost by crashes",
        "From a crash until no message suffers",
    )
    many = _lost(LOST_MANY, "not in the paper", measured, LARGE_CRASH_RUN)
    events, late = measured.over(CRASH_RUN, EVENT), dict(measured.over(CRASH_RUN, LATE))
    if not events:
        return [
            Comparison(what, paper, NOT_RUN, "", "", None)
            for what, paper in ((share, "5 %"), (lost, "5 %"), (back, "17.5 s"))
        ] + [many]
    peak = 100 * sum(late[at + 1] for at, _ in events) / len(events)
    seconds = sum(seconds for _, seconds in events) / len(events)
    return [
        Comparison(
            share,
            "5 %",
            f"{peak:.1f} %",
            f"{(peak / 5 - 1) * 100:+.0f} %",
            "They were at the silent matcher or on their way to it. It is the busiest of 20.",
            abs(peak / 5 - 1) <= TOLERANCE,
        ),
        _lost(lost, "about 5 %, for seconds", measured, CRASH_RUN),
        Comparison(
            back,
            "17.5 s",
            f"{seconds:.1f} s",
            f"{(seconds / 17.5 - 1) * 100:+.0f} %",
            "The paper waits for its gossip. Ours avoids a matcher that has not answered in 0.3 s.",
            None,
        ),
        many,
    ]


def _lost(what: str, paper: str, measured: TrialMeans, one: Configuration) -> Comparison:
    """Compare a promise that only Dovetail makes: it holds or it does not."""
    due = measured.value(one, DUE)
    if due is None:
        return Comparison(what, paper, NOT_RUN, "", "", None)
    lost, doubled = measured.value(one, LOST) or 0.0, measured.value(one, DOUBLED) or 0.0
    why = "A broker keeps a message until a matcher has answered for it, and asks the next."
    return Comparison(
        what,
        paper,
        f"{lost:,.0f} of {due:,.0f}, and {doubled:,.0f} twice",
        "" if lost or doubled else "none is lost",
        why,
        False if lost or doubled else None,
    )


def _gossip_range(measured: TrialMeans) -> str:
    """Return the sentence on gossip if fewer or more records changed."""
    quiet, busy = (
        dict(measured.over(GOSSIP_RUN, one)).get(float(CRASH_RUN.matchers))
        for one in (GOSSIP_QUIET, GOSSIP_BUSY)
    )
    if quiet is None or busy is None:
        return ""
    return (
        f" Tested: it is {rounded(quiet)} B/s if nothing changes, {rounded(busy)} if all loads do, "
        "each second."
    )


def overhead_numbers(measured: TrialMeans) -> list[Comparison]:
    found = []
    for what, paper, measure, why in (
        (
            "Gossip of a matcher",
            2_900.0,
            GOSSIP_BYTES,
            (
                "The paper's is with one other a second. Ours is with "
                f"{gossip_partners(NODES)}, brokers among them, and only what is sent."
                f"{_gossip_range(measured)}"
            ),
        ),
        (
            "Tables and loads of a matcher, to each dispatcher",
            20.0,
            LOAD_BYTES,
            (
                "Loads only: tables come with gossip. By reasoning, not tested: a load is told if "
                "it differs by a tenth, and at the rate of this run a matcher gets some 3 messages "
                "a second along a dimension, so chance alone does that."
            ),
        ),
    ):
        ours = measured.value(IDLE_RUN, measure)
        if ours is None:
            found.append(Comparison(what, f"{rounded(paper)} B/s", NOT_RUN, "", "", None))
            continue
        off = ours / paper - 1
        text = f"{rounded(ours)} B/s"
        holds = abs(off) <= TOLERANCE
        found.append(
            Comparison(what, f"{rounded(paper)} B/s", text, f"{off * 100:+.0f} %", why, holds)
        )
    return found


def rounded(value: float) -> str:
    size = abs(value)
    if size >= 1_000:
        return f"{round(value, -2 if size >= 10_000 else 0):,.0f}"
    return f"{value:.0f}" if size >= 10 else f"{value:.1f}" if size >= 1 else f"{value:.2f}"
