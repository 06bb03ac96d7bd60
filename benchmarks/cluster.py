"""Compares three ways to forward between brokers: flooding, exact topic tables, sketches.

Three real brokers have a million subscriptions each. The benchmark counts needless publications,
the memory for the subscriptions of other brokers, the bytes that a joining broker receives, and the
bytes of one SUBSCRIBE. A broker starts with its subscriptions, as if they came from its data
folder; sending them over MQTT would take longer and show nothing more. Then follows the same with
fifty simulated brokers. Throughput and latency from one broker to another are measured with few
subscriptions, next to Mosquittos that are joined by bridges.
"""

import argparse
import signal
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from _cluster_brokers import BROKERS, Bridges, Brokers, Processes
from _cluster_clients import first_deliveries, publish_all, subscribe_one_by_one
from _cluster_filters import NOBODY, filters_of, topics_of
from _cluster_simulated import simulate
from _cluster_ways import WAYS, deflated_bytes
from _load import Load, LoadError, Traffic, check_the_checks
from _load_contenders import find_program
from _measure import finish, table, verdict

SUBSCRIPTIONS = 1_000_000
KINDS = ("random", "names")
PUBLICATIONS_EACH = 5_000
SINGLE_SUBSCRIBES = 100
FLOODED = 20_000
FORWARDED_MAX, MEMORY_MAX, WIRE_MAX = 1.01, 0.1, 0.25
SIMULATED, SIMULATED_FILTERS, SIMULATED_PUBLICATIONS = 50, 4_000, 50_000
ROUNDS, ROUND_SECONDS, LATENCY_RATE = 3, 1.5, 2_000
SETTLE_SECONDS_MAX = 30.0
MEGABYTE = 1e6

Figures = dict[str, Any]


def progress(what: str) -> None:
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {what}", file=sys.stderr, flush=True)


_STARTED = time.monotonic()


# With many subscriptions --------------------------------------------------------------------------


def total(figures: list[Figures], name: str) -> int:
    return sum(one[name] for one in figures)


def publications(brokers: Brokers, kind: str, each: int) -> tuple[float, float]:
    """Count forwarded and needed publications, with topics of each broker and of none."""
    topics = topics_of(kind, each)
    count = min(PUBLICATIONS_EACH, each)
    published = [topic for owner in (*range(BROKERS), NOBODY) for topic in topics(owner, count)]
    before = brokers.figures()
    publish_all(brokers.ports[0], published)
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while True:
        after = brokers.figures()
        forwarded = after[0]["forwarded"] - before[0]["forwarded"]
        arrived = total(after, "from_peers") - total(before, "from_peers")
        if arrived == forwarded:
            break
        if time.monotonic() > deadline:
            raise LoadError(f"{forwarded - arrived:,} publications are lost between brokers")
        time.sleep(0.05)
    needed = forwarded - (total(after, "in_vain") - total(before, "in_vain"))
    if needed != (BROKERS - 1) * count or total(after, "dropped") != total(before, "dropped"):
        raise LoadError(f"{needed:,} publications came to where {2 * count:,} were needed")
    return forwarded, needed


def single_subscribes(brokers: Brokers, kind: str, each: int) -> float:
    """Return the bytes to each peer for one new filter, including the frame's header."""
    extra = filters_of(topics_of(kind, each)(BROKERS, SINGLE_SUBSCRIBES))
    before = brokers.figures()
    holder = subscribe_one_by_one(brokers.ports[1], [one.encode() for one in extra])
    after = brokers.figures()
    holder.close()
    sent = total(after, "delta_bytes") - total(before, "delta_bytes")
    return sent / SINGLE_SUBSCRIBES / (BROKERS - 1)


