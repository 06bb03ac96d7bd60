"""Archives a broker's rows while it runs: a clock and a thread around the pure queue and writer.

The event loop checks the waiting rows several times within `delay_seconds`. A thread writes them
into files, so a slow, full or missing folder delays nobody. Rows that are not written when the
process ends are in the broker's store.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from dovetail.archive.limits import ARCHIVE_RETRY_SECONDS, ARCHIVE_STOP_SECONDS
from dovetail.archive.reader import ArchiveReader
from dovetail.archive.rows import warm_up
from dovetail.archive.subscription_export import SubscriptionExport
from dovetail.archive.worker_thread import WorkerThread
from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import ArchiveQueue, Rows, WriteOutcome
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.store.journal import ArchiveRow
from dovetail.settings import ArchiveSettings

log = logging.getLogger("dovetail.archive")

_CHECKS = 4
"""Checks of the waiting rows within `delay_seconds`."""


class Archiver:
    """The archive of one broker, from start to stop."""

    def __init__(
        self,
        server: BrokerServer,
        queue: ArchiveQueue,
        settings: ArchiveSettings,
        spaces: SpaceRegistry,
    ) -> None:
        self._server = server
        self._settings = settings
        self._writer = ArchiveWriter(Path(settings.folder), settings.file_bytes_max, spaces)
        self._thread = WorkerThread("dovetail-archive")
        self._handle: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()
        self._tried_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._queue = queue
        self.reader = ArchiveReader(server, queue, settings, queue.name, self._writer)

    def start(self, rows: Mapping[int, ArchiveRow]) -> None:
        """Start with the rows that waited when the broker ended last time."""
        self._warm = self._server.loop.create_task(self._thread.result_of(warm_up))
        self._queue.restore(rows)
        self._check()
        if self._settings.subscriptions_seconds:
            export = SubscriptionExport(
                self._server, self._settings, self._queue.name, self._thread
            )
            self._task = self._server.loop.create_task(export.run())

    async def ready(self) -> None:
        """Wait until all modules are imported."""
        await self._warm

    def change_spaces(self, spaces: SpaceRegistry) -> None:
        self._writer.spaces = spaces

    def change(self, settings: ArchiveSettings) -> None:
        """Apply new topics at once. Other settings need a restart, and a log line says so."""
        if settings.topics != self._settings.topics:
            self._queue.change_topics(settings.topics)
            self._server.broker.router.cache.clear()
            log.info("archived from now on: %s", ", ".join(settings.topics) or "no topics")
        self._settings = replace(self._settings, topics=settings.topics)
        if settings != self._settings:
            log.warning("in [archive] only topics can change without a restart")

    async def stop(self) -> None:
        """Write the waiting rows, unless the folder takes too long."""
        if self._handle is not None:
            self._handle.cancel()
        if self._task is not None:
            self._task.cancel()
            # Its last task for the thread may be to delete an unfinished file.
            await asyncio.gather(self._task, return_exceptions=True)
        end = self._queue.next_sequence  # clients may go on publishing meanwhile
        with suppress(TimeoutError):
            async with asyncio.timeout(ARCHIVE_STOP_SECONDS):
                while self._queue.has_rows_before(end) and not self._queue.is_failing:
                    self._progress.clear()
                    self._flush()
                    await self._progress.wait()
        self._thread.stop()
        self.reader.stop()

    def _check(self) -> None:
        delay = self._settings.delay_seconds
        self._handle = self._server.loop.call_later(delay / _CHECKS, self._check)
        if self._is_due():
            self._flush()
        self._server.schedule_commit()

    def _is_due(self) -> bool:
        """Half of the delay is for more rows to join, the rest for the disks."""
        queue = self._queue
        if queue.oldest_at is None:
            return False
        now = self._server.clock()
        if queue.is_failing and now - self._tried_at < ARCHIVE_RETRY_SECONDS:
            return False
        is_young = 0 <= now - queue.oldest_at < self._settings.delay_seconds / 2
        return not is_young or queue.bytes_waiting >= self._settings.file_bytes_max

    def _flush(self) -> None:
        self._server.update_clock()
        if not self._queue.is_writing:
            self._tried_at = self._server.clock()
        self._queue.flush(self._write)
        self._server.schedule_commit()

    def _write(self, rows: Rows) -> None:
        loop = self._server.loop

        def write() -> None:
            try:
                outcome = self._writer.write(rows)
            except Exception as error:
                # A bug. The queue needs an answer, or it would never write again.
                log.exception("Rows of the archive could not be written.")
                outcome = WriteOutcome(0, 0, error)
            with suppress(RuntimeError):  # the loop has ended without us
                loop.call_soon_threadsafe(self._written, outcome)

        self._thread.do(write)

    def _written(self, outcome: WriteOutcome) -> None:
        self._server.update_clock()
        self._queue.written(outcome)
        self._delete_written()

    def _delete_written(self) -> None:
        more = self._queue.delete_written()
        self._server.schedule_commit()
        if more:
            self._server.loop.call_soon(self._delete_written)
            return
        self._progress.set()
        if self._is_due():
            self._flush()
