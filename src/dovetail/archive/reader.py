"""A broker's archive as others read it while it runs: files, and then what is in none yet.

Only rows that are on disk are shown: what somebody has read is never unsaid by a kill. They need
not be in a file, so a reader has a row some milliseconds after its PUBLISH.

Rows leave the memory when they are in a file. So what waits is looked at first, in the event loop,
and files after that, in a thread: a row that did not wait any more is found there. What is below
the first that waited is read of files, all else of memory: nothing twice, and nothing left out.
"""

from pathlib import Path

import pyarrow as pa

from dovetail.api.reports import ArchiveReport, RowsQuery
from dovetail.archive.columns import SCHEMA
from dovetail.archive.limits import ARCHIVE_READ_BYTES_MAX, ARCHIVE_READ_ROWS_MAX, ARCHIVE_RUNS_MAX
from dovetail.archive.rows import table_of
from dovetail.archive.sequences import Run, between, joined
from dovetail.archive.subscription_snapshot import SubscriptionTelling
from dovetail.archive.tail import Tail
from dovetail.archive.worker_thread import Worker
from dovetail.archive.writer import ArchiveWriter
from dovetail.broker.archive_queue import Archiving
from dovetail.broker.net.server import Server
from dovetail.settings import Archive


class ArchiveReading:
    """One broker's. Its methods are for the event loop."""

    def __init__(
        self,
        server: Server,
        core: Archiving,
        settings: Archive,
        name: str,
        writer: ArchiveWriter,
    ) -> None:
        """`writer` knows the spaces."""
        self._core = core
        self._settings = settings
        self._name = name
        self._writer = writer
        self._folder = str(Path(settings.folder).absolute())
        self._tail = Tail(Path(settings.folder))
        self._thread = Worker("dovetail-archive-reading")
        self._telling = SubscriptionTelling(server, name, self._thread)

    async def report(self, after: int) -> ArchiveReport:
        """Which rows there are above an offset."""
        core = self._core
        in_files = core.first_waiting - 1
        waiting = between([*core.restored, (core.first_of_life, core.stored_upto)], in_files)
        filed: list[Run] = []
        if after < in_files:
            filed = await self._thread.result_of(self._filed)
        runs = joined([*between(filed, 0, in_files), *waiting])
        return ArchiveReport(
            name=self._name,
            folder=self._folder,
            topics=self._settings.topics,
            earliest=runs[0][0] if runs else None,
            latest=runs[-1][1] if runs else None,
            runs=tuple(between(runs, after)[:ARCHIVE_RUNS_MAX]),
        )

    def _filed(self) -> list[Run]:
        self._tail.look()
        return self._tail.runs(self._name)

    async def rows(self, query: RowsQuery) -> tuple[bytes, int]:
        """An Arrow stream, and the offset that it leads to."""
        core, after = self._core, query.after
        upto = min(query.upto, core.stored_upto) if query.upto else core.stored_upto
        rows_max = min(query.rows or ARCHIVE_READ_ROWS_MAX, ARCHIVE_READ_ROWS_MAX)
        bytes_max = min(query.bytes or ARCHIVE_READ_BYTES_MAX, ARCHIVE_READ_BYTES_MAX)
        in_files = core.first_waiting - 1
        waiting, reached = core.rows_waiting(after, upto, rows_max=rows_max, bytes_max=bytes_max)

        def read() -> tuple[bytes, int]:
            if after < min(in_files, upto):
                self._tail.look()
                piece = self._tail.read(self._name, after, min(in_files, upto), rows_max, bytes_max)
                if len(piece.table) or upto <= in_files:
                    return _packed(piece.table), piece.upto
            return _packed(table_of(waiting, self._writer.spaces)), max(reached, after)

        return await self._thread.result_of(read)

    async def subscriptions(self, known: str) -> tuple[bytes | None, str]:
        """An Arrow stream of them, unless this version is known; and their version."""
        return await self._telling.tell(known)

    def stop(self) -> None:
        self._thread.stop()


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
