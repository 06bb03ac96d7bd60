"""The subscriptions of a broker as a table beside its publications: what jobs match these with.

    FOLDER/subscriptions/version=N/BROKER.parquet

A version is the time of writing in milliseconds, and rises. A file has all subscriptions of one
broker; those of the cluster are the newest file of each (`files.subscriptions_of`). A broker writes
one when something has changed, and deletes its own that are old. While it gathers them clients are
served, so who comes or goes meanwhile may be in it or not, and is in the next.

`id` is made of client, filter and clause: it stays when the session follows its client to another
broker, or the broker starts again.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.files import UNFINISHED, versions_of
from dovetail.archive.limits import ARCHIVE_SUBSCRIPTIONS_KEPT
from dovetail.archive.writer import COMPRESSION, make_folder, settle
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
    """A table that is being written. Used by one thread at a time."""

    def __init__(self, folder: Path, broker: str, now: float) -> None:
        self._root = folder
        self._broker = broker
        last = max((version for version, _ in versions_of(folder, broker)), default=0)
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
        """What an earlier life was killed over; of another broker we cannot know."""
        for left in (self._root / "subscriptions").glob(f"version=*/{self._unfinished_name}"):
            left.unlink(missing_ok=True)
            with suppress(OSError):  # another broker has a file there
                left.parent.rmdir()

    def add(self, rows: Sequence[SubscriptionRow]) -> None:
        self._batches.append(batch_of(rows, self._broker))
        if len(self._batches) == _BATCHES:
            self._write()

    def _write(self) -> None:
        """One group of rows: readers like them large."""
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, SCHEMA))
            self._batches = []

    def finish(self) -> None:
        """It counts from now on; versions that are old go."""
        self._write()
        self._writer.close()
        settle(self._unfinished, self._file)
        for _, file in versions_of(self._root, self._broker)[:-ARCHIVE_SUBSCRIPTIONS_KEPT]:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # another broker has a file there
                file.parent.rmdir()

    def give_up(self) -> None:
        """Leave nothing behind, as far as that goes."""
        with suppress(Exception):
            self._writer.close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)
            self._file.parent.rmdir()


def batch_of(rows: Sequence[SubscriptionRow], broker: str) -> pa.RecordBatch:
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
    """Who knows a handle may use it: a table for everybody names it, and does not give it away."""
    if not client.startswith(HANDLE_PREFIX):
        return client
    return HANDLE_PREFIX + hashlib.blake2b(client.encode(), digest_size=8).hexdigest()
