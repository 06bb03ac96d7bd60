"""A broker's archive while it runs: the clock and a thread around what is pure.

The event loop looks at what waits some times within the delay that is allowed; a thread makes files
of it, so that a folder which is slow, full or gone holds nobody up. What is not written when the
process ends is in the broker's store.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from dovetail.archive.limits import ARCHIVE_RETRY_SECONDS, ARCHIVE_STOP_SECONDS
from dovetail.archive.reader import ArchiveReading
from dovetail.archive.rows import warm_up
from dovetail.archive.subscription_export import SubscriptionExport
from dovetail.archive.worker_thread import Worker
from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import Spaces
from dovetail.broker.archive_queue import Archiving, Outcome, Rows
from dovetail.broker.net.server import Server
from dovetail.broker.store.journal import ArchiveRow
from dovetail.settings import Archive

log = logging.getLogger("dovetail.archive")

_LOOKS = 4
"""Within the delay that is allowed."""


class ArchiveAgent:
    """One broker's, from start to stop."""

    def __init__(
        self, server: Server, settings: Archive, name: str, next_sequence: int, spaces: Spaces
    ) -> None:
        self._server = server
        self._settings = settings
        self._writer = ArchiveWriter(Path(settings.folder), settings.file_bytes_max, spaces)
        self._thread = Worker("dovetail-archive")
        self._handle: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()
        self._tried_at = 0.0
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._core = Archiving(
            server.shared,
            name,
            settings.topics,
            bytes_max=settings.buffer_bytes_max,
            next_sequence=next_sequence,
            write=self._write,
        )
        server.broker.archive_to(self._core)
        self.reading = ArchiveReading(server, self._core, settings, name, self._writer)

    def start(self, rows: Mapping[int, ArchiveRow]) -> None:
        """With what waited at the end of the last life."""
        self._warm = self._server.loop.create_task(self._thread.result_of(warm_up))
        self._core.restore(rows)
        self._look()
        if self._settings.subscriptions_seconds:
            export = SubscriptionExport(self._server, self._settings, self._name, self._thread)
            self._task = self._server.loop.create_task(export.run())

    async def ready(self) -> None:
        """Wait until all modules are imported."""
        await self._warm

    def change_spaces(self, spaces: Spaces) -> None:
        self._writer.spaces = spaces

    def change(self, settings: Archive) -> None:
        """Topics change at once. All else is as it was at the start, and that is said."""
        if settings.topics != self._settings.topics:
            self._core.change_topics(settings.topics)
            self._server.broker.router.changed("#")
            log.info("archived from now on: %s", ", ".join(settings.topics) or "no topics")
        self._settings = replace(self._settings, topics=settings.topics)
        if settings != self._settings:
            log.warning("in [archive] only topics can change without a restart")

    async def stop(self) -> None:
        """What waits is written, if the folder takes it soon."""
        if self._handle is not None:
            self._handle.cancel()
        if self._task is not None:
            self._task.cancel()
            # It may leave the thread a last thing to do: to give up what it was writing.
            await asyncio.gather(self._task, return_exceptions=True)
        end = self._core.next_sequence  # clients may go on publishing meanwhile
        with suppress(TimeoutError):
            async with asyncio.timeout(ARCHIVE_STOP_SECONDS):
                while self._core.waits_for(end) and not self._core.is_failing:
                    self._progress.clear()
                    self._flush()
                    await self._progress.wait()
        self._thread.stop()
        self.reading.stop()

    def _look(self) -> None:
        delay = self._settings.delay_seconds
        self._handle = self._server.loop.call_later(delay / _LOOKS, self._look)
        if self._is_due():
            self._flush()
        self._server.rows_may_wait()

    def _is_due(self) -> bool:
        """Half of the delay is for others to join, the rest for the disks."""
        core = self._core
        if core.waits_since is None:
            return False
        now = self._server.clock()
        if core.is_failing and now - self._tried_at < ARCHIVE_RETRY_SECONDS:
            return False
        is_young = 0 <= now - core.waits_since < self._settings.delay_seconds / 2
        return not is_young or core.bytes_waiting >= self._settings.file_bytes_max

    def _flush(self) -> None:
        self._server.now()
        if not self._core.is_writing:
            self._tried_at = self._server.clock()
        self._core.flush()
        self._server.rows_may_wait()

    def _write(self, rows: Rows) -> None:
        loop = self._server.loop

        def write() -> None:
            try:
                outcome = self._writer.write(rows)
            except Exception as error:
                # A bug; without an answer nothing would be archived any more.
                log.exception("Rows of the archive could not be written.")
                outcome = Outcome(0, 0, error)
            with suppress(RuntimeError):  # the loop has ended without us
                loop.call_soon_threadsafe(self._written, outcome)

        self._thread.do(write)

    def _written(self, outcome: Outcome) -> None:
        self._server.now()
        self._core.written(outcome)
        self._let_go()

    def _let_go(self) -> None:
        more = self._core.let_go()
        self._server.rows_may_wait()
        if more:
            self._server.loop.call_soon(self._let_go)
            return
        self._progress.set()
        if self._is_due():
            self._flush()
