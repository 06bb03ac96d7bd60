"""A broker's subscriptions as a table beside its publications, for jobs that match both.

    FOLDER/subscriptions/version=N/BROKER.parquet

A version is the time of writing in milliseconds, and rises. A file has all subscriptions of one
broker. The newest file of each broker gives the subscriptions of the cluster
(`files.subscriptions_of`). A broker writes a file when something has changed, and deletes
its old ones. It serves clients meanwhile, so a change at that moment may be in this file or in the
next.

`id` is computed from client, filter and clause. It stays the same when the session moves to another
broker, or the broker restarts.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.files import UNFINISHED, subscription_versions
from dovetail.archive.limits import ARCHIVE_SUBSCRIPTIONS_KEPT
from dovetail.archive.writer import COMPRESSION, make_folder, publish_file
from dovetail.attributes.clauses import split_key
from dovetail.broker.clause_log import subscription_id
from dovetail.broker.limits import HANDLE_PREFIX

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("filter", pa.string(), nullable=False),
        pa.field("where", pa.string()),
        pa.field("client", pa.string(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("broker", pa.string(), nullable=False),
    ]
)


_BATCHES = 32


class SubscriptionRow(NamedTuple):
    """One subscription as the broker knows it; `key` is its filter with its clause."""

    client: str
    key: str
    qos: int


class SubscriptionFile:
    """Writes one file of subscriptions. Used by one thread at a time."""

    def __init__(self, folder: Path, broker: str, now: float) -> None:
        self._root = folder
        self._broker = broker
        last = max((version for version, _ in subscription_versions(folder, broker)), default=0)
        version = max(int(now * 1_000), last + 1)
        self._remove_unfinished()
        place = folder / "subscriptions" / f"version={version}"
        make_folder(place)
        self._file = place / f"{broker}.parquet"
        self._unfinished = place / self._unfinished_name
        self._writer = pq.ParquetWriter(self._unfinished, SCHEMA, compression=COMPRESSION)
        self._batches: list[pa.RecordBatch] = []

    @property
    def _unfinished_name(self) -> str:
        return f".{self._broker}.parquet{UNFINISHED}"

    def _remove_unfinished(self) -> None:
        """Delete files that this broker left unfinished when it was killed."""
        for left in (self._root / "subscriptions").glob(f"version=*/{self._unfinished_name}"):
            left.unlink(missing_ok=True)
            with suppress(OSError):  # another broker has a file there
                left.parent.rmdir()

    def add(self, rows: Sequence[SubscriptionRow]) -> None:
        self._batches.append(subscription_batch(rows, self._broker))
        if len(self._batches) == _BATCHES:
            self._write()

    def _write(self) -> None:
        """Write one row group of many batches: large groups are faster to read."""
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, SCHEMA))
            self._batches = []

    def finish(self) -> None:
        """Put the file in effect, and delete old versions."""
        self._write()
        self._writer.close()
        publish_file(self._unfinished, self._file)
        for _, file in subscription_versions(self._root, self._broker)[
            :-ARCHIVE_SUBSCRIPTIONS_KEPT
        ]:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # another broker has a file there
                file.parent.rmdir()

    def give_up(self) -> None:
        """Delete the unfinished file, if possible."""
        with suppress(Exception):
            self._writer.close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)
            self._file.parent.rmdir()


def subscription_batch(rows: Sequence[SubscriptionRow], broker: str) -> pa.RecordBatch:
    split = [split_key(row.key) for row in rows]
    columns: Sequence[Sequence[object]] = (
        [id_of(row) for row in rows],
        [topic_filter for topic_filter, _ in split],
        [clause or None for _, clause in split],
        [_shown(row.client) for row in rows],
        [row.qos for row in rows],
        [broker] * len(rows),
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def id_of(row: SubscriptionRow) -> int:
    return subscription_id(row.client, row.key)


def _shown(client: str) -> str:
    """Return a client's name to show. A handle is a secret, so only its hash is shown."""
    if not client.startswith(HANDLE_PREFIX):
        return client
    return HANDLE_PREFIX + hashlib.blake2b(client.encode(), digest_size=8).hexdigest()
