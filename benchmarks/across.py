"""Measures what a publication costs a cluster, against the same publication within one broker.

- *two*: the publisher is at one broker and the subscriber at another. The same traffic goes through
  one broker alone, in turn.
- *matchers*: 2,000 narrow boxes are dealt out to the clients of 2, 4 and 8 brokers, with two
  matchers. The publisher is at the first broker. Every publication lies in some box.

The load generator of `scripts/bench broker` checks every message: none is lost, doubled, altered or
out of order, and each subscriber gets those that lie in its boxes. The cost is the CPU time of all
processes of the cluster, brokers, matchers and their supervisor, for one publication. Nothing is
subtracted: gossip, pings and timers count. What they take without load stands beside it. The fewer
messages a second the machine has time for, the more of it each message bears.
"""

import argparse
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from _load import SENSOR_PROPERTIES, Load, Traffic, check_the_checks
from _load_boxes import Boxes, space_table
from _load_contenders import HOST, Contender, Purpose, Server, running, take_processor
from _measure import finish, ratio, table, verdict

EVERYTHING = (b"bench/#",)
WARM_UP_SECONDS = 0.5
NARROW, NARROW_WIDTH = 2_000, 60.0
WINDOW, SMALL_WINDOW = 500, 10
MATCHERS = 2
MATCHED_MICROSECONDS_MAX = 12.0
GROWTH_MAX = 1.25
"""Of the cost, from the fewest brokers to the most."""
IDLE_SECONDS = 4.0

TRAFFIC = {
    "QoS 0": Traffic(),
    "QoS 1": Traffic(qos=1),
    "QoS 1, 10 in flight": Traffic(qos=1, in_flight_max=SMALL_WINDOW),
    "100 publishers, each packet alone": Traffic(
        publishers=100, single_packets=True, filters=EVERYTHING, window_bytes=100 << 10
    ),
    "100 publishers, QoS 1, one in flight": Traffic(
        publishers=100, filters=EVERYTHING, qos=1, in_flight_max=1
    ),
    "four properties, QoS 0": Traffic(properties=SENSOR_PROPERTIES),
    "four properties, QoS 1": Traffic(properties=SENSOR_PROPERTIES, qos=1),
    "one where-clause, QoS 0": Traffic(boxes=Boxes(1, 1), filters=EVERYTHING),
    "one where-clause, QoS 1": Traffic(boxes=Boxes(1, 1), filters=EVERYTHING, qos=1),
}


def _name(brokers: int) -> str:
    return "one broker" if brokers == 1 else f"{brokers} brokers"


def cluster(brokers: int, matchers: int = 0) -> Contender:
    """Return a cluster whose brokers listen on consecutive ports."""
    program = Path(sys.executable).with_name("dovetail")

    def prepare(port: int, folder: Path, _purpose: Purpose) -> list[str]:
        configuration = folder / "dovetail.toml"
        configuration.write_text(space_table())
        counts = ["--brokers", str(brokers)] if brokers > 1 else []
        counts += ["--matchers", str(matchers)] if matchers else []
        place = ["--port", str(port), "--host", HOST, "--data", str(folder / "data")]
        return [str(program), "up", *place, *counts, "--config", str(configuration), "--quiet"]

    return Contender(_name(brokers), prepare, ports=brokers, knows_clauses=True, is_cluster=True)


def cost(server: Server, traffic: Traffic, brokers: int, options: argparse.Namespace) -> float:
    """Return the CPU microseconds of one publication."""
    spread = brokers if traffic.subscribers > 1 else 1
    first = server.port if spread > 1 else server.port + brokers - 1
    with Load(
        first, traffic, publishers_port=server.port, brokers=spread, knows_clauses=True
    ) as load:
        load.run(WARM_UP_SECONDS)
        before = server.cpu_seconds()
        run = load.run(options.seconds)
        spent = server.cpu_seconds() - before
        load.check_silent()
        return spent / run.messages * 1e6


