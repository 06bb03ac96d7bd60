"""Counters and gauges of a broker for Prometheus.

A metric is named after its field: `dovetail_<field>_total` for a counter, `dovetail_<field>` for a
gauge, `dovetail_peer_...` with the label `peer` for another broker. This module stores nothing:
each scrape reads the current numbers.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dovetail import __version__
from dovetail.api.reports import PeerReport, SketchReport
from dovetail.web.views import Views

HELP: Mapping[str, str] = {
    "bytes_received": "Bytes of MQTT packets from clients.",
    "bytes_sent": "Bytes of MQTT packets to clients.",
    "packets_received": "MQTT packets of any type from clients.",
    "packets_sent": "MQTT packets of any type to clients.",
    "publishes_received": "PUBLISH packets from clients.",
    "publishes_sent": "PUBLISH packets to clients.",
    "publishes_dropped": "Deliveries that were not made: a full queue, a receiver of QoS 0 that is "
    "offline, a packet larger than its receiver takes.",
    "publishes_expired": "Deliveries that were not made because the message had expired.",
    "publisher_waits": "Times that a publisher waited because its only receivers were behind.",
    "publisher_wait_milliseconds": "Milliseconds that publishers have waited in all.",
    "publisher_waits_expired": "Waits that lasted too long, so that messages at QoS 0 were dropped "
    "after them.",
    "publish_bytes_received": "Bytes of payload in PUBLISH packets from clients.",
    "publish_bytes_sent": "Bytes of payload in PUBLISH packets to clients.",
    "connections_accepted": "CONNECT packets that were answered with success.",
    "connections_refused": "CONNECT packets that were answered with a reason code of failure.",
    "connections_lost": "Connections that ended without a DISCONNECT of the client.",
    "protocol_errors": "Packets that broke the rules of MQTT.",
    "routes_computed": "Topics whose receivers were not in the cache of routes.",
    "commits": "Transactions of the store.",
    "commit_failures": "Transactions that the store could not make.",
    "sessions_expired": "Sessions that were ended because their client did not come back in time.",
    "publishes_forwarded": "Publications sent to other brokers or spooled, once for each of them.",
    "publishes_from_peers": "Publications that came from other brokers.",
    "publishes_in_vain": "Publications from other brokers that nobody here had subscribed to.",
    "peer_messages_dropped": "Publications that another broker did not get: QoS 0 while it was "
    "down or too slow, others beyond the limits of its spool.",
    "group_messages_passed_on": "Publications for a member of a shared subscription that had left, "
    "given to a member at another broker.",
    "attributes_unreadable": "Publications whose attributes could not be read, so that no "
    "where-clause held for them.",
    "archive_rows": "Publications that are in files of the archive.",
    "archive_files": "Files written to the archive.",
    "archive_rows_dropped": "Publications not archived, because too many waited "
    "(archive.buffer_bytes_max).",
    "archive_failures": "Failed attempts to write a file of the archive.",
    "engine_rows": "Publications archived so that an engine evaluates the where-clauses.",
    "engine_deliveries": "Deliveries to sessions and groups that an engine found.",
    "engine_repeats": "Publications that an engine sent again, and that were ignored.",
    "clients_connected": "Clients that are connected.",
    "publishers_waiting": "Publishers that wait because their only receivers are behind.",
    "sessions": "Sessions, of clients connected or not.",
    "subscriptions": "Subscriptions of all sessions.",
    "retained_messages": "Topics that have a retained message.",
    "retained_bytes": "Bytes of the retained messages.",
    "queued_messages": "Messages that wait in sessions, including those in flight.",
    "queued_bytes": "Bytes of the messages that wait in sessions.",
    "store_failing": "1 while writes to the data folder fail, else 0.",
    "archive_rows_waiting": "Publications that are in no file of the archive yet.",
    "archive_bytes_waiting": "Bytes of these, as archive.buffer_bytes_max counts them.",
    "archive_failing": "1 while writes to the folder of the archive fail, else 0.",
    "engine_rows_waiting": "Publications that no engine has processed yet.",
    "engine_wait_seconds": "Seconds that the oldest of these has waited.",
    "engine_silent": "1 while publications wait and no engine asks for them, else 0.",
}
"""The help text of each field of `Counters` and `Gauges`. A test checks that none is missing."""


SKETCH_GAUGES: Mapping[str, tuple[str, Callable[[SketchReport], float]]] = {
    "sketch_bits": ("Bits of this broker's sketch.", lambda sketch: sketch.bits),
    "sketch_elements": ("Elements in this broker's sketch.", lambda sketch: sketch.elements),
    "sketch_fill": ("The share of its bits that are set.", lambda sketch: sketch.fill),
    "sketch_false_positive_rate": (
        "The rate of false positives of one look-up in it.",
        lambda sketch: sketch.false_positive_rate,
    ),
}
"""Gauges of the own sketch of a broker in a cluster."""

PEER_GAUGES: Mapping[str, tuple[str, Callable[[PeerReport], float]]] = {
    "peer_alive": (
        "1 while another broker counts as alive here, else 0.",
        lambda peer: peer.state in ("alive", "suspect"),
    ),
    "peer_connected": (
        "1 while there is a connection to another broker, else 0.",
        lambda peer: peer.is_connected,
    ),
    "peer_sketch_known": (
        "1 while another broker's sketch is known here; else 0, and it gets every publication.",
        lambda peer: peer.is_sketch_known,
    ),
    "peer_sketch_bits": (
        "Bits of another broker's sketch as it is known here; 0 while it is not.",
        lambda peer: peer.sketch_bits,
    ),
    "peer_sketch_fill": (
        "The share of these bits that are set; of a large sketch, among its first 1,048,576.",
        lambda peer: peer.sketch_fill,
    ),
    "peer_owed_messages": (
        "Publications for another broker that it has not acknowledged.",
        lambda peer: peer.owed_messages,
    ),
    "peer_owed_bytes": ("Bytes of these publications.", lambda peer: peer.owed_bytes),
}
"""Gauges of each other broker."""

_PEER_FORWARDED = "Publications sent to another broker or spooled for it."


class BrokerCollector(Collector):
    """Reads the current values at each scrape."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def describe(self) -> list[Metric]:
        """Return nothing: the registry then accepts the names that `collect` yields."""
        return []

    def collect(self) -> Iterator[Metric]:
        counters, gauges = self._views.stats()
        yield build_info()
        for name, value in counters.as_dict().items():
            yield CounterMetricFamily(f"dovetail_{name}", HELP[name], value=value)
        for name, value in gauges.as_dict().items():
            yield GaugeMetricFamily(f"dovetail_{name}", HELP[name], value=value)
        sketch = self._views.sketch()
        if sketch is not None:
            for name, (text, read) in SKETCH_GAUGES.items():
                yield GaugeMetricFamily(f"dovetail_{name}", text, value=read(sketch))
            yield from self._peer_metrics()

    def _peer_metrics(self) -> Iterator[Metric]:
        peers = self._views.peers()
        for name, (text, read) in PEER_GAUGES.items():
            gauge = GaugeMetricFamily(f"dovetail_{name}", text, labels=["peer"])
            for peer in peers:
                gauge.add_metric([peer.name], read(peer))
            yield gauge
        forwarded: Any = CounterMetricFamily(
            "dovetail_peer_publishes_forwarded", _PEER_FORWARDED, labels=["peer"]
        )
        for peer in peers:
            forwarded.add_metric([peer.name], peer.forwarded)
        yield forwarded


def build_info() -> Metric:
    return InfoMetricFamily(
        "dovetail_build", "The version that runs.", value={"version": __version__}
    )


def make_registry(views: Views) -> CollectorRegistry:
    return registry_of(BrokerCollector(views))


def registry_of(collector: Collector) -> CollectorRegistry:
    """Return a registry with our metrics and the process's: memory, CPU, files, collections."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
