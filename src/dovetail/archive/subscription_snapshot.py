"""A broker's subscriptions as they are now, for streams that ask over HTTP and match with them.

An answer has a version: the life of the broker, and how often its subscriptions have changed. Who
names the version that it has is sent nothing unless there is another. All that were acknowledged
before the question are in the answer. It is gathered some at a time, so that clients are served
meanwhile, and for one who asks after the other: it is in memory until it has gone.
"""

import asyncio
from functools import partial

import pyarrow as pa

from dovetail.archive.subscription_export import gathered
from dovetail.archive.subscription_files import SCHEMA, batch_of
from dovetail.archive.worker_thread import Worker
from dovetail.broker.net.server import Server


class SubscriptionTelling:
    """One broker's. Its methods are for the event loop."""

    def __init__(self, server: Server, name: str, thread: Worker) -> None:
        self._server = server
        self._name = name
        self._thread = thread
        self._life = int(server.clock() * 1e6)
        self._turn = asyncio.Lock()

    @property
    def version(self) -> str:
        return f"{self._life}-{self._server.broker.router.changes}"

    async def tell(self, known: str) -> tuple[bytes | None, str]:
        """An Arrow stream, or None for who knows all; and the version."""
        async with self._turn:
            version = self.version
            if known == version:
                return None, version
            batches = [
                await self._thread.result_of(partial(batch_of, rows, self._name))
                for rows in gathered(self._server)
            ]
            return await self._thread.result_of(partial(_packed, batches)), version


def _packed(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