def weigh(way: str, kind: str, each: int) -> Figures:
    progress(f"{way}, {kind}: {BROKERS} brokers with {each:,} subscriptions each")
    with Brokers(way, kind, each) as brokers:
        progress("they know each other")
        figures = brokers.figures()
        joining = figures[-1]
        result: Figures = {
            "own": statistics.mean(one["alone"] - one["rest"] for one in figures),
            "resident": statistics.mean(one["resident"] for one in figures),
            "others": statistics.mean(one["resident"] - one["alone"] for one in figures),
            "known_bytes": joining["known_bytes"],
            "counting": joining["own_bytes"],
            "join": joining["whole_bytes"],
        }
        result["forwarded"], result["needed"] = publications(brokers, kind, each)
        result["subscribe"] = single_subscribes(brokers, kind, each)
    return result


def compare_tables(kind: str, each: int, ways: list[str]) -> None:
    # Flooding knows nothing of others, however many there are.
    found = {
        way: weigh(way, kind, min(each, FLOODED) if way == "flooding" else each) for way in ways
    }
    others = (BROKERS - 1) * each
    few = f" (with flooding {min(each, FLOODED):,})" if "flooding" in found else ""
    table(
        f"{kind}: {BROKERS} processes, {each:,} subscriptions of 6 levels each{few}",
        [
            "way",
            "forwarded / needed",
            "MB of others",
            "bytes a filter",
            "MB to join",
            "bytes a filter",
            "bytes a SUBSCRIBE",
            "RSS MB",
        ],
        [
            [
                way,
                f"{one['forwarded'] / one['needed']:.4f}",
                f"{one['others'] / MEGABYTE:.1f}" if one["known_bytes"] else "0",
                f"{one['others'] / others:.1f}" if one["known_bytes"] else "0",
                f"{one['join'] / MEGABYTE:.2f}",
                f"{one['join'] / others:.1f}",
                f"{one['subscribe']:.0f}",
                f"{one['resident'] / MEGABYTE:.0f}",
            ]
            for way, one in found.items()
        ],
    )
    ours, exact = found["sketches"], found["exact"]
    print(
        f"of others as they count it themselves: sketches {ours['known_bytes'] / MEGABYTE:.1f} MB, "
        f"tries {exact['known_bytes'] / MEGABYTE:.1f} MB without their values"
    )
    print(
        "beside its own table of subscriptions each broker keeps "
        f"{ours['counting'] / MEGABYTE:.0f} MB of bits and counts, to take filters out again"
    )
    texts = filters_of(topics_of(kind, each)(0, each))
    print(f"texts deflated would be {deflated_bytes(texts) / each:.1f} bytes a filter")
    verdict(
        f"forwarded / needed, sketches, {kind}",
        ours["forwarded"] / ours["needed"],
        FORWARDED_MAX,
        at_most=True,
    )
    verdict(
        f"memory of others, sketches / exact, {kind}",
        ours["others"] / exact["others"],
        MEMORY_MAX,
        at_most=True,
    )
    verdict(
        f"bytes to join, sketches / exact, {kind}",
        ours["join"] / exact["join"],
        WIRE_MAX,
        at_most=True,
    )


# Fifty brokers ------------------------------------------------------------------------------------


def compare_simulated(each: int) -> None:
    rows = []
    for kind in KINDS:
        progress(f"{SIMULATED} simulated brokers, {kind}, {each:,} subscriptions each")
        one = simulate(kind, SIMULATED, each, SIMULATED_PUBLICATIONS)
        others = (SIMULATED - 1) * each
        flooded = (SIMULATED - 1) * SIMULATED_PUBLICATIONS / one.needed
        rows += [
            [kind, "flooding", f"{flooded:.4f}", "0", "0", "0"],
            [
                kind,
                "exact",
                "1.0000",
                f"{one.exact_bytes / others:.1f}",
                f"{one.exact_join_bytes / others:.1f}",
                f"{one.exact_subscribe_bytes:.0f}",
            ],
            [
                kind,
                "sketches",
                f"{one.forwarded / one.needed:.4f}",
                f"{one.sketch_bytes / others:.1f}",
                f"{one.join_bytes / others:.1f}",
                f"{one.subscribe_bytes:.0f}",
            ],
        ]
        forwarded = one.forwarded / one.needed
        memory = one.sketch_bytes / one.exact_bytes
        wire = one.join_bytes / one.exact_join_bytes
        what = f"{SIMULATED} brokers, {kind}"
        verdict(f"forwarded / needed, {what}", forwarded, FORWARDED_MAX, at_most=True)
        verdict(f"memory of others, sketches / exact, {what}", memory, MEMORY_MAX, at_most=True)
        verdict(f"bytes to join, sketches / exact, {what}", wire, WIRE_MAX, at_most=True)
    table(
        f"{SIMULATED} simulated brokers, {each:,} subscriptions each; bytes for a filter of others",
        ["names", "way", "forwarded / needed", "memory", "to join", "bytes a SUBSCRIBE"],
        rows,
    )


