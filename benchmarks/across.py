"""Measures what a publication costs a cluster, against the same publication within one broker.

- *two*: the publisher is at one broker and the subscriber at another. The same traffic goes through
  one broker alone.
- *matchers*: 2,000 narrow boxes are dealt out to the clients of 2, 4 and 8 brokers, with two
  matchers. The publisher is at the first broker. Every publication lies in some box.

The load generator of `scripts/bench broker` checks every message. The cost is the CPU time of all
processes of the cluster, brokers, matchers and their supervisor, for one publication.
"""

import argparse
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from _load import SENSOR_PROPERTIES, Load, Traffic, check_the_checks
from _load_boxes import Boxes, space_table
from _load_contenders import HOST, Contender, Purpose, Server, running, take_processor
from _measure import finish, ratio, table, verdict

EVERYTHING = (b"bench/#",)
WARM_UP_SECONDS = 0.5
NARROW, NARROW_WIDTH = 2_000, 60.0
WINDOW = 500
MATCHERS = 2
MATCHED_MICROSECONDS_MAX = 12.0

TRAFFIC = {
    "QoS 1": Traffic(qos=1),
    "four properties, QoS 0": Traffic(properties=SENSOR_PROPERTIES),
    "four properties, QoS 1": Traffic(properties=SENSOR_PROPERTIES, qos=1),
    "one where-clause, QoS 0": Traffic(boxes=Boxes(1, 1), filters=EVERYTHING),
    "one where-clause, QoS 1": Traffic(boxes=Boxes(1, 1), filters=EVERYTHING, qos=1),
}


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

    return Contender(
        f"{brokers} brokers", prepare, ports=brokers, knows_clauses=True, is_cluster=True
    )


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
        return (server.cpu_seconds() - before) / run.messages * 1e6


def measure(
    contender: Contender, traffics: dict[str, Traffic], options: argparse.Namespace
) -> dict[str, list[float]]:
    """Return the costs of each kind of traffic, round by round."""
    found: dict[str, list[float]] = {name: [] for name in traffics}
    with running([contender], "clauses") as servers:
        server = servers[contender.name]
        server.wait_until_ready()
        for _ in range(options.rounds):
            for name, traffic in traffics.items():
                found[name].append(cost(server, traffic, contender.ports, options))
                print(f"  {contender.name}: {name}: {found[name][-1]:.2f}", file=sys.stderr)
    return found


def two(options: argparse.Namespace) -> None:
    alone = measure(cluster(1), TRAFFIC, options)
    across = measure(cluster(2), TRAFFIC, options)
    rows = [
        (
            name,
            f"{statistics.median(alone[name]):.2f}",
            f"{statistics.median(across[name]):.2f}",
            f"{ratio(across[name], alone[name]):.2f}",
        )
        for name in TRAFFIC
    ]
    table("CPU µs of a publication", ("traffic", "one broker", "two brokers", "ratio"), rows)
    verdict("QoS 1: two brokers / one", ratio(across["QoS 1"], alone["QoS 1"]), 2.0, at_most=True)


def matchers(options: argparse.Namespace) -> None:
    rows = []
    for brokers in options.brokers:
        boxes = Traffic(
            boxes=Boxes(NARROW, brokers, NARROW_WIDTH), filters=EVERYTHING, subscribers=brokers
        )
        traffics = {"QoS 0": boxes, "QoS 1": replace(boxes, qos=1, in_flight_max=WINDOW)}
        found = measure(cluster(brokers, MATCHERS), traffics, options)
        rows.append((str(brokers), *(f"{statistics.median(one):.1f}" for one in found.values())))
        for name, costs in found.items():
            verdict(
                f"{brokers} brokers, {name}: CPU µs",
                statistics.median(costs),
                MATCHED_MICROSECONDS_MAX,
                at_most=True,
            )
    table(
        f"CPU µs of a publication with {NARROW:,} narrow boxes and {MATCHERS} matchers",
        ("brokers", "QoS 0", f"QoS 1, {WINDOW} in flight"),
        rows,
    )


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
    if (os.cpu_count() or 1) > 1:
        take_processor()
    for part in options.parts:
        PARTS[part](options)
    finish()


if __name__ == "__main__":
    main()
