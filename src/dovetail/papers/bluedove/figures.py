"""The figures of BlueDove's evaluation: which configurations each shows, and how. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dovetail.errors import ConfigError
from dovetail.papers.bluedove.figure_model import Curve, Figure, Panel
from dovetail.papers.bluedove.hypotheses import HYPOTHESES
from dovetail.papers.bluedove.run_configuration import (
    BOXES,
    BUSY,
    CRASHES,
    FLAT_CHANGE,
    GOSSIP_BYTES,
    GROWTH,
    HELD,
    LATE,
    LOAD_BYTES,
    NARROW,
    OVER_FULL,
    OVER_FULL_FEW,
    OVER_P2P,
    OVER_P2P_SECOND,
    OVERHEAD,
    RATE,
    REASONS,
    RESPONSE,
    RESPONSE_SECONDS,
    SERVING,
    WIDE,
    Configuration,
)
from dovetail.papers.bluedove.scale_figures import SCALE_FIGURES

PAPER_RATE = 100_000.0
"""Messages per second, below the limit of 20 matchers: figures 5 and 6(b)."""
PAPER_RATE_ABOVE = 150_000.0

MATCHERS = (5, 10, 15, 20)
SPREADS = (250.0, 500.0, 750.0, 1_000.0)
POLICIES = ("adaptive", "response-time", "subscription-amount", "random")
P2P_SECOND = "P2P along the second dimension"
COMPARED = {
    "Dovetail (mPartition, adaptive)": Configuration(),
    "P2P along the first dimension": Configuration(system="p2p"),
    "Full replication": Configuration(system="full"),
    P2P_SECOND: Configuration(system="p2p", along=1),
}
WIDTH_NAMES = {WIDE: "boxes 250 wide", NARROW: "boxes in one segment"}


GROWTH_RUN = Configuration(GROWTH, matchers=5)
CRASH_RUN = Configuration(CRASHES)
IDLE_RUN = Configuration(OVERHEAD)


def _by_width(curves: Sequence[Curve], experiment: str | None = None) -> tuple[Panel, ...]:
    """Return a panel with the same curves for each width of boxes."""
    return tuple(
        Panel(
            name.capitalize(),
            tuple(
                Curve(
                    curve.name,
                    tuple(
                        (x, replace(one, width=width, experiment=experiment or one.experiment))
                        for x, one in curve.points
                    ),
                )
                for curve in curves
            ),
        )
        for width, name in WIDTH_NAMES.items()
    )


def _scalability(rate: float = 0.0) -> list[Curve]:
    return [
        Curve(
            name,
            tuple(
                (count, replace(one, matchers=count, messages_per_second=rate))
                for count in MATCHERS
            ),
        )
        for name, one in COMPARED.items()
    ]


def _one_curve(configurations: Sequence[tuple[float, Configuration]]) -> list[Curve]:
    return [Curve("Dovetail", tuple(configurations))]


def _hypothesis_curves(one: Configuration) -> Iterator[Curve]:
    for name, measure in (
        ("full replication, 5 (paper: 14)", OVER_FULL_FEW),
        ("full replication, 20 (67)", OVER_FULL),
        ("P2P, 20 (4.2)", OVER_P2P),
        ("P2P along the second", OVER_P2P_SECOND),
        ("spread 1,000 (-40 %)", FLAT_CHANGE),
    ):
        yield Curve(name, ((0.0, one),), measure, is_own=True)


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "5",
            "Response time below and above saturation",
            "seconds",
            "response time, s",
            RESPONSE_SECONDS,
            _by_width(
                [
                    Curve(
                        f"{rate:,.0f} messages/s",
                        ((0.0, Configuration(RESPONSE, messages_per_second=rate)),),
                    )
                    for rate in (PAPER_RATE, PAPER_RATE_ABOVE)
                ]
            ),
            "time",
        ),
        Figure(
            "6a",
            "Saturation rate against matchers",
            "matchers",
            "thousand messages a second",
            RATE,
            _by_width(_scalability()),
        ),
        Figure(
            "6b",
            "Boxes held at 100,000 messages a second",
            "matchers",
            "thousand boxes",
            BOXES,
            _by_width(_scalability(PAPER_RATE), HELD),
        ),
        Figure(
            "7",
            "Saturation rate by forwarding policy",
            "policy",
            "thousand messages a second",
            RATE,
            _by_width(
                [Curve(policy, ((0.0, Configuration(system=policy)),)) for policy in POLICIES]
            ),
            "bars",
        ),
        Figure(
            "8",
            "Load of each matcher just below saturation",
            "matcher",
            "share of its time that it works",
            BUSY,
            _by_width(
                [
                    Curve("Dovetail", ((0.0, Configuration()),)),
                    Curve("P2P", ((0.0, Configuration(system="p2p")),)),
                    Curve(
                        P2P_SECOND,
                        ((0.0, Configuration(system="p2p", along=1)),),
                    ),
                ]
            ),
            "matchers",
        ),
        Figure(
            "9",
            "Matchers that are added while the rate grows",
            "seconds",
            "response time, s",
            RESPONSE_SECONDS,
            (
                Panel("Response time", (Curve("response time", ((0.0, GROWTH_RUN),)),)),
                Panel(
                    "Matchers",
                    (Curve("matchers that serve", ((0.0, GROWTH_RUN),), SERVING),),
                    "matchers",
                ),
            ),
            "time",
        ),
        Figure(
            "10",
            "Matchers that crash",
            "seconds",
            "response time, s",
            RESPONSE_SECONDS,
            (
                Panel("Response time", (Curve("response time", ((0.0, CRASH_RUN),)),)),
                Panel(
                    "Messages asked about again, which the paper loses",
                    (Curve("share of messages", ((0.0, CRASH_RUN),), LATE),),
                    "share of messages",
                ),
            ),
            "time",
        ),
        Figure(
            "11a",
            "Saturation rate against searchable dimensions",
            "searchable dimensions",
            "thousand messages a second",
            RATE,
            _by_width(_one_curve([(n, Configuration(searchable=n)) for n in range(1, 5)])),
        ),
        Figure(
            "11b",
            "Saturation rate against the spread of boxes",
            "standard deviation",
            "thousand messages a second",
            RATE,
            _by_width(_one_curve([(one, Configuration(spread=one)) for one in SPREADS])),
        ),
        Figure(
            "11c",
            "Saturation rate against adversely skewed dimensions",
            "dimensions in which messages follow the boxes' hot spot",
            "thousand messages a second",
            RATE,
            _by_width(_one_curve([(n, Configuration(skewed=n)) for n in range(5)])),
        ),
        Figure(
            "overhead",
            "What a matcher sends when nothing changes",
            "",
            "bytes a second",
            GOSSIP_BYTES,
            (
                Panel(
                    "20 matchers, 2 brokers; reports are those to one of them",
                    (
                        Curve("gossip", ((0.0, IDLE_RUN),)),
                        Curve("load reports", ((0.0, IDLE_RUN),), LOAD_BYTES),
                    ),
                ),
            ),
            "bars",
        ),
        Figure(
            "reasons",
            "Possible reasons for differences, tested",
            "what is changed",
            "",
            OVER_FULL,
            tuple(
                Panel(
                    name.capitalize(),
                    tuple(_hypothesis_curves(Configuration(REASONS, width=width))),
                )
                for width, name in WIDTH_NAMES.items()
            ),
            "names",
            names=tuple(hypothesis.name for hypothesis in HYPOTHESES),
        ),
        *SCALE_FIGURES,
    )
}


def select_figures(names: Sequence[str]) -> tuple[Figure, ...]:
    """Return the named figures, each once: the paper's in its order, then ours."""
    unknown = sorted(set(names) - set(FIGURES))
    if unknown or not names:
        raise ConfigError(
            f"the BlueDove figures are {', '.join(FIGURES)}; asked for: "
            f"{', '.join(unknown) or 'none'}."
        )
    return tuple(figure for name, figure in FIGURES.items() if name in names)
