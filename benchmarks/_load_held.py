"""Subscriptions that idle clients hold, and probes that show whether the broker knows all of them.

For a sample of the filters, a publisher sends a message on a topic that the filter matches. Each
holder of a matching filter has to get it, and no other client.
"""

from collections.abc import Iterator

import _load_wire as wire
from _load import FILTERS_AT_ONCE, Client, LoadError

PROBES = 500
_PAYLOAD = b"probe"


class HeldSubscriptions:
    """Clients that share these filters among them."""

    def __init__(self, port: int, version: int, filters: list[bytes], clients: int) -> None:
        self._port = port
        self._version = version
        self._filters = filters
        self._holders = [_Holder(port, f"holder-{number}", version) for number in range(clients)]

    def subscribe(self) -> None:
        for number, holder in enumerate(self._holders):
            own = self._filters[number :: len(self._holders)]
            for first in range(0, len(own), FILTERS_AT_ONCE):
                holder.subscribe(own[first : first + FILTERS_AT_ONCE], 0)

    def check(self) -> None:
        """Check that probes reach the holders of matching filters, and nobody else."""
        holder_of = {one: at % len(self._holders) for at, one in enumerate(self._filters)}
        topics = [
            probe_topic(one) for one in self._filters[:: max(len(self._filters) // PROBES, 1)]
        ]
        expected: list[set[bytes]] = [set() for _ in self._holders]
        for topic in topics:
            for matching in filters_for(topic):
                if matching in holder_of:
                    expected[holder_of[matching]].add(topic)
        publisher = Client(self._port, "prober", self._version)
        publisher.socket.sendall(
            b"".join(wire.publish(topic, _PAYLOAD, 0, self._version)[0] for topic in topics)
        )
        publisher.check_silent()
        for holder, wanted in zip(self._holders, expected, strict=True):
            if (got := holder.topics_received()) != wanted:
                raise LoadError(
                    f"{holder.client_id} misses {len(wanted - got):,} of {len(wanted):,} probes, "
                    f"and got {len(got - wanted):,} that it did not subscribe to"
                )

    def close(self) -> None:
        for holder in self._holders:
            holder.close()


class _Holder(Client):
    def topics_received(self) -> set[bytes]:
        """Return the topics of all messages that have come. Overlapping filters may repeat one."""
        found = set()
        self.socket.sendall(wire.PINGREQ_PACKET)
        while True:
            kind, body = self.take()
            if kind == wire.PINGRESP:
                return found
            size = int.from_bytes(body[:2])
            if kind != wire.PUBLISH or not body.endswith(_PAYLOAD):
                raise LoadError(f"{self.client_id} got a packet of type {kind}: {body!r}")
            found.add(body[2 : 2 + size])


def probe_topic(topic_filter: bytes) -> bytes:
    """Return a topic that this filter matches."""
    return topic_filter.replace(b"+", b"anything").replace(b"#", b"below")


def filters_for(topic: bytes) -> Iterator[bytes]:
    """Yield the filters of `draw_filters` that could match a topic of four levels."""
    site, area, device, last = topic.split(b"/")
    yield b"%s/+/%s/#" % (site, device)
    yield b"+/%s/%s/%s" % (area, device, last)
    yield b"%s/%s/%s/+" % (site, area, device)
    yield b"%s/%s/+/%s" % (site, area, last)
