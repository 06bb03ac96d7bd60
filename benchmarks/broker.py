"""Compares Dovetail's broker with Mosquitto, and other installed brokers, in one run.

A scenario starts every contender once, each as one process on a port of its own. In each round they
take turns: fresh connections, a short warm-up, a measurement. A subscriber checks every message
(see `_load`); a broker that loses, doubles, reorders or alters one fails the benchmark. "generator
alone" is not a broker but a pipe in place of one: it shows the ceiling of the generator.
"""

import argparse
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import _load_wire as wire
from _load import (
    SENSOR_PROPERTIES,
    Client,
    Load,
    LoadError,
    Traffic,
    check_the_checks,
    connect_and_leave,
    hold_subscriptions,
)
from _load_boxes import Boxes
from _load_contenders import (
    Contender,
    Purpose,
    Server,
    contenders,
    go_first,
    running,
    take_processor,
)
from _load_held import HeldSubscriptions
from _load_kernels import AREAS, SITES
from _load_retained import TOPICS as RETAINED_TOPICS
from _load_retained import RetainedTopics
from _measure import finish, ratio, table, verdict

OURS, PEER, GENERATOR = "Dovetail", "Mosquitto", "generator alone"
WARM_UP_SECONDS = 0.3
LATENCY_RATE = 5_000
CONNECTIONS = 5_000
HELD_FILTERS, HOLDERS = 100_000, 10
SUBSCRIPTIONS = 200_000
QUEUED = 50_000

Sample = dict[str, float]
"""What one turn of one contender measured, by the name of the figure."""
RATE, CPU, OUT = "messages/s", "CPU µs each", "CPU µs each out"
AGAIN = "CPU µs again"


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    traffic: Traffic
    at_least: float | None = None
    """The limit of our figure / Mosquitto's, for each figure in `judged`. Without a limit the ratio
    is only shown."""
    at_most: float | None = None
    cpu_at_most: float | None = None
    """The limit for our processor time / Mosquitto's, which hardly depends on other load."""
    judged: tuple[str, ...] = (RATE,)
    measure: Callable[["Scenario", Server, float], Sample] | None = None
    """From seconds to a sample; by default the throughput in messages a second."""
    held_filters: int = 0
    purpose: Purpose = "throughput"
    for_relay: bool = True
    slices: int = 1
    """Turns in each round, which share its seconds. Many short turns spread the machine's
    disturbances of single messages over all contenders."""


def throughput(scenario: Scenario, server: Server, seconds: float) -> Sample:
    traffic = scenario.traffic.at_version(server.contender.version_max)
    knows_clauses = server.contender.knows_clauses
    with Load(server.port, traffic, server.next_number, knows_clauses=knows_clauses) as load:
        load.run(min(WARM_UP_SECONDS, seconds))
        cpu = server.cpu_seconds()
        run = load.run(seconds)
        cpu = server.cpu_seconds() - cpu
        if traffic.unique_topics:
            server.next_number = load.publishers[0].sent
    return {RATE: run.rate, CPU: cpu / run.deliveries * 1e6}


def latency(scenario: Scenario, server: Server, seconds: float) -> Sample:
    traffic = scenario.traffic.at_version(server.contender.version_max)
    with Load(server.port, traffic) as load:
        load.run_paced(LATENCY_RATE, min(WARM_UP_SECONDS, seconds))
        latencies = load.run_paced(LATENCY_RATE, seconds)
    p50, p99 = np.percentile(latencies, (50, 99)) * 1e6
    return {"p50 µs": float(p50), "p99 µs": float(p99), "max µs": float(latencies.max() * 1e6)}


def connections(scenario: Scenario, server: Server, _seconds: float) -> Sample:
    version = scenario.traffic.at_version(server.contender.version_max).publisher_version
    connect_and_leave(server.port, version, 200)
    cpu = server.cpu_seconds()
    run = connect_and_leave(server.port, version, CONNECTIONS)
    cpu = server.cpu_seconds() - cpu
    return {"connections/s": run.rate, CPU: cpu / CONNECTIONS * 1e6}


