"""Compares planned borders with even ones, with real brokers and matchers on this machine.

There is one cluster for each workload. Its matchers get even borders, then those of a plan, both as
`dovetail plan --apply` does it; in both cases the same publications are counted. All boxes are
where-clauses of one client at the second broker, and publications, at QoS 1, come to the first.
Publications go on while matchers move to their planned places. At the end each publication must
have been delivered once if it is in some box, and not at all if it is in none.

The figures of a matcher are its CPU time, the points it was asked about and the boxes that it
holds. They are also valid on machines with fewer cores than processes. Publications a second are
not shown, because they would depend on that. A question costs a matcher more than a point does, and
with even borders there may be fewer questions, with more points each. So the gain is shown by
points, too.
"""

import io
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from _attributes_process import (
    NAMES,
    PATIENCE_SECONDS,
    Client,
    Service,
    progress,
    service,
    subscribe,
)
from _measure import table, verdict
from _ports import reserve
from dovetail import codec
from dovetail.api.http_client import fetch
from dovetail.api.reports import ClusterReport, MatcherReport, PlanRequest, SpacePlaces
from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.partition import Bounds, Tokens
from dovetail.attributes.scheme import Scheme
from dovetail.attributes.space import Dimension, Space
from dovetail.codec.packets import MQTT_5, Ack, PacketType, Publish
from dovetail.codec.properties import forwardable_properties
from dovetail.errors import DovetailError
from dovetail.inspect.plan_move import apply
from dovetail.matcher.layout import layout_of
from dovetail.pipeline.plan.cost import measure
from dovetail.pipeline.plan.load import Floats, SpaceSample
from dovetail.pipeline.plan.placement import even_places, plan_places
from dovetail.sim import workload
from dovetail.sim.systems import MatcherTestbed

BROKERS = 2
SAMPLE_POINTS = 10_000
WARM_UP = 2_000
CHUNK = 500
WINDOW = 500
"""Publications in flight: a broker asks about all that it reads at once in one question."""
TOPIC = b"bench/point"
PACKET_IDS = 65_000
LAST = -1
"""The number of the last publication."""


