"""Where the design ceases to gain as a cluster grows, in sentences made of what was measured."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dovetail.limits import CLUSTER_NODES_MAX
from dovetail.papers.bluedove.beyond import (
    CHATTERING,
    SIMULATED,
    counted,
    holding,
    scaled,
    with_boxes,
)
from dovetail.papers.bluedove.configuration import (
    COPIES,
    GOSSIP_BUSY,
    GOSSIP_QUIET,
    HOLDS_BYTES,
    HOLDS_MOST,
    LIMIT,
    LIMIT_INDEX,
    MATCHES,
    NARROW,
    RATE,
    TABLE_BYTES,
    WIDE,
    Configuration,
    Measured,
)
from dovetail.papers.bluedove.scale import BOXES, MATCHERS
from dovetail.sim.gossip_cost import brokers_of

FEW, MANY = MATCHERS[0], MATCHERS[-1]
MOST = BOXES[-1]


class Bend(NamedTuple):
    what: str
    found: str


def bends(measured: Measured) -> list[Bend]:
    """Of the figures that were run."""
    found: list[Bend] = []
    if CHATTERING in measured:
        found += _by_matchers(measured)
    if counted(holding(FEW, WIDE), MOST) in measured:
        found += _by_boxes(measured)
    return found


def _by_matchers(measured: Measured) -> Iterator[Bend]:
    def of(matchers: int, width: float, measure: str) -> float:
        return _known(measured, holding(matchers, width), measure)

    yield Bend(
        "Boxes that are wider than segments are copied.",
        f"One that is 250 wide is with {of(FEW, WIDE, COPIES):,.0f} of {FEW} matchers, and with "
        f"{of(MANY, WIDE, COPIES):,.0f} of {MANY:,}. The fullest matcher has "
        f"{of(FEW, WIDE, HOLDS_MOST):,.0f} of 40,000 boxes, and {of(MANY, WIDE, HOLDS_MOST):,.0f}: "
        f"a hundred times as many matchers take {_times(of, WIDE)} times as many messages at best, "
        "and hardly one of them has less to look at.",
    )
    yield Bend(
        "Boxes that are narrower than segments are not.",
        f"One that is 1 wide is with {of(FEW, NARROW, COPIES):.1f} matchers, and with "
        f"{of(MANY, NARROW, COPIES):.1f} of {MANY:,}, where a segment is half as wide as the box. "
        f"The fullest matcher has {of(FEW, NARROW, HOLDS_MOST):,.0f} and "
        f"{of(MANY, NARROW, HOLDS_MOST):,.0f}: both the matchers and their work get better, and "
        f"they take {_times(of, NARROW)} times as many messages at best. That is by a law without "
        "a fixed cost for a message, which any real matcher has.",
    )
    shares = [
        _known(measured, scaled(matchers, width), RATE) / of(matchers, width, LIMIT)
        for matchers in SIMULATED
        for width in (WIDE, NARROW)
    ]
    yield Bend(
        "Queues allow less than the best.",
        f"With {SIMULATED[0]} to {SIMULATED[-1]} matchers they begin to grow at "
        f"{min(shares) * 100:.0f} to {max(shares) * 100:.0f} % of what could be taken if work were "
        "shared as well as can be.",
    )
    yield Bend(
        "With Dovetail's index brokers come first.",
        f"By its times {FEW} matchers could take {of(FEW, WIDE, LIMIT_INDEX) / 1e6:.1f} million "
        f"messages a second, {of(MANY, WIDE, LIMIT_INDEX) / 1e6:,.0f} million with {MANY:,}. At "
        f"one broker for ten matchers each broker would have to take in "
        f"{of(FEW, WIDE, LIMIT_INDEX) / brokers_of(FEW) / 1e6:.2f} million a second. One was seen "
        "to take 13,200 at QoS 1 (docs/attributes.md).",
    )
    yield from _gossip(measured, of(FEW, WIDE, TABLE_BYTES), of(MANY, WIDE, TABLE_BYTES))


def _times(of: Callable[[int, float, str], float], width: float) -> str:
    return f"{of(MANY, width, LIMIT) / of(FEW, width, LIMIT):,.0f}"


def _gossip(measured: Measured, few_bytes: float, many_bytes: float) -> Iterator[Bend]:
    quiet, busy = (dict(measured.over(CHATTERING, one)) for one in (GOSSIP_QUIET, GOSSIP_BUSY))
    yield Bend(
        "Gossip grows with the number of nodes, and its logarithm.",
        f"A matcher sends {_kilobytes(quiet[FEW])} to {_kilobytes(busy[FEW])} kB a second with "
        f"{FEW}, {_kilobytes(quiet[200])} to {_kilobytes(busy[200])} with 200, and would send "
        f"{_kilobytes(quiet[MANY])} to {_kilobytes(busy[MANY])} with {MANY:,}: less if nothing "
        "changes, more if every load does. The records of all take "
        f"{_kilobytes(few_bytes)} kB, and {_kilobytes(many_bytes)}.",
    )
    yield Bend(
        f"The service stops at {CLUSTER_NODES_MAX:,} nodes.",
        "A node refuses to know more. With a broker for ten matchers that is some "
        f"{CLUSTER_NODES_MAX * 10 // 11:,} matchers: what is said here of 1,000 and {MANY:,} is of "
        "a service with a higher bound, and of gossip that is computed.",
    )


def _by_boxes(measured: Measured) -> Iterator[Bend]:
    def of(matchers: int, width: float, measure: str) -> float:
        return _known(measured, counted(holding(matchers, width), MOST), measure)

    yield Bend(
        "Memory does not shrink where boxes are wide.",
        f"Of 100 million boxes the index of the fullest matcher takes "
        f"{of(FEW, WIDE, HOLDS_BYTES) / 1e9:.1f} GB with {FEW} matchers, and "
        f"{of(MANY, WIDE, HOLDS_BYTES) / 1e9:.1f} GB with {MANY:,}. If they are 1 wide it is "
        f"{of(FEW, NARROW, HOLDS_BYTES) / 1e9:.1f} GB, and "
        f"{of(MANY, NARROW, HOLDS_BYTES) / 1e9:.2f} GB.",
    )
    rate = _known(measured, with_boxes(scaled(FEW, WIDE), MOST), RATE)
    yield Bend(
        "Time is in proportion to boxes, for both.",
        f"{FEW} matchers that look at each of 100 million boxes saturate at {rate:,.0f} messages a "
        f"second. With the index it would be {of(FEW, WIDE, LIMIT_INDEX):,.0f} at best: it has a "
        "bit for some 40 boxes, and still looks at all bits. That is carried on from times that "
        "were measured with 40,000.",
    )
    yield Bend(
        "A message is in many boxes.",
        f"In {of(FEW, WIDE, MATCHES):,.0f} of 100 million that are 250 wide. Each of them has to "
        "be told, which no way of forwarding saves.",
    )


def _known(measured: Measured, one: Configuration, measure: str) -> float:
    value = measured.value(one, measure)
    assert value is not None, (one, measure)
    return value


def _kilobytes(count: float) -> str:
    return f"{count / 1e3:,.0f}" if count >= 10_000 else f"{count / 1e3:.1f}"
