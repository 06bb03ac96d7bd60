"""Joins publications that many clients sent at the same time into runs. Pure.

A client that publishes now and then fills a read with a single packet. With many such clients each
turn of the loop has many of these reads. A kernel scans all of them at once, and those on one route
become one run (run_dispatch.py): one lookup of attributes, one match with all boxes, one write for
each receiver. Each client still gets its own acknowledgements.

A read is joined if it is exactly one short run, at QoS 0 or 1, on a route that does not depend on
who has published. Each client has one read in a turn, so its publications stay in order.

Joined publications wait for nobody. So a joined run is a small part of a receiver's backlog, and
once a client is behind, the rest of the turn is not joined (back_pressure.py).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dovetail.broker.back_pressure import BackPressure
from dovetail.broker.limits import JOINED_BACKLOG_SHARE, JOINED_PACKETS_MAX, JOINED_READS_MIN
from dovetail.broker.packet_reader import PacketReader
from dovetail.broker.route import Route
from dovetail.broker.route_cache import RouteCache
from dovetail.broker.run_dispatch import RunDispatch, RunOutcome
from dovetail.broker.shared_state import SharedState
from dovetail.codec.kernels.scan import BODY, COUNT, KIND, PROPERTIES, QOS_0, TOPIC_END, scan_reads
from dovetail.codec.packets import MQTT_5
from dovetail.codec.run import PUBACK_BYTES, Flags, Run, first_packets, pubacks_of, rest_of

ReaderBytes = tuple[PacketReader, bytes]
"""A connection, and what was read from it in this turn."""

_COLUMNS = [BODY, COUNT, TOPIC_END, KIND, PROPERTIES]


class _Part(NamedTuple):
    """What one client contributes to a run."""

    reader: PacketReader
    data: bytes
    packets: int
    has_properties: int


class JoinedReads:
    """Publishes what many clients sent in one turn."""

    def __init__(
        self,
        shared: SharedState,
        cache: RouteCache,
        runs: RunDispatch,
        pressure: BackPressure,
        *,
        asks_matchers: bool,
    ) -> None:
        self._shared = shared
        self._cache = cache
        self._runs = runs
        self._pressure = pressure
        self._asks_matchers = asks_matchers
        self._bytes_max = shared.limits.backlog_bytes_max // JOINED_BACKLOG_SHARE

    def take(self, reads: Sequence[ReaderBytes]) -> list[ReaderBytes]:
        """Publish the reads that can be joined, and return the others, or what is left of them."""
        if len(reads) < JOINED_READS_MIN or self._pressure.behind:
            return list(reads)  # if a client is behind, publishers may have to wait for it
        rest = []
        joined: dict[tuple[Route, int, int], list[_Part]] = {}
        routes = self._cache.young
        now = self._shared.now
        whole = b"".join([data for _, data in reads])
        for read, (body, count, topic_end, kind, properties) in zip(
            reads, self._scan(reads, whole), strict=True
        ):
            reader, data = read
            route = routes.get(data[body + 2 : topic_end]) if count else None
            if route is None or not self._joins(route, reader, count, kind, properties):
                rest.append(read)
                continue
            link = reader.link
            link.seen_at = now
            key = (route, link.version, kind)
            part = _Part(reader, data, count, properties)
            if key in joined:
                joined[key].append(part)
            else:
                joined[key] = [part]
        for (route, version, kind), parts in joined.items():
            for some in (parts,) if len(whole) <= self._bytes_max else self._in_pieces(parts):
                if self._pressure.behind:
                    rest += [(part.reader, part.data) for part in some]
                else:
                    rest += self._publish(route, version, kind, some)
        return rest

    def _in_pieces(self, parts: list[_Part]) -> Iterator[list[_Part]]:
        """Yield parts that have few bytes together, or are alone."""
        some: list[_Part] = []
        size = 0
        for part in parts:
            size += len(part.data)
            if some and size > self._bytes_max:
                yield some
                some, size = [], len(part.data)
            some.append(part)
        yield some

    def _scan(self, reads: Sequence[ReaderBytes], whole: bytes) -> list[list[int]]:
        """Return the columns of the run that each read is. COUNT is 0 if it is none.

        `whole` has the bytes of all reads.
        """
        runs = np.zeros((len(reads), 7), np.int64)
        scan_reads(
            np.frombuffer(whole, np.uint8),
            np.array([len(data) for _, data in reads]).cumsum(),
            np.array([reader.joinable_version for reader, _ in reads]),
            self._shared.limits.packet_bytes_max,
            JOINED_PACKETS_MAX,
            runs,
        )
        columns: list[list[int]] = runs[:, _COLUMNS].tolist()
        return columns

    def _joins(
        self, route: Route, reader: PacketReader, packets: int, kind: int, properties: int
    ) -> bool:
        if not route.joins_publishers:
            return False
        if route.space is not None:
            if self._asks_matchers:
                return False
            session = reader.link.session
            assert session is not None
            if route.is_subscriber(session.client_id):
                return False
        # A single QoS 1 packet without properties costs less alone (`Intake`): the acknowledgements
        # of a joined run have to be dealt out.
        is_inspected = properties > 0 or route.reads_payload
        return kind == QOS_0 or (is_inspected and reader.has_room_for(packets))

    def _publish(
        self, route: Route, version: int, kind: int, parts: list[_Part]
    ) -> list[ReaderBytes]:
        """Publish parts as one run. Return what has to be looked at one by one."""
        data = b"".join([part.data for part in parts])
        packets = sum([part.packets for part in parts])
        has_properties = max([part.has_properties for part in parts])
        run = Run(data, version, kind, packets, has_properties)
        place = 0
        while run.packets:
            outcome = self._runs.publish_joined(route, run)
            if outcome is None:
                return [(part.reader, part.data) for part in parts[place:]]
            rest = rest_of(run, outcome.run)
            if run.qos or rest.packets:
                place = _acknowledge(outcome, parts, place)
            run = rest
        return []


def _acknowledge(outcome: RunOutcome, parts: list[_Part], place: int) -> int:
    """Acknowledge to each client what was published of its part, from the one at `place` on.

    Return the place of the first part that was not published. If only its begin was, it is cut.
    """
    run, matched = outcome.run, outcome.matched
    if run.qos:
        pubacks = pubacks_of(run, matched)
        ends = _puback_ends(run, matched)
    row = 0
    while row < run.packets:
        part = parts[place]
        packets = min(part.packets, run.packets - row)
        published = run._replace(data=part.data, packets=part.packets)
        if packets < part.packets:
            whole, published = published, first_packets(published, packets)
            rest = rest_of(whole, published)
            parts[place] = part._replace(data=rest.data, packets=rest.packets)
        else:
            place += 1
        if run.qos:
            part.reader.acknowledge_run(
                outcome._replace(run=published),
                pubacks[ends[row] : ends[row + packets]],
            )
        row += packets
    return place


def _puback_ends(run: Run, matched: Flags | None) -> list[int]:
    """Return where the PUBACKs of a run begin, and behind them the end of the last."""
    sizes = np.full(run.packets + 1, PUBACK_BYTES)
    sizes[0] = 0
    if matched is not None and run.version == MQTT_5:
        sizes[1:] += matched == 0  # with the reason: nobody has subscribed
    ends: list[int] = sizes.cumsum().tolist()
    return ends
