"""Counters and gauges as Prometheus reads them.

A metric is named after its field: `dovetail_<field>_total` for what is counted, `dovetail_<field>`
for how things stand. Nothing is kept here: each scrape reads the numbers as they are.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dovetail import __version__
from dovetail.stats import Counters, Gauges

Stats = Callable[[], tuple[Counters, Gauges]]

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
    "publishes_forwarded": "Publications sent or owed to other brokers, once for each of them.",
    "publishes_from_peers": "Publications that came from other brokers.",
    "publishes_in_vain": "Publications from other brokers that nobody here had subscribed to.",
    "peer_messages_dropped": "Publications that another broker did not get: QoS 0 while it was "
    "down or did not keep up, others beyond what may be owed to it.",
    "clients_connected": "Clients that are connected.",
    "sessions": "Sessions, of clients connected or not.",
    "subscriptions": "Subscriptions of all sessions.",
    "retained_messages": "Topics that have a retained message.",
    "retained_bytes": "Bytes of the retained messages.",
    "queued_messages": "Messages that wait in sessions, sent and not acknowledged ones among them.",
    "queued_bytes": "Bytes of the messages that wait in sessions.",
    "store_failing": "1 while the data folder does not take what has to be written, else 0.",
}
"""What each field of `Counters` and `Gauges` means. A test holds it complete."""


class StatsCollector(Collector):
    """Asks `stats` at each scrape."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def describe(self) -> list[Metric]:
        """Nothing: a registry that asks takes our names as they come."""
        return []

    def collect(self) -> Iterator[Metric]:
        counters, gauges = self._stats()
        yield InfoMetricFamily(
            "dovetail_build", "The version that runs.", value={"version": __version__}
        )
        for name, value in counters.as_dict().items():
            yield CounterMetricFamily(f"dovetail_{name}", HELP[name], value=value)
        for name, value in gauges.as_dict().items():
            yield GaugeMetricFamily(f"dovetail_{name}", HELP[name], value=value)


def make_registry(stats: Stats) -> CollectorRegistry:
    """Our numbers, and those of the process: memory, processor time, open files, collections."""
    registry = CollectorRegistry()
    registry.register(StatsCollector(stats))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