# From one broker to another -----------------------------------------------------------------------


def compare_speed(each: int) -> None:
    """Run all at once and let them take turns, so that a ratio is of the same moment."""
    traffic = Traffic(topics_each=100, filters=(b"bench/#",))
    with ExitStack() as stack:
        contenders: dict[str, Processes] = {}
        for way in WAYS:
            progress(f"{way}: {BROKERS} brokers with {each:,} subscriptions each")
            contenders[way] = stack.enter_context(Brokers(way, "names", each))
        if find_program("mosquitto"):
            contenders["Mosquitto, bridges"] = stack.enter_context(Bridges())
        else:
            print("Mosquitto takes no part: it is not installed")
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        latencies: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in contenders}
        late: dict[str, tuple[float, float]] = {}
        for number in range(ROUNDS):
            progress(f"throughput and latency, round {number + 1} of {ROUNDS}")
            for name, one in contenders.items():
                # To a leaf of Mosquitto's star from its middle: one step, as with ours.
                here, there = one.ports[1], one.ports[0]
                with Load(here, traffic, publishers_port=there) as load:
                    load.run(0.3)
                    rates[name].append(load.run(ROUND_SECONDS).rate)
                with Load(here, traffic, publishers_port=there) as load:
                    load.run_paced(LATENCY_RATE, 0.3)
                    latencies[name].append(load.run_paced(LATENCY_RATE, ROUND_SECONDS))
        for name, one in contenders.items():
            progress(f"{name}: from SUBSCRIBE to the first delivery")
            late[name] = first_deliveries(one.ports[1], one.ports[0], 50)
    table(
        f"QoS 0 from one broker to another, 100 topics; medians of {ROUNDS} rounds in turn",
        ["way", "messages/s", "p50 µs", "p99 µs", "SUBACK ms", "first delivery ms"],
        [
            [
                name,
                f"{statistics.median(rates[name]):,.0f}",
                f"{np.percentile(np.concatenate(latencies[name]), 50) * 1e6:,.0f}",
                f"{np.percentile(np.concatenate(latencies[name]), 99) * 1e6:,.0f}",
                f"{late[name][0] * 1e3:.2f}",
                f"{late[name][1] * 1e3:.2f}",
            ]
            for name in contenders
        ],
    )


def main() -> None:
    if sys.platform != "linux":
        sys.exit("benchmarks/cluster.py: it reads /proc, which only Linux has")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--subscriptions", type=int, default=SUBSCRIPTIONS, help="a broker's")
    parser.add_argument("--names", choices=KINDS, action="append", help="only this kind of names")
    parser.add_argument("--skip", choices=("tables", "simulated", "speed"), action="append")
    options = parser.parse_args()
    skipped = options.skip or ()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    check_the_checks()
    if "speed" not in skipped:
        compare_speed(10_000)
    if "simulated" not in skipped:
        compare_simulated(SIMULATED_FILTERS)
    if "tables" not in skipped:
        for number, kind in enumerate(options.names or KINDS):
            # What flooding forwards does not depend on names.
            ways = [way for way in WAYS if way != "flooding" or not number]
            compare_tables(kind, options.subscriptions, ways)
    finish()


if __name__ == "__main__":
    try:
        main()
    except LoadError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