class Traffic:
    """Numbered publications in chunks, and their deliveries."""

    def __init__(
        self, port: int, testbed: MatcherTestbed, lows: Floats, highs: Floats, seed: int
    ) -> None:
        self._subscriber = Client(port + BROKERS - 1, "subscriber")
        subscribe(self._subscriber, lows, highs, qos=1)
        self._publisher = Client(port, "publisher")
        self._testbed, self._seeds = testbed, count(seed)
        self._middle = [
            (low + high) / 2 if np.isfinite(low) else 0.0
            for low, high in zip(lows[0].tolist(), highs[0].tolist(), strict=True)
        ]
        self.points: list[Floats] = []
        self.published = 0
        self.delivered: Counter[int] = Counter()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def publish(self, publications: int) -> None:
        """Publish more, and wait until all are acknowledged."""
        points = workload.points(publications, next(self._seeds), skewed=self._testbed.skewed)
        self.points.append(np.round(points, 3))
        under_way = 0
        for first in range(0, publications, CHUNK):
            chunk = self.points[-1][first : first + CHUNK].tolist()
            packets = [_packet(self.published + place, one) for place, one in enumerate(chunk)]
            self._publisher.send(b"".join(packets))
            self.published += len(chunk)
            under_way += len(chunk)
            while under_way > WINDOW:
                under_way -= len(self._publisher.take(1))
        while under_way:
            under_way -= len(self._publisher.take(1))

    def publish_until(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            self.publish(CHUNK)

    def end(self) -> None:
        """Wait until all earlier publications are delivered: they come in order."""
        self._publisher.send(_packet(LAST, self._middle))
        self._reader.join()
        for client in (self._publisher, self._subscriber):
            client.close()

    def _read(self) -> None:
        while True:
            acks = []
            for kind, body in self._subscriber.take(1):
                packet = codec.decode(MQTT_5, kind, body)
                assert isinstance(packet, Publish), packet
                self.delivered[int(packet.payload)] += 1
                acks.append(codec.encode(MQTT_5, Ack(PacketType.PUBACK, packet.packet_id)))
            self._subscriber.send(b"".join(acks))
            if self.delivered[LAST]:
                return


def _packet(number: int, point: list[float]) -> bytes:
    values = tuple((name, f"{value:.3f}") for name, value in zip(NAMES, point, strict=True))
    return codec.encode(
        MQTT_5,
        Publish(
            TOPIC,
            str(number).encode(),
            1,
            packet_id=number % PACKET_IDS + 1,
            properties=forwardable_properties(user=values),
        ),
    )


class MatcherLoad(NamedTuple):
    """The share of one matcher in the publications of a round."""

    cpu_seconds: float
    points: int
    boxes: int


class Row(NamedTuple):
    workload: str
    borders: str
    matchers: list[MatcherLoad]
    publications: int

    @property
    def busiest_seconds(self) -> float:
        return max(one.cpu_seconds for one in self.matchers)

    @property
    def busiest_points(self) -> int:
        return max(one.points for one in self.matchers)

    def cells(self, even: "Row") -> list[str]:
        cpu = [one.cpu_seconds for one in self.matchers]
        points = [one.points for one in self.matchers]
        return [
            self.workload,
            self.borders,
            f"{max(cpu) / sum(cpu):.0%}",
            f"{max(cpu) / self.publications * 1e6:.1f}",
            f"{sum(cpu) / self.publications * 1e6:.1f}",
            " ".join(f"{one / self.publications:.2f}" for one in points),
            " ".join(f"{one.boxes:,}" for one in self.matchers),
            f"{even.busiest_seconds / self.busiest_seconds:.2f}",
            f"{even.busiest_points / self.busiest_points:.2f}",
        ]


def _cpu_seconds(pid: int) -> float:
    """Return CPU seconds more exactly than in ticks, as tenths of a second matter."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e9


class Cluster:
    """A running cluster and its reports."""

    def __init__(self, running: Service) -> None:
        self._running = running
        self.url = running.url()

    def matchers(self) -> dict[str, MatcherReport]:
        report = fetch(self.url, "/cluster", ClusterReport)
        return {
            entry.name: entry.report.matcher
            for entry in sorted(report.nodes, key=lambda one: one.name)
            if entry.report is not None and entry.report.matcher is not None
        }

    def cpu_seconds(self) -> list[float]:
        """Return the CPU seconds of matchers, in the order of their names."""
        # Brokers are started before.
        return [_cpu_seconds(pid) for pid in self._running.children()[BROKERS:]]

    def move_soon(self, space: Space, places: list[Tokens]) -> None:
        """Move when all serve and the broker knows it: until then the broker refuses."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.move(space, places)
            except DovetailError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def move(self, space: Space, places: list[Tokens]) -> float:
        """Move matchers to these places; return the seconds until all are there."""
        order = PlanRequest([SpacePlaces(space.name, layout_of(space).id, [*map(list, places)])])
        began = time.monotonic()
        with redirect_stdout(io.StringIO()):
            apply(self.url, order)
        return time.monotonic() - began


def compare_borders(
    name: str, testbed: MatcherTestbed, publications: int, seed: int
) -> tuple[list[Row], list[str]]:
    bounds = testbed.layout(Scheme.MPARTITION).bounds
    dimensions = [Dimension(one, low, high) for one, (low, high) in zip(NAMES, bounds, strict=True)]
    space = Space("bench", "bench/#", tuple(dimensions))
    lows, highs = (np.round(one, 3) for one in testbed.drawn_boxes(seed))
    earlier = workload.points(SAMPLE_POINTS, seed + 1_000, skewed=testbed.skewed)
    sample = SpaceSample(layout_of(space), earlier, lows, highs)
    planned = plan_places(sample, testbed.matchers, measure(sample).costs).places
    even = even_places(sample, testbed.matchers)
    port = reserve(BROKERS)
    arguments = ("--brokers", BROKERS, "--matchers", testbed.matchers)
    with service("up", "--port", port, "--data", "data", *arguments, bounds=bounds) as running:
        progress(f"{name}: {testbed.boxes:,} boxes")
        cluster = Cluster(running)
        traffic = Traffic(port, testbed, lows, highs, seed)
        cluster.move_soon(space, even)
        rows = [measure_borders(name, "even", cluster, traffic, publications)]
        is_over = threading.Event()
        publisher = threading.Thread(target=traffic.publish_until, args=(is_over,), daemon=True)
        before = traffic.published
        publisher.start()
        seconds = cluster.move(space, planned)
        is_over.set()
        publisher.join()
        meanwhile = traffic.published - before
        rows.append(measure_borders(name, "planned", cluster, traffic, publications))
        traffic.end()
    missed, doubled = faults(traffic, lows, highs, bounds)
    moved = "the same" if planned == even else f"{seconds:.1f} s"
    return rows, [name, moved, f"{meanwhile:,}", f"{missed}", f"{doubled}"]


def measure_borders(
    name: str, borders: str, cluster: Cluster, traffic: Traffic, publications: int
) -> Row:
    traffic.publish(WARM_UP)
    before, cpu_before = cluster.matchers(), cluster.cpu_seconds()
    traffic.publish(publications)
    after, cpu_after = cluster.matchers(), cluster.cpu_seconds()
    shares = [
        MatcherLoad(
            seconds - seconds_before,
            after[one].points_answered - before[one].points_answered,
            after[one].boxes,
        )
        for one, seconds, seconds_before in zip(after, cpu_after, cpu_before, strict=True)
    ]
    return Row(name, borders, shares, publications)


def faults(
    traffic: Traffic, lows: Floats, highs: Floats, bounds: Sequence[Bounds]
) -> tuple[int, int]:
    """Return the publications that were missed, and those that came twice or match no box."""
    index = BoxIndex([one.low for one in bounds], [one.high for one in bounds])
    index.insert(lows, highs)
    ends, _ = index.match(np.concatenate(traffic.points))
    wanted = np.diff(ends) > 0
    came = np.array([traffic.delivered[number] for number in range(traffic.published)])
    return int((came < wanted).sum()), int((came > wanted).sum())


def live(workloads: dict[str, MatcherTestbed], publications: int, seed: int) -> None:
    rows: list[Row] = []
    moves = []
    for name, testbed in workloads.items():
        found, move = compare_borders(name, testbed, publications, seed)
        rows += found
        moves.append(move)
    matchers = len(rows[0].matchers)
    pairs = [*zip(rows[::2], rows[1::2], strict=True)]
    table(
        f"{matchers} live matchers, {publications:,} publications in each place",
        [
            "workload",
            "borders",
            "busiest's share of CPU",
            "its CPU µs a publication",
            "all matchers'",
            "points a publication, by matcher",
            "boxes held",
            "gain by CPU",
            "gain by points",
        ],
        [cells for even, planned in pairs for cells in (even.cells(even), planned.cells(even))],
    )
    table(
        "Moving from even to planned places while publications flow",
        ["workload", "took", "publications meanwhile", "missed", "doubled"],
        moves,
    )
    for name, *_, missed, doubled in moves:
        verdict(f"{name}: missed", float(missed), 0, at_most=True)
        verdict(f"{name}: doubled", float(doubled), 0, at_most=True)
