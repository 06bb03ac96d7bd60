"""Makes and reads rows of an archive for tests."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dovetail.archive.files import files_of
from dovetail.broker.archive_queue import Rows
from dovetail.broker.store.journal import ArchiveRow
from dovetail.codec.packets import Ack, PacketType, Publish
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS

BEGIN = 1_794_848_400_000_000
"""2026-11-16 17:00 UTC in microseconds."""

HOUR = 3_600_000_000


SETTINGS = """
name = "one"
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[archive]
topics = ["a/#"]
folder = "archive"
delay_seconds = 0.1
"""
"""The settings of a broker that archives topics below a/."""


def row(
    time: int = BEGIN, topic: bytes = b"a/1", payload: bytes = b"", properties: bytes = b""
) -> ArchiveRow:
    return ArchiveRow("one", time, topic, payload, 1, False, properties)


def rows_of(sequences: Iterable[int], time: int = BEGIN) -> Rows:
    return [(sequence, row(time, payload=b"%d" % sequence)) for sequence in sequences]


def read(folder: Path) -> list[dict[str, Any]]:
    """Return every row that counts, in the order of files."""
    found: list[dict[str, Any]] = []
    for file in files_of(folder):
        found += pq.ParquetFile(file).read().to_pylist()
    return found


def sequences(folder: Path) -> list[int]:
    return [found["sequence"] for found in read(folder)]


WINDOW = 50


class Publisher(threading.Thread):
    """Publishes numbers, and records which are acknowledged, until the broker is gone.

    At QoS 1 each is sent once. At QoS 2 its session continues, and it sends again what was not
    acknowledged.
    """

    def __init__(
        self,
        port: int,
        qos: int,
        before: "Publisher | None" = None,
        *,
        messages_max: int | None = None,
    ) -> None:
        """Continue the session of `before`, the same client on an earlier connection."""
        super().__init__(daemon=True)
        self.acknowledged: set[bytes] = set()
        self._qos = qos
        self._number = 0
        self._under_way: dict[int, Publish] = {}
        self._ending = threading.Event()
        self._client = WireClient(port, f"publisher-{qos}", persistent=qos == 2)
        if before is not None:
            self._number = before._number
            self.acknowledged = before.acknowledged
            if qos == 2:
                self._under_way = before._under_way
        self._last = None if messages_max is None else self._number + messages_max
        for packet in self._under_way.values():
            packet.duplicate = True
            self._client.send(packet)
        self.start()

    def run(self) -> None:
        with self._client as client, suppress(ConnectionError):
            while self._under_way or not self._ending.is_set():
                while len(self._under_way) < WINDOW and not self._ending.is_set():
                    client.send(self._next())
                answer = client.receive()
                if answer is None:
                    return
                assert isinstance(answer, Ack), answer
                self._take(answer)

    def _next(self) -> Publish:
        self._number += 1
        if self._number == self._last:
            self._ending.set()
        packet_id = self._number % 60_000 + 1
        payload = f"{self._qos} {self._number}".encode()
        packet = Publish(f"a/{self._number % 7}".encode(), payload, self._qos, packet_id=packet_id)
        self._under_way[packet_id] = packet
        return packet

    def _take(self, answer: Ack) -> None:
        if answer.type == PacketType.PUBCOMP:
            return
        assert answer.reason < 0x80, answer
        packet = self._under_way.pop(answer.packet_id)
        self.acknowledged.add(packet.payload)
        if self._qos == 2:
            self._client.send(Ack(PacketType.PUBREL, answer.packet_id))

    def end(self) -> None:
        self._ending.set()
        self.join(WAIT_SECONDS)
        assert not self.is_alive()