def idle(server: Server) -> float:
    """Return the CPU milliseconds of one second without load."""
    before, began = server.cpu_seconds(), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (server.cpu_seconds() - before) / (time.perf_counter() - began) * 1e3


Costs = dict[str, list[float]]
"""By kind of traffic, round by round."""


def measure(
    contenders: list[Contender], traffics: dict[str, Traffic], options: argparse.Namespace
) -> tuple[dict[str, Costs], dict[str, float]]:
    """Return what each cluster costs, and what it costs without load. They take turns."""
    found: dict[str, Costs] = {one.name: {name: [] for name in traffics} for one in contenders}
    with running(contenders, "clauses") as servers:
        for server in servers.values():
            server.wait_until_ready()
        idles = {name: idle(server) for name, server in servers.items()}
        for _ in range(options.rounds):
            for name, traffic in traffics.items():
                for one in contenders:
                    value = cost(servers[one.name], traffic, one.ports, options)
                    found[one.name][name].append(value)
                    print(f"  {one.name}: {name}: {value:.2f}", file=sys.stderr)
    return found, idles


def two(options: argparse.Namespace) -> None:
    contenders = [cluster(1), cluster(2)]
    found, idles = measure(contenders, TRAFFIC, options)
    alone, across = (found[one.name] for one in contenders)
    rows = [
        (
            name,
            f"{statistics.median(alone[name]):.2f}",
            f"{statistics.median(across[name]):.2f}",
            f"{ratio(across[name], alone[name]):.2f}",
        )
        for name in TRAFFIC
    ]
    rows.append(("without load, ms a second", *(f"{one:.1f}" for one in idles.values()), ""))
    table("CPU µs of a publication", ("traffic", "one broker", "two brokers", "ratio"), rows)
    verdict("QoS 1: two brokers / one", ratio(across["QoS 1"], alone["QoS 1"]), 2.0, at_most=True)


def matchers(options: argparse.Namespace) -> None:
    rows = []
    medians: dict[str, list[float]] = {}
    for brokers in options.brokers:
        boxes = Traffic(
            boxes=Boxes(NARROW, brokers, NARROW_WIDTH), filters=EVERYTHING, subscribers=brokers
        )
        traffics = {
            "QoS 0": boxes,
            f"QoS 1, {WINDOW} in flight": replace(boxes, qos=1, in_flight_max=WINDOW),
            f"QoS 1, {SMALL_WINDOW} in flight": replace(boxes, qos=1, in_flight_max=SMALL_WINDOW),
        }
        contender = cluster(brokers, MATCHERS)
        found, idles = measure([contender], traffics, options)
        for name, costs in found[contender.name].items():
            medians.setdefault(name, []).append(statistics.median(costs))
        now = [f"{values[-1]:.1f}" for values in medians.values()]
        rows.append((str(brokers), *now, f"{idles[contender.name]:.0f}"))
    table(
        f"CPU µs of a publication with {NARROW:,} narrow boxes and {MATCHERS} matchers",
        ("brokers", *medians, "without load, ms a second"),
        rows,
    )
    for name, values in [*medians.items()][:2]:
        for brokers, value in zip(options.brokers, values, strict=True):
            what = f"{brokers} brokers, {name}: CPU µs"
            verdict(what, value, MATCHED_MICROSECONDS_MAX, at_most=True)
        what = f"{name}: {options.brokers[-1]} brokers / {options.brokers[0]}"
        verdict(what, values[-1] / values[0], GROWTH_MAX, at_most=True)


PARTS = {"two": two, "matchers": matchers}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--brokers", type=int, nargs="+", default=[2, 4, 8])
    options = parser.parse_args()
    check_the_checks()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} processors, load averages of {load} before")
    if (os.cpu_count() or 1) > 1:
        take_processor()
    for part in options.parts:
        PARTS[part](options)
    finish()


if __name__ == "__main__":
    main()