def retained(scenario: Scenario, server: Server, _seconds: float) -> Sample:
    """Set retained messages on topics that have none, set them again, and deliver them."""
    version = scenario.traffic.at_version(server.contender.version_max).publisher_version
    topics = RetainedTopics(server.port, version, scenario.traffic.qos)
    cpu = []
    seconds = 0.0
    for turn in range(2):
        packets = topics.prepare(turn)
        before, started = server.cpu_seconds(), time.perf_counter()
        topics.set(packets)
        seconds += time.perf_counter() - started
        cpu.append(server.cpu_seconds() - before)
        before = server.cpu_seconds()
        received = topics.deliver()
        out = server.cpu_seconds() - before
        topics.check(received)
    topics.remove()
    topics.close()
    first, again, out = (value / RETAINED_TOPICS * 1e6 for value in (*cpu, out))
    return {RATE: 2 * RETAINED_TOPICS / seconds, CPU: first, AGAIN: again, OUT: out}


def subscriptions(scenario: Scenario, server: Server, _seconds: float) -> Sample:
    """Subscribe to many filters, and check samples of what they get."""
    version = scenario.traffic.at_version(server.contender.version_max).subscriber_version
    held = HeldSubscriptions(server.port, version, draw_filters(SUBSCRIPTIONS), HOLDERS)
    cpu, started = server.cpu_seconds(), time.perf_counter()
    held.subscribe()
    seconds = time.perf_counter() - started
    cpu = server.cpu_seconds() - cpu
    held.check()
    held.close()
    return {"subscriptions/s": SUBSCRIPTIONS / seconds, CPU: cpu / SUBSCRIPTIONS * 1e6}


def offline_queue(scenario: Scenario, server: Server, _seconds: float) -> Sample:
    traffic = scenario.traffic.at_version(server.contender.version_max)
    with Load(server.port, traffic) as load:
        load.run(WARM_UP_SECONDS)
        before = server.cpu_seconds()
        load.fill_queues(QUEUED)
        filled = server.cpu_seconds()
        load.empty_queues()
        emptied = server.cpu_seconds()
    return {CPU: (filled - before) / QUEUED * 1e6, OUT: (emptied - filled) / QUEUED * 1e6}


