"""Rows that wait on the broker's disk until they are in a file of the archive. Pure.

    publication -> row in the open batch -> (disk) -> file of the archive -> row deleted

Rules:

- The broker that a client published to writes the row. No other broker of the cluster does.
- The row is in the batch that the acknowledgement waits for: a PUBACK or PUBREC promises that it
  is on disk. At QoS 2 the packet identifier is in the same batch, so a publication is one row.
- The broker's name and the sequence identify a row for ever. The sequence rises by one with each
  row. A restarted broker begins above all earlier sequences.
- Rows leave in the order of their sequences, and only rows on disk go into a file. So after a
  crash the sequences tell the rows of a file from those that still wait.
- A reader (archive/reader.py) of a running broker sees only rows that are on disk.
- The queue is bounded. Beyond the bound the broker does not archive a publication: it counts and
  logs that, and keeps nobody waiting.
- A row for the stream (engine_backlog.py) also has what its deliveries need: the client that
  published it, for No Local, and its expiry.

The shell (archive/archiver.py) calls `flush` when a file is due, reports the outcome through
`written`, and then calls `delete_written` until it returns False.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from dovetail.broker.limits import ARCHIVE_ROW_BYTES, ARCHIVE_TURN_ROWS, ARCHIVE_WRITE_ROWS_MAX
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import ArchiveRow
from dovetail.topics.names import matches

log = logging.getLogger("dovetail.archive")

Rows = list[tuple[int, ArchiveRow]]
"""Rows with their sequences, in ascending order."""


class DeliveryContext(msgspec.Struct, frozen=True, array_like=True):
    """The part of a row that the stream needs to deliver the publication later."""

    client: str
    """The client that published it; empty if no client did."""
    expires_at: float | None = None


delivery_context_decoder = msgspec.msgpack.Decoder(DeliveryContext)


class WriteOutcome(NamedTuple):
    """The result of writing rows to files."""

    last: int
    """All rows up to this sequence are in files; 0 if none is."""
    files: int
    error: Exception | None = None


class ArchivedTopics(Protocol):
    """What a broker with or without an archive can ask about it."""

    @property
    def takes_streams(self) -> bool:
        """May publications wait there for a stream that evaluates their clauses?"""
        ...

    def archives(self, topic: bytes) -> bool:
        """Are publications of this (valid) topic archived?"""
        ...

    def add(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        stream: "DeliveryContext | None" = None,
    ) -> int:
        """Add a row and return its sequence, or 0 if there is no room."""
        ...


class NoArchive:
    """The archive of a broker that has none."""

    takes_streams = False

    def archives(self, topic: bytes) -> bool:
        del topic
        return False

    def add(self, *_row: object) -> int:
        return 0


class ArchiveQueue:
    """The archive queue of one broker."""

    takes_streams = True

    def __init__(
        self,
        shared: SharedState,
        name: str,
        topics: Sequence[str],
        *,
        bytes_max: int,
        next_sequence: int,
    ) -> None:
        self._shared = shared
        self.name = name
        self._topics = tuple(topics)
        self._bytes_max = bytes_max
        self.next_sequence = next_sequence
        self._waiting: deque[tuple[int, ArchiveRow]] = deque()
        self._bytes = 0
        self._is_writing = False
        self._written_to = 0
        self._dropped = 0  # since the last log line about it
        self._is_failing = False
        self.first_of_process = next_sequence
        self.restored: list[tuple[int, int]] = []
        """First and last sequence of each run of rows that waited at the start under this name."""
        self._batch_starts: deque[tuple[int, int]] = deque()
        """Numbers of batches that may not be on disk yet, and the first sequence in each."""

    @property
    def bytes_waiting(self) -> int:
        return self._bytes

    @property
    def oldest_at(self) -> float | None:
        """The time at which the oldest waiting row was published, or None."""
        return self._waiting[0][1].time_microseconds / 1e6 if self._waiting else None

    def has_rows_before(self, end: int) -> bool:
        """Does a row below this sequence wait?"""
        return bool(self._waiting) and self._waiting[0][0] < end

    @property
    def is_writing(self) -> bool:
        return self._is_writing

    @property
    def is_failing(self) -> bool:
        return self._is_failing

    def archives(self, topic: bytes) -> bool:
        """Are publications of this (valid) topic archived?"""
        name = topic.decode()
        return any(matches(topic_filter, name) for topic_filter in self._topics)

    def change_topics(self, topics: Sequence[str]) -> None:
        """Archive these topics from now on. The caller has to discard cached routes."""
        self._topics = tuple(topics)

    def restore(self, rows: Mapping[int, ArchiveRow]) -> None:
        """Take back the rows that waited when the broker stopped."""
        for sequence, row in sorted(rows.items()):
            self._waiting.append((sequence, row))
            self._bytes += size_of(row)
            if row.broker != self.name:
                continue
            if self.restored and self.restored[-1][1] == sequence - 1:
                self.restored[-1] = self.restored[-1][0], sequence
            else:
                self.restored.append((sequence, sequence))
        self._update_gauges()

    # Rows in --------------------------------------------------------------------------------------

    def add(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        stream: DeliveryContext | None = None,
    ) -> int:
        """Add a row and return its sequence, or 0 if there is no room."""
        size = len(topic) + len(payload) + len(properties) + ARCHIVE_ROW_BYTES
        if self._bytes + size > self._bytes_max:
            self._drop()
            return 0
        shared = self._shared
        time = round(shared.now * 1e6)
        more = b"" if stream is None else msgspec.msgpack.encode(stream)
        row = ArchiveRow(self.name, time, topic, payload, qos, retain, properties, more)
        sequence = self.next_sequence
        self._waiting.append((sequence, row))
        if not self._batch_starts or self._batch_starts[-1][0] != shared.journal.open.number:
            self._forget_stored()
            self._batch_starts.append((shared.journal.open.number, sequence))
        shared.journal.save_archived(sequence, row)
        self.next_sequence += 1
        self._bytes += size
        self._update_gauges()
        return sequence

    def _drop(self) -> None:
        self._shared.counters.archive_rows_dropped += 1
        self._dropped += 1
        if self._dropped == 1:
            log.error(
                "too many publications wait for the archive (archive.buffer_bytes_max): the broker "
                "does not archive further ones"
            )

    # Rows to be read ------------------------------------------------------------------------------

    @property
    def stored_upto(self) -> int:
        """The last sequence up to which all rows are on disk or in files."""
        self._forget_stored()
        return (self._batch_starts[0][1] if self._batch_starts else self.next_sequence) - 1

    def _forget_stored(self) -> None:
        journal = self._shared.journal
        if journal.failing:
            return  # the rows of a failed batch are in a later one
        unsure = (journal.outstanding or journal.open).number
        while self._batch_starts and self._batch_starts[0][0] < unsure:
            self._batch_starts.popleft()

    @property
    def first_waiting(self) -> int:
        """The first sequence that is not in a file."""
        return self._waiting[0][0] if self._waiting else self.next_sequence

    def rows_waiting(
        self, after: int, upto: int, *, rows_max: int, bytes_max: int
    ) -> tuple[Rows, int]:
        """Return waiting rows with `after` < sequence <= `upto`, as many as fit.

        The second value is the sequence up to which they are complete. The first row always fits.
        """
        found: Rows = []
        size = 0
        start = bisect_right(self._waiting, after, key=lambda waiting: waiting[0])
        for sequence, row in islice(self._waiting, start, None):
            if sequence > upto:
                break
            if len(found) >= rows_max or size >= bytes_max:
                return found, found[-1][0]
            if row.broker == self.name:
                found.append((sequence, row))
                size += size_of(row)
        return found, upto

    # Files out ------------------------------------------------------------------------------------

    def flush(self, write: Callable[[Rows], None]) -> None:
        """Begin to write the waiting rows to a file, unless a write is under way.

        `write` gets rows that are on disk. The shell answers with one call of `written`.
        """
        if self._is_writing or not self._waiting:
            return
        self._is_writing = True
        count = min(len(self._waiting), ARCHIVE_WRITE_ROWS_MAX)

        def stored(is_stored: bool) -> None:
            if is_stored:
                write([*islice(self._waiting, count)])
            else:
                self._is_writing = False  # the next flush tries again

        self._shared.journal.when_stored(stored)

    def written(self, outcome: WriteOutcome) -> None:
        """Note the outcome of `write`. The caller has to call `delete_written` next."""
        self._written_to = outcome.last
        self._shared.counters.archive_files += outcome.files
        self._note_result(outcome.error)

    def delete_written(self) -> bool:
        """Delete some of the rows that are in files. Return True if more are left.

        Deleting all of them in one turn could keep clients waiting.
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
            self._update_gauges()
            return True
        self._is_writing = False
        if self._dropped and not self._is_failing and self._bytes * 2 <= self._bytes_max:
            log.warning("publications are archived again; %s were not", f"{self._dropped:,}")
            self._dropped = 0
        self._update_gauges()
        return False

    def _note_result(self, error: Exception | None) -> None:
        if error is not None:
            self._shared.counters.archive_failures += 1
            if not self._is_failing:
                log.error(
                    "cannot write to the archive; the waiting rows stay on the broker's own disk: "
                    "%s",
                    error,
                )
        elif self._is_failing:
            log.warning("the archive takes files again")
        self._is_failing = error is not None
        self._shared.gauges.archive_failing = int(self._is_failing)

    def _update_gauges(self) -> None:
        gauges = self._shared.gauges
        gauges.archive_rows_waiting = len(self._waiting)
        gauges.archive_bytes_waiting = self._bytes


def size_of(row: ArchiveRow) -> int:
    """Return the bytes that a row counts against `bytes_max`."""
    return len(row.topic) + len(row.payload) + len(row.properties) + ARCHIVE_ROW_BYTES
