"""Publications that go to the archive: rows that wait, on disk, until they are in a file. Pure.

    publication -> a row in the open batch -> (disk) -> a file of the archive -> the row goes

Rules:

- A row is written at the broker that a client published to, and nowhere else in the cluster.
- It is in the batch that the acknowledgement waits for: a PUBACK or PUBREC promises that the row is
  on disk. At QoS 2 it comes with the packet identifier, so that a publication is one row.
- The broker's name and the sequence identify a row for ever. A sequence rises by one with each
  row; a life of a broker begins above all before it.
- Rows leave in the order of their sequences, and only what is on disk goes into a file: whatever
  becomes of the process, the rows of a file and those that wait are known by their sequences.
- Who reads rows while the broker runs (archive/reading.py) is shown those that are on disk.
- What waits is bounded. Beyond, publications are not archived: that is counted and logged, and
  nobody is kept waiting.
- A row for the stream (streamed.py) has besides what its deliveries need: the client that
  published it, for No Local, and when it expires.

The shell (archive/agent.py) gives `write`, calls `flush` when a file is due, tells `written`, and
then calls `let_go` until it is over.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from dovetail.broker.journal import ArchiveRow
from dovetail.broker.state import Shared
from dovetail.config import ARCHIVE_ROW_BYTES, ARCHIVE_TURN_ROWS, ARCHIVE_WRITE_ROWS_MAX
from dovetail.topics.names import matches

log = logging.getLogger("dovetail.archive")

Rows = list[tuple[int, ArchiveRow]]
"""With their sequences, in that order."""


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """Of a publication whose clauses are looked at later, as a row has it."""

    client: str
    """Who published it; empty: nobody who is a client."""
    expires_at: float | None = None


waiting_decoder = msgspec.msgpack.Decoder(Waiting)


class Outcome(NamedTuple):
    """What became of rows that were to be written."""

    last: int
    """All up to this sequence are in files; 0: none."""
    files: int
    error: Exception | None = None


class Archiving:
    """What one broker has for the archive."""

    def __init__(
        self,
        shared: Shared,
        name: str,
        topics: Sequence[str],
        *,
        bytes_max: int,
        next_sequence: int,
        write: Callable[[Rows], None],
    ) -> None:
        """`write` is called with rows that are on disk, and answers with `written`, once."""
        self._shared = shared
        self._name = name
        self._topics = tuple(topics)
        self._bytes_max = bytes_max
        self.next_sequence = next_sequence
        self._write = write
        self._waiting: deque[tuple[int, ArchiveRow]] = deque()
        self._bytes = 0
        self._is_writing = False
        self._written_to = 0
        self._dropped = 0  # since it was last said
        self._is_failing = False
        self.first_of_life = next_sequence
        self.restored: list[tuple[int, int]] = []
        """First and last of those that waited at the start and are of this name, without gaps."""
        self._marks: deque[tuple[int, int]] = deque()
        """Batches that may not be on disk yet, and the first sequence in each."""

    @property
    def bytes_waiting(self) -> int:
        return self._bytes

    @property
    def waits_since(self) -> float | None:
        """When the oldest row was published; None if nothing waits."""
        return self._waiting[0][1].time_microseconds / 1e6 if self._waiting else None

    def waits_for(self, end: int) -> bool:
        """Does anything wait that came before this sequence?"""
        return bool(self._waiting) and self._waiting[0][0] < end

    @property
    def is_writing(self) -> bool:
        return self._is_writing

    @property
    def is_failing(self) -> bool:
        return self._is_failing

    def wants(self, topic: bytes) -> bool:
        """Are publications of this (valid) topic archived?"""
        name = topic.decode()
        return any(matches(topic_filter, name) for topic_filter in self._topics)

    def change_topics(self, topics: Sequence[str]) -> None:
        """From now on these. Routes that are known have to go."""
        self._topics = tuple(topics)

    def restore(self, rows: Mapping[int, ArchiveRow]) -> None:
        """What waited at the end of an earlier life."""
        for sequence, row in sorted(rows.items()):
            self._waiting.append((sequence, row))
            self._bytes += size_of(row)
            if row.broker != self._name:
                continue
            if self.restored and self.restored[-1][1] == sequence - 1:
                self.restored[-1] = self.restored[-1][0], sequence
            else:
                self.restored.append((sequence, sequence))
        self._count()

    # Rows in --------------------------------------------------------------------------------------

    def take(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        stream: Waiting | None = None,
    ) -> int:
        """Its sequence; 0: there is no room for it."""
        size = len(topic) + len(payload) + len(properties) + ARCHIVE_ROW_BYTES
        if self._bytes + size > self._bytes_max:
            self._drop()
            return 0
        shared = self._shared
        time = round(shared.now * 1e6)
        more = b"" if stream is None else msgspec.msgpack.encode(stream)
        row = ArchiveRow(self._name, time, topic, payload, qos, retain, properties, more)
        sequence = self.next_sequence
        self._waiting.append((sequence, row))
        if not self._marks or self._marks[-1][0] != shared.journal.open.number:
            self._forget_stored()
            self._marks.append((shared.journal.open.number, sequence))
        shared.journal.save_archived(sequence, row)
        self.next_sequence += 1
        self._bytes += size
        self._count()
        return sequence

    def _drop(self) -> None:
        self._shared.counters.archive_rows_dropped += 1
        self._dropped += 1
        if self._dropped == 1:
            log.error(
                "more publications wait for the archive than may (archive.buffer_bytes_max): "
                "further ones are not archived"
            )

    # Rows to be read ------------------------------------------------------------------------------

    @property
    def stored_upto(self) -> int:
        """All rows up to this sequence are on disk, or in files."""
        self._forget_stored()
        return (self._marks[0][1] if self._marks else self.next_sequence) - 1

    def _forget_stored(self) -> None:
        journal = self._shared.journal
        if journal.failing:
            return  # what a batch had that failed is in a later one
        unsure = (journal.outstanding or journal.open).number
        while self._marks and self._marks[0][0] < unsure:
            self._marks.popleft()

    @property
    def first_waiting(self) -> int:
        """All rows below this sequence are in files."""
        return self._waiting[0][0] if self._waiting else self.next_sequence

    def rows_waiting(
        self, after: int, upto: int, *, rows_max: int, bytes_max: int
    ) -> tuple[Rows, int]:
        """Those that wait and are above one sequence and not above another, as many as fit.

        And up to which sequence they are all; at least one is among them, if there is one.
        """
        found: Rows = []
        size = 0
        start = bisect_right(self._waiting, after, key=lambda waiting: waiting[0])
        for sequence, row in islice(self._waiting, start, None):
            if sequence > upto:
                break
            if len(found) >= rows_max or size >= bytes_max:
                return found, found[-1][0]
            if row.broker == self._name:
                found.append((sequence, row))
                size += size_of(row)
        return found, upto

    # Files out ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have what waits written; nothing happens while that is under way."""
        if self._is_writing or not self._waiting:
            return
        self._is_writing = True
        count = min(len(self._waiting), ARCHIVE_WRITE_ROWS_MAX)

        def stored(is_stored: bool) -> None:
            if is_stored:
                self._write([*islice(self._waiting, count)])
            else:
                self._is_writing = False  # the next flush tries again

        self._shared.journal.when_stored(stored)

    def written(self, outcome: Outcome) -> None:
        """What became of the rows that `write` was called with. `let_go` has to follow."""
        self._written_to = outcome.last
        self._shared.counters.archive_files += outcome.files
        self._judge(outcome.error)

    def let_go(self) -> bool:
        """Some of the rows that are in files go; True if it has to be called again.

        All at once, they could keep everybody else waiting.
        """
        counters = self._shared.counters
        journal = self._shared.journal
        for _ in range(ARCHIVE_TURN_ROWS):
            if not self._waiting or self._waiting[0][0] > self._written_to:
                break
            sequence, row = self._waiting.popleft()
            journal.drop_archived(sequence)
            self._bytes -= size_of(row)
            counters.archive_rows += 1
        else:
            self._count()
            return True
        self._is_writing = False
        if self._dropped and not self._is_failing and self._bytes * 2 <= self._bytes_max:
            log.warning("publications are archived again; %s were not", f"{self._dropped:,}")
            self._dropped = 0
        self._count()
        return False

    def _judge(self, error: Exception | None) -> None:
        if error is not None:
            self._shared.counters.archive_failures += 1
            if not self._is_failing:
                log.error(
                    "cannot write to the archive, and keep what waits for it on the broker's own "
                    "disk: %s",
                    error,
                )
        elif self._is_failing:
            log.warning("the archive takes files again")
        self._is_failing = error is not None
        self._shared.gauges.archive_failing = int(self._is_failing)

    def _count(self) -> None:
        gauges = self._shared.gauges
        gauges.archive_rows_waiting = len(self._waiting)
        gauges.archive_bytes_waiting = self._bytes


def size_of(row: ArchiveRow) -> int:
    """What it counts against the bound."""
    return len(row.topic) + len(row.payload) + len(row.properties) + ARCHIVE_ROW_BYTES
