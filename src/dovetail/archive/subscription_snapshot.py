"""A broker's current subscriptions, for streams that fetch them over HTTP.

An answer has a version: the life of the broker, and the number of changes of its subscriptions. If
the request names the current version, the answer is empty. It contains all subscriptions that were
acknowledged before the request. It is collected in batches, so that clients are served meanwhile.
Requests are answered one after the other, because an answer takes memory.
"""

import asyncio
from functools import partial

import pyarrow as pa

from dovetail.archive.arrow_stream import pack
from dovetail.archive.subscription_export import subscription_batches
from dovetail.archive.subscription_files import SCHEMA, subscription_batch
from dovetail.archive.worker_thread import WorkerThread
from dovetail.broker.net.server import BrokerServer


class SubscriptionSnapshot:
    """Answers requests for one broker's subscriptions. Call its methods from the event loop."""

    def __init__(self, server: BrokerServer, name: str, thread: WorkerThread) -> None:
        self._server = server
        self._name = name
        self._thread = thread
        self._life = int(server.clock() * 1e6)
        self._turn = asyncio.Lock()

    @property
    def version(self) -> str:
        return f"{self._life}-{self._server.broker.router.changes}"

    async def read(self, known: str) -> tuple[bytes | None, str]:
        """Return the subscriptions as an Arrow stream, and their version.

        The stream is None if `known` is the current version.
        """
        async with self._turn:
            version = self.version
            if known == version:
                return None, version
            batches = [
                await self._thread.result_of(partial(subscription_batch, rows, self._name))
                for rows in subscription_batches(self._server)
            ]
            table = pa.Table.from_batches(batches, SCHEMA)
            return await self._thread.result_of(partial(pack, table)), version
