"""Writes a running broker's subscriptions to the archive when they have changed."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dovetail.archive.limits import ARCHIVE_CHUNK_ROWS
from dovetail.archive.subscription_files import SubscriptionFile, SubscriptionRow
from dovetail.archive.worker_thread import WorkerThread
from dovetail.broker.net.server import BrokerServer
from dovetail.settings import ArchiveSettings

log = logging.getLogger("dovetail.archive")


class SubscriptionExport:
    """Exports the subscriptions of one broker."""

    def __init__(
        self, server: BrokerServer, settings: ArchiveSettings, name: str, thread: WorkerThread
    ) -> None:
        self._server = server
        self._settings = settings
        self._name = name
        self._thread = thread

    async def run(self) -> None:
        """Export until cancelled."""
        router = self._server.broker.router
        known = -1
        is_failing = False
        while True:
            if known != router.changes:
                changes = router.changes
                error = await self._write()
                if error is None:
                    known = changes
                else:
                    self._server.shared.counters.archive_failures += 1
                if error is not None and not is_failing:
                    log.error("cannot write the subscriptions to the archive: %s", error)
                elif error is None and is_failing:
                    log.warning("the archive takes subscriptions again")
                is_failing = error is not None
            await asyncio.sleep(self._settings.subscriptions_seconds)

    async def _write(self) -> Exception | None:
        do = self._thread.result_of
        file: SubscriptionFile | None = None
        is_whole = False
        try:
            folder, now = Path(self._settings.folder), self._server.clock()
            file = await do(lambda: SubscriptionFile(folder, self._name, now))
            for rows in subscription_batches(self._server):
                await do(partial(file.add, rows))  # clients are served meanwhile
            await do(file.finish)
            is_whole = True
        except Exception as error:  # noqa: BLE001 (of the disk or Arrow: logged, and tried again)
            return error
        finally:
            if file is not None and not is_whole:
                self._thread.do(file.give_up)
        return None


def subscription_batches(server: BrokerServer) -> Iterator[list[SubscriptionRow]]:
    """Yield all subscriptions in batches.

    Changes between two batches may be included or not.
    """
    rows: list[SubscriptionRow] = []
    for session in [*server.broker.sessions.values()]:
        for one in [*session.subscriptions.values()]:
            rows.append(SubscriptionRow(session.client_id, one.key, one.qos))
            if len(rows) == ARCHIVE_CHUNK_ROWS:
                yield rows
                rows = []
    yield rows