EVERYTHING = (b"bench/#",)
SCENARIOS = [
    Scenario(
        "one-topic", "QoS 0, one publisher, one subscriber, one topic", Traffic(), at_least=10
    ),
    Scenario(
        "100-topics",
        "QoS 0, one publisher with 100 topics in turn, one subscriber to bench/#",
        Traffic(topics_each=100, filters=EVERYTHING),
        at_least=4,
        cpu_at_most=0.25,
    ),
    Scenario(
        "100-filters",
        "The same with 100 literal filters",
        Traffic(topics_each=100, filters=tuple(b"bench/000/%03d" % n for n in range(100))),
    ),
    Scenario(
        "100-publishers",
        "QoS 0, 100 publishers, each packet sent alone, one subscriber",
        Traffic(publishers=100, single_packets=True, filters=EVERYTHING, window_bytes=100 << 10),
        at_least=1.5,
        slices=4,
    ),
    Scenario(
        "100-publishers-qos-1",
        "QoS 1, 100 publishers with one message in flight each, one subscriber",
        Traffic(publishers=100, filters=EVERYTHING, qos=1, in_flight_max=1),
        cpu_at_most=1,
        judged=(CPU,),
    ),
    Scenario(
        "100-publishers-properties",
        "QoS 0, 100 publishers, each packet sent alone, with four user properties",
        Traffic(
            publishers=100,
            single_packets=True,
            filters=EVERYTHING,
            window_bytes=100 << 10,
            properties=SENSOR_PROPERTIES,
        ),
        cpu_at_most=0.6,
        judged=(CPU,),
    ),
    Scenario(
        "fan-out",
        "QoS 0, one publisher, 100 subscribers: deliveries",
        Traffic(subscribers=100, window_bytes=100 << 10),
        at_least=2,
    ),
    Scenario(
        "qos-1",
        "QoS 1 on both sides, 100 in flight, one publisher, one subscriber",
        Traffic(qos=1),
        at_least=1.5,
        cpu_at_most=1 / 6,
        slices=4,
    ),
    Scenario(
        "qos-2",
        "QoS 2 on both sides, 100 in flight, one publisher, one subscriber",
        Traffic(qos=2),
        at_least=1.5,
        slices=4,
    ),
    Scenario(
        "properties",
        "MQTT 5, four user properties, QoS 0, one publisher, one subscriber",
        Traffic(properties=SENSOR_PROPERTIES),
        cpu_at_most=0.25,
    ),
    Scenario(
        "properties-qos-1",
        "MQTT 5, four user properties, QoS 1 on both sides, 100 in flight",
        Traffic(properties=SENSOR_PROPERTIES, qos=1),
        cpu_at_most=0.25,
        slices=4,
    ),
    Scenario(
        "properties-fan-out",
        "MQTT 5, four user properties, QoS 0, one publisher, 40 subscribers: deliveries",
        Traffic(properties=SENSOR_PROPERTIES, subscribers=40, window_bytes=100 << 10),
    ),
    Scenario(
        "clause",
        "Four user properties, QoS 0, one subscriber with one where-clause (others: without)",
        Traffic(boxes=Boxes(1, 1), filters=EVERYTHING),
        cpu_at_most=1,
        purpose="clauses",
        for_relay=False,
    ),
    Scenario(
        "boxes",
        "QoS 0, one subscriber with BlueDove's 40,000 boxes (others: without clauses)",
        Traffic(boxes=Boxes(40_000, 1), filters=EVERYTHING),
        cpu_at_most=1,
        purpose="clauses",
        for_relay=False,
    ),
    Scenario(
        "boxes-qos-1",
        "The same at QoS 1, 100 in flight",
        Traffic(boxes=Boxes(40_000, 1), filters=EVERYTHING, qos=1),
        cpu_at_most=1,
        purpose="clauses",
        for_relay=False,
        slices=4,
    ),
    Scenario(
        "boxes-fan-out",
        "QoS 0, BlueDove's 40,000 boxes dealt out to 40 subscribers: deliveries",
        Traffic(
            boxes=Boxes(40_000, 40), filters=EVERYTHING, subscribers=40, window_bytes=100 << 10
        ),
        purpose="clauses",
        for_relay=False,
    ),
    Scenario(
        "json",
        "Four attributes in a JSON payload, QoS 0, one subscriber with 40,000 boxes (others: none)",
        Traffic(boxes=Boxes(40_000, 1), points_in_json=True, filters=EVERYTHING),
        cpu_at_most=1,
        purpose="json",
        for_relay=False,
    ),
    Scenario(
        "json-qos-1",
        "The same at QoS 1, 100 in flight",
        Traffic(boxes=Boxes(40_000, 1), points_in_json=True, filters=EVERYTHING, qos=1),
        cpu_at_most=1,
        purpose="json",
        for_relay=False,
        slices=4,
    ),
    Scenario(
        "latency",
        f"QoS 0, {LATENCY_RATE:,} messages a second whatever happens, one topic",
        Traffic(),
        at_most=1,
        judged=("p50 µs", "p99 µs"),
        measure=latency,
        purpose="latency",
        slices=10,
    ),
    Scenario(
        "never-seen",
        f"QoS 0, every topic new, {HELD_FILTERS:,} wildcard filters of others in place",
        Traffic(unique_topics=True, filters=(b"+/+/+/value",)),
        at_least=3,
        held_filters=HELD_FILTERS,
    ),
    Scenario("1-kB", "QoS 0, one topic, payloads of 1,000 bytes", Traffic(payload_bytes=1_000)),
    Scenario(
        "3.1.1-to-5",
        "QoS 0, one topic, from an MQTT 3.1.1 publisher to an MQTT 5 subscriber",
        Traffic(publisher_version=wire.MQTT_3_1_1),
        for_relay=False,
    ),
    Scenario(
        "persistent",
        "QoS 1 to a persistent session (Mosquitto saves to disk at times and at its end only)",
        Traffic(qos=1, persistent=True),
        cpu_at_most=1,
        purpose="persistence",
    ),
    Scenario(
        "offline-queue",
        "QoS 1 into the queue of a session that is away (and out of it; ours is on disk)",
        Traffic(qos=1, persistent=True),
        cpu_at_most=1,
        judged=(OUT,),
        at_most=1,
        measure=offline_queue,
        purpose="persistence",
        for_relay=False,
    ),
    Scenario(
        "retained",
        f"Retained at QoS 0 on {RETAINED_TOPICS:,} topics, again, and to a new subscriber "
        "(ours is on disk)",
        Traffic(),
        cpu_at_most=3,
        measure=retained,
        purpose="persistence",
        for_relay=False,
    ),
    Scenario(
        "retained-qos-1",
        "The same at QoS 1, 100 in flight",
        Traffic(qos=1),
        cpu_at_most=3,
        measure=retained,
        purpose="persistence",
        for_relay=False,
    ),
    Scenario(
        "subscriptions",
        f"{SUBSCRIPTIONS:,} subscriptions of {HOLDERS} clients to wildcard filters",
        Traffic(),
        cpu_at_most=1.5,
        judged=("subscriptions/s",),
        measure=subscriptions,
        for_relay=False,
    ),
    Scenario(
        "connections",
        "Connections that come and go, 50 at once",
        Traffic(),
        cpu_at_most=1,
        judged=("connections/s",),
        measure=connections,
    ),
]


