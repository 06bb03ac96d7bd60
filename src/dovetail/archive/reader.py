"""Reads a running broker's archive for other processes: files first, then rows in no file yet.

Readers get only rows that are on disk, so a kill never takes back what somebody has read. The rows
need not be in a file: a reader gets a row some milliseconds after its PUBLISH.

Rows leave the memory when they are in a file. So the event loop looks at the waiting rows first,
and a thread looks at the files after that: a row that no longer waited is in a file. Rows below the
first waiting one are read from files, all others from memory. So no row is read twice or missed.
"""

from pathlib import Path

from dovetail.api.reports import ArchiveReport, RowsQuery
from dovetail.archive.arrow_stream import pack
from dovetail.archive.limits import ARCHIVE_READ_BYTES_MAX, ARCHIVE_READ_ROWS_MAX, ARCHIVE_RUNS_MAX
from dovetail.archive.rows import table_of
from dovetail.archive.sequences import Run, clip_runs, merge_runs
from dovetail.archive.subscription_snapshot import SubscriptionSnapshot
from dovetail.archive.tail import ArchiveTail
from dovetail.archive.worker_thread import WorkerThread
from dovetail.archive.writer import ArchiveWriter
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.net.server import BrokerServer
from dovetail.settings import ArchiveSettings


class ArchiveReader:
    """Reads one broker's archive. Call its methods from the event loop."""

    def __init__(
        self,
        server: BrokerServer,
        queue: ArchiveQueue,
        settings: ArchiveSettings,
        name: str,
        writer: ArchiveWriter,
    ) -> None:
        """`writer` has the current spaces."""
        self._queue = queue
        self._settings = settings
        self._name = name
        self._writer = writer
        self._folder = str(Path(settings.folder).absolute())
        self._tail = ArchiveTail(Path(settings.folder))
        self._thread = WorkerThread("dovetail-archive-reading")
        self._snapshot = SubscriptionSnapshot(server, name, self._thread)

    async def report(self, after: int) -> ArchiveReport:
        """Return which rows there are above an offset."""
        queue = self._queue
        in_files = queue.first_waiting - 1
        waiting = clip_runs(
            [*queue.restored, (queue.first_of_process, queue.stored_upto)], in_files
        )
        in_file_runs: list[Run] = []
        if after < in_files:
            in_file_runs = await self._thread.result_of(self._runs_in_files)
        runs = merge_runs([*clip_runs(in_file_runs, 0, in_files), *waiting])
        return ArchiveReport(
            name=self._name,
            folder=self._folder,
            topics=self._settings.topics,
            earliest=runs[0][0] if runs else None,
            latest=runs[-1][1] if runs else None,
            runs=tuple(clip_runs(runs, after)[:ARCHIVE_RUNS_MAX]),
        )

    def _runs_in_files(self) -> list[Run]:
        self._tail.refresh()
        return self._tail.runs(self._name)

    async def rows(self, query: RowsQuery) -> tuple[bytes, int]:
        """Return rows as an Arrow stream, and the reader's next offset."""
        queue, after = self._queue, query.after
        upto = min(query.upto, queue.stored_upto) if query.upto else queue.stored_upto
        rows_max = min(query.rows or ARCHIVE_READ_ROWS_MAX, ARCHIVE_READ_ROWS_MAX)
        bytes_max = min(query.bytes or ARCHIVE_READ_BYTES_MAX, ARCHIVE_READ_BYTES_MAX)
        in_files = queue.first_waiting - 1
        waiting, reached = queue.rows_waiting(after, upto, rows_max=rows_max, bytes_max=bytes_max)

        def read() -> tuple[bytes, int]:
            if after < min(in_files, upto):
                self._tail.refresh()
                piece = self._tail.read(self._name, after, min(in_files, upto), rows_max, bytes_max)
                if len(piece.table) or upto <= in_files:
                    return pack(piece.table), piece.upto
            return pack(table_of(waiting, self._writer.spaces)), max(reached, after)

        return await self._thread.result_of(read)

    async def subscriptions(self, known: str) -> tuple[bytes | None, str]:
        """Return the subscriptions as an Arrow stream, and their version.

        The stream is None if `known` is the current version.
        """
        return await self._snapshot.read(known)

    def stop(self) -> None:
        self._thread.stop()
