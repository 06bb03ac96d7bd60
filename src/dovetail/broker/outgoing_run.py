"""Runs of QoS 1 messages on their way to persistent sessions. Pure.

A session that can take a whole run keeps it as one entry: packet identifiers in a row, one row on
disk. Whatever needs single messages (a lost connection, a session move) has the session take its
runs apart (session_sender.py).
"""

from collections.abc import Iterator

import numpy as np

from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.store.journal import RunDeliveryRow, RunRow
from dovetail.codec.kernels.scan import QOS_1
from dovetail.codec.run import Numbers, Run, packets_of, rewritten, rewritten_rows, starts_of
from dovetail.messages import Message

_ROW = np.dtype("<u2")


class StoredRun:
    """A run that sessions and other brokers need, on disk once.

    An outbox treats it as a message (peering/outbox.py).
    """

    retain = False
    is_orphan = False
    expires_at: float | None = None
    topic = b""  # there may be several

    __slots__ = ("_messages", "_starts", "number", "origin", "references", "run")

    def __init__(self, run: Run, origin: str, starts: Numbers | None = None) -> None:
        self.run = run
        self.origin = origin
        self.number = 0  # on disk; 0: not there
        self.references = 0
        self._starts = starts
        self._messages: list[Message] | None = None

    @classmethod
    def restored(cls, number: int, row: RunRow) -> "StoredRun":
        run = Run(row.data, row.version, QOS_1, row.packets, int(row.has_properties))
        stored = cls(run, row.origin)
        stored.number = number
        return stored

    def narrowed(self, rows: Numbers) -> "StoredRun":
        """Return a run of these packets alone."""
        run = self.run
        data = rewritten_rows(run, self.starts, rows, run.version, run.qos, 1)
        return StoredRun(run._replace(data=data, packets=len(rows)), self.origin)

    def of_rows(self, rows: Numbers) -> "StoredRun":
        """Return the run of these packets: this one if they are all."""
        return self if len(rows) == self.run.packets else self.narrowed(rows)

    def row(self) -> RunRow:
        run = self.run
        return RunRow(run.data, run.version, run.packets, bool(run.has_properties), self.origin)

    @property
    def qos(self) -> int:
        return self.run.qos

    @property
    def size(self) -> int:
        return len(self.run.data)

    @property
    def packets(self) -> int:
        return self.run.packets

    @property
    def starts(self) -> Numbers:
        if self._starts is None:
            self._starts = starts_of(self.run)
        return self._starts

    def message(self, row: int) -> Message:
        """Return one message of the run; all sessions share it."""
        if self._messages is None:
            qos = self.run.qos
            self._messages = [
                Message(part.topic, part.payload, qos, False, part.properties, None, self.origin)
                for part in packets_of(self.run)
            ]
        return self._messages[row]


class OutgoingRun:
    """Neighbouring messages of a run on their way to one session."""

    __slots__ = (
        "count",
        "entries",
        "first",
        "first_batch",
        "first_id",
        "rest",
        "rows",
        "sequence",
        "size",
        "stored",
        "unacknowledged",
    )

    def __init__(
        self, stored: StoredRun, rows: Numbers | None, first: int, count: int, sequence: int
    ) -> None:
        self.stored = stored
        self.rows = rows  # the packets that the session gets; None: all of them
        self.first = first  # the position of the first message among these
        self.count = count
        self.sequence = sequence  # of the first message
        self.first_id = 0  # the packet identifier of the first message; 0: not sent yet
        self.unacknowledged = count
        self.first_batch = 0  # of the journal
        self.entries: tuple[OutgoingMessage, ...] = ()
        """What the run was taken apart into."""
        self.rest: OutgoingRun | None = None
        """What was split off."""
        starts = stored.starts
        if rows is None:
            self.size = int(starts[first + count] - starts[first])
        else:
            mine = rows[first : first + count]
            self.size = int((starts[mine + 1] - starts[mine]).sum())

    def row(self) -> RunDeliveryRow:
        rows = b"" if self.rows is None else self.rows.astype(_ROW).tobytes()
        return RunDeliveryRow(self.stored.number, self.first, self.count, self.first_id, rows)

    @classmethod
    def restored(cls, stored: StoredRun, sequence: int, row: RunDeliveryRow) -> "OutgoingRun":
        rows = np.frombuffer(row.rows, _ROW).astype(np.int64) if row.rows else None
        run = cls(stored, rows, row.first, row.messages, sequence)
        run.first_id = row.packet_id
        run.first_batch = -1
        return run

    def split(self, count: int) -> "OutgoingRun":
        """Keep the first messages, so many, and return the others as another run."""
        rest = OutgoingRun(
            self.stored, self.rows, self.first + count, self.count - count, self.sequence + count
        )
        self.rest = rest
        self.size -= rest.size
        self.count = self.unacknowledged = count
        return rest

    def encoded(self, version: int) -> bytes:
        """Return the packets for a receiver of this version."""
        stored = self.stored
        if self.rows is None and self.count == stored.run.packets:
            return rewritten(stored.run, version, 1, self.first_id)
        rows = np.arange(stored.run.packets) if self.rows is None else self.rows
        mine = rows[self.first : self.first + self.count]
        return rewritten_rows(stored.run, stored.starts, mine, version, 1, self.first_id)

    def messages(self) -> Iterator[Message]:
        for place in range(self.first, self.first + self.count):
            yield self.stored.message(place if self.rows is None else int(self.rows[place]))
