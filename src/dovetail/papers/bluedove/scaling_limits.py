"""Where a growing cluster gains no more: conclusions made of measured numbers."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dovetail.limits import CLUSTER_NODES_MAX
from dovetail.papers.bluedove.run_configuration import (
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
    TrialMeans,
)
from dovetail.papers.bluedove.scale_experiments import BOXES, MATCHERS
from dovetail.papers.bluedove.scale_figures import (
    GOSSIP_RUN,
    SIMULATED,
    holding_configuration,
    rate_configuration,
    with_boxes,
    with_counted_boxes,
)
from dovetail.sim.gossip_cost import brokers_of

FEW, MANY = MATCHERS[0], MATCHERS[-1]
MOST = BOXES[-1]


class ScalingLimit(NamedTuple):
    claim: str
    evidence: str


def find_scaling_limits(measured: TrialMeans) -> list[ScalingLimit]:
    """Return the limits that show in the figures that were run."""
    found: list[ScalingLimit] = []
    if GOSSIP_RUN in measured:
        found += _by_matchers(measured)
    if with_counted_boxes(holding_configuration(FEW, WIDE), MOST) in measured:
        found += _by_boxes(measured)
    return found


def _by_matchers(measured: TrialMeans) -> Iterator[ScalingLimit]:
    def of(matchers: int, width: float, measure: str) -> float:
        return _measured_value(measured, holding_configuration(matchers, width), measure)

    yield ScalingLimit(
        "Boxes that are wider than segments are copied.",
        f"With {FEW} matchers, a box 250 wide has {of(FEW, WIDE, COPIES):,.0f} copies; with "
        f"{MANY:,}, it has {of(MANY, WIDE, COPIES):,.0f}. The fullest matcher holds "
        f"{of(FEW, WIDE, HOLDS_MOST):,.0f} of 40,000 boxes, or {of(MANY, WIDE, HOLDS_MOST):,.0f}: "
        f"a hundred times as many matchers take {_times(of, WIDE)} times as many messages at best, "
        "and each still looks at about as many boxes.",
    )
    yield ScalingLimit(
        "Boxes that are narrower than segments are not copied.",
        f"A box 1 wide has {of(FEW, NARROW, COPIES):.1f} copies with {FEW} matchers, and "
        f"{of(MANY, NARROW, COPIES):.1f} with {MANY:,}, whose segments are half as wide as the "
        f"box. The fullest matcher holds {of(FEW, NARROW, HOLDS_MOST):,.0f} boxes, or "
        f"{of(MANY, NARROW, HOLDS_MOST):,.0f}: there are more matchers, and each has less work. "
        f"So they take {_times(of, NARROW)} times as many messages at best. This ignores the fixed "
        "cost of a message, which any real matcher has.",
    )
    shares = [
        _measured_value(measured, rate_configuration(matchers, width), RATE)
        / of(matchers, width, LIMIT)
        for matchers in SIMULATED
        for width in (WIDE, NARROW)
    ]
    yield ScalingLimit(
        "Real queues stay below the best rate.",
        f"With {SIMULATED[0]} to {SIMULATED[-1]} matchers, queues start to grow at "
        f"{min(shares) * 100:.0f} to {max(shares) * 100:.0f} % of the rate that an ideal choice of "
        "matchers would allow.",
    )
    yield ScalingLimit(
        "With Dovetail's index, brokers are the limit.",
        f"With the index {FEW} matchers could take {of(FEW, WIDE, LIMIT_INDEX) / 1e6:.1f} million "
        f"messages a second, and {MANY:,} could take {of(MANY, WIDE, LIMIT_INDEX) / 1e6:,.0f} "
        "million. With one broker for ten matchers, each broker would have to take "
        f"{of(FEW, WIDE, LIMIT_INDEX) / brokers_of(FEW) / 1e6:.2f} million a second. In a "
        "measurement one took 13,200 at QoS 1 (docs/attributes.md).",
    )
    yield from _gossip(measured, of(FEW, WIDE, TABLE_BYTES), of(MANY, WIDE, TABLE_BYTES))


def _times(of: Callable[[int, float, str], float], width: float) -> str:
    return f"{of(MANY, width, LIMIT) / of(FEW, width, LIMIT):,.0f}"


def _gossip(measured: TrialMeans, few_bytes: float, many_bytes: float) -> Iterator[ScalingLimit]:
    quiet, busy = (dict(measured.over(GOSSIP_RUN, one)) for one in (GOSSIP_QUIET, GOSSIP_BUSY))
    yield ScalingLimit(
        "Gossip grows with the number of nodes times its logarithm.",
        f"A matcher sends {_kilobytes(quiet[FEW])} to {_kilobytes(busy[FEW])} kB a second with "
        f"{FEW}, {_kilobytes(quiet[200])} to {_kilobytes(busy[200])} with 200, and would send "
        f"{_kilobytes(quiet[MANY])} to {_kilobytes(busy[MANY])} with {MANY:,}: the lower number if "
        "nothing changes, the higher one if all loads do. The records of all matchers take "
        f"{_kilobytes(few_bytes)} kB with {FEW}, and {_kilobytes(many_bytes)} kB with {MANY:,}.",
    )
    yield ScalingLimit(
        f"The service stops at {CLUSTER_NODES_MAX:,} nodes.",
        "That is the bound of a cluster. With one broker for ten matchers it allows about "
        f"{CLUSTER_NODES_MAX * 10 // 11:,} matchers. The numbers for 1,000 and {MANY:,} assume a "
        "higher bound, and their gossip is computed.",
    )


def _by_boxes(measured: TrialMeans) -> Iterator[ScalingLimit]:
    def of(matchers: int, width: float, measure: str) -> float:
        return _measured_value(
            measured, with_counted_boxes(holding_configuration(matchers, width), MOST), measure
        )

    yield ScalingLimit(
        "With wide boxes, more matchers do not save memory.",
        f"Of 100 million boxes 250 wide, the index of the fullest matcher takes "
        f"{of(FEW, WIDE, HOLDS_BYTES) / 1e9:.1f} GB with {FEW} matchers, and "
        f"{of(MANY, WIDE, HOLDS_BYTES) / 1e9:.1f} GB with {MANY:,}. With boxes 1 wide it takes "
        f"{of(FEW, NARROW, HOLDS_BYTES) / 1e9:.1f} GB, and "
        f"{of(MANY, NARROW, HOLDS_BYTES) / 1e9:.2f} GB.",
    )
    rate = _measured_value(measured, with_boxes(rate_configuration(FEW, WIDE), MOST), RATE)
    yield ScalingLimit(
        "Time is in proportion to boxes, with and without the index.",
        f"{FEW} matchers that look at each of 100 million boxes saturate at {rate:,.0f} messages a "
        f"second. With the index they would take {of(FEW, WIDE, LIMIT_INDEX):,.0f} at best: it has "
        "one bit for about 40 boxes, but looks at all bits. This extrapolates times that were "
        "measured with 40,000 boxes.",
    )
    yield ScalingLimit(
        "A message is in many boxes.",
        f"It is in {of(FEW, WIDE, MATCHES):,.0f} of 100 million boxes 250 wide. The matcher has to "
        "report each of them, whatever the forwarding policy.",
    )


def _measured_value(measured: TrialMeans, one: Configuration, measure: str) -> float:
    value = measured.value(one, measure)
    assert value is not None, (one, measure)
    return value


def _kilobytes(count: float) -> str:
    return f"{count / 1e3:,.0f}" if count >= 10_000 else f"{count / 1e3:.1f}"