def draw_filters(count: int) -> list[bytes]:
    """Return wildcard filters of four kinds that share levels with the topics and match none.

    Devices have fewer digits here than in topics, and topics end in `value`.
    """
    rng = np.random.default_rng(8)
    found: dict[bytes, None] = {}
    while len(found) < count:
        site, area, device = rng.integers((SITES, AREAS, 100_000)).tolist()
        kinds = (
            b"site%03d/+/device%05d/#" % (site, device),
            b"+/area%02d/device%05d/value" % (area, device),
            b"site%03d/area%02d/device%05d/+" % (site, area, device),
            b"site%03d/area%02d/+/alarm%05d" % (site, area, device),
        )
        found[kinds[len(found) % len(kinds)]] = None
    return list(found)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Comparison:
    """One scenario: samples of all available contenders, round by round."""

    def __init__(self, scenario: Scenario, options: argparse.Namespace) -> None:
        self.scenario = scenario
        self.rounds: int = options.rounds
        self.seconds: float = options.seconds
        self.urgent: bool = options.urgent
        self.samples: dict[str, list[Sample]] = {}
        self.failures: dict[str, str] = {}

    def run(self, chosen: list[Contender]) -> None:
        scenario = self.scenario
        chosen = [
            one
            for one in chosen
            if (one.is_broker or scenario.for_relay) and one.only_for in (None, scenario.purpose)
        ]
        say(f"{scenario.name}: starting {', '.join(one.name for one in chosen)}")
        with running(chosen, scenario.purpose) as servers:
            holders = {name: self._prepare(server) for name, server in servers.items()}
            for turn in range(self.rounds * scenario.slices):
                # No contender always follows the same one.
                names = list(servers)[:: -1 if turn % 2 else 1]
                for name in names:
                    if name not in self.failures:
                        self._take_turn(turn, servers[name])
            for name, clients in holders.items():
                self._release(servers[name], clients)

    def _prepare(self, server: Server) -> list[Client]:
        try:
            server.wait_until_ready()
            if self.urgent:
                go_first(server.process_id)
            return self._hold(server)
        except (LoadError, wire.WireError, OSError) as error:
            self._fail(server, error)
            return []

    def _fail(self, server: Server, error: Exception) -> None:
        name = server.contender.name
        self.failures[name] = f"{error}{server.describe_end()}"
        self.samples.pop(name, None)
        say(f"  FAILED: {name}: {self.failures[name]}")

    def _hold(self, server: Server) -> list[Client]:
        if not self.scenario.held_filters or not server.contender.is_broker:
            return []
        filters = draw_filters(self.scenario.held_filters)
        say(f"  {server.contender.name}: subscribing to {len(filters):,} filters")
        return hold_subscriptions(server.port, server.contender.version_max, filters, HOLDERS)

    def _release(self, server: Server, holders: list[Client]) -> None:
        """Check that no holder got a message that its filters do not match, and close them."""
        for holder in holders:
            try:
                if server.contender.name not in self.failures:
                    holder.check_silent()
            except (LoadError, OSError) as error:
                self._fail(server, error)
            holder.close()

    def _take_turn(self, turn: int, server: Server) -> None:
        name = server.contender.name
        try:
            measure = self.scenario.measure or throughput
            sample = measure(self.scenario, server, self.seconds / self.scenario.slices)
        except (LoadError, wire.WireError, OSError) as error:
            self._fail(server, error)
            return
        self.samples.setdefault(name, []).append(sample)
        figures = ", ".join(f"{value:,.4g} {figure}" for figure, value in sample.items())
        turns = self.rounds * self.scenario.slices
        say(f"  turn {turn + 1} of {turns}: {name}: {figures}")

    def against_peer(self, name: str, figure: str) -> float | None:
        ours, theirs = self.samples.get(name), self.samples.get(PEER)
        if not ours or not theirs:
            return None
        return ratio([one[figure] for one in ours], [one[figure] for one in theirs])

    def show(self) -> None:
        scenario = self.scenario
        rows = []
        figures = list(next(iter(self.samples.values()), [{}])[0])
        for name, samples in self.samples.items():
            row = [name]
            for figure in figures:
                values = [sample[figure] for sample in samples]
                row.append(number(statistics.median(values)))
                if figure in scenario.judged:
                    row.append(f"{number(min(values))} - {number(max(values))}")
                if figure in (*scenario.judged, CPU, AGAIN, OUT):
                    against = self.against_peer(name, figure)
                    row.append("-" if against is None else f"{against:.2f}")
            rows.append(row)
        head = ["contender"]
        for figure in figures:
            head.append(figure)
            if figure in scenario.judged:
                head.append("range")
            if figure in (*scenario.judged, CPU, AGAIN, OUT):
                head.append(f"/ {PEER}")
        turns = self.rounds * scenario.slices
        table(f"{scenario.name}: {scenario.title}; medians of {turns} turns", head, rows)
        for name in self._as_fast_as_generator():
            print(f"note: {name} is about as fast as the generator, and may be faster than this")
        for name, failure in self.failures.items():
            print(f"FAILED: {name}: {failure}")

    def _as_fast_as_generator(self) -> list[str]:
        """Return the contenders whose rate is close to the generator's own limit."""
        if RATE not in self.scenario.judged:
            return []
        rates = {
            name: statistics.median(sample[RATE] for sample in samples)
            for name, samples in self.samples.items()
        }
        ceiling = rates.pop(GENERATOR, None)
        return [name for name, rate in rates.items() if ceiling and rate > 0.7 * ceiling]

    def judge(self) -> None:
        scenario = self.scenario
        limit = scenario.at_least if scenario.at_most is None else scenario.at_most
        if limit is not None:
            for figure in scenario.judged:
                self._judge(figure, limit, at_most=scenario.at_most is not None)
        if scenario.cpu_at_most is not None:
            self._judge(CPU, scenario.cpu_at_most, at_most=True)

    def _judge(self, figure: str, limit: float, *, at_most: bool) -> None:
        name = self.scenario.name
        against = self.against_peer(OURS, figure)
        if against is None:
            print(f"no verdict on {name}: it needs {OURS} and {PEER} in the same run")
            return
        verdict(f"{name}: {figure}, {OURS} / {PEER}", against, limit, at_most=at_most)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def arguments(names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/broker.py", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each (5)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, metavar="S", help="measured in each turn (1)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[scenario.name for scenario in SCENARIOS],
        metavar="SCENARIO",
        help=f"may be given several times: {', '.join(one.name for one in SCENARIOS)}",
    )
    parser.add_argument(
        "--contender",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"may be given several times: {', '.join(names)}",
    )
    parser.add_argument(
        "--urgent",
        action="store_true",
        help="brokers and generator go before all other work on this machine (for root)",
    )
    chosen = parser.parse_args()
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds have to be more than 0")
    return chosen


def main() -> None:
    if not hasattr(select, "epoll"):
        sys.exit("benchmarks/broker.py: the load generator needs Linux (epoll and /proc)")
    everybody = contenders()
    options = arguments([one.name for one in everybody])
    # Then servers are ended as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [one for one in everybody if not options.contender or one.name in options.contender]
    for contender in wanted:
        if contender.missing:
            print(f"{contender.name} takes no part: {contender.missing}")
    chosen = [one for one in wanted if one.missing is None]
    if not chosen:
        sys.exit("benchmarks/broker.py: there is nothing to measure")
    check_the_checks()
    take_processor()
    if options.urgent:
        go_first(os.getpid())
    failed = False
    for scenario in SCENARIOS:
        if options.only and scenario.name not in options.only:
            continue
        comparison = Comparison(scenario, options)
        comparison.run(chosen)
        comparison.show()
        comparison.judge()
        failed = failed or any(name in (OURS, PEER) for name in comparison.failures)
    if failed:
        sys.exit(1)
    finish()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
