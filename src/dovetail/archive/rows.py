"""Convert rows of the archive to Arrow columns (columns.py).

`attributes` and `texts` have the numbers and texts that brokers read for where-clauses: from user
properties and, if the space says so, from the payload. Both are empty outside of spaces, and if the
values cannot be read. `properties` has the user properties as they came, in order. `stream` is set
if Spark evaluates the clauses (`engine = "spark"`): it has what subscribers need besides.
"""

import math
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.columns import SCHEMA
from dovetail.archive.limits import ARCHIVE_CHUNK_ROWS
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import Rows, delivery_context_decoder
from dovetail.broker.publication_point import point_of
from dovetail.broker.store.journal import ArchiveRow
from dovetail.codec.properties import user_properties
from dovetail.errors import ClientError
from dovetail.messages import Message


def table_of(rows: Rows, spaces: SpaceRegistry) -> pa.Table:
    """Return rows as a table, converted in chunks, so that the event loop runs in between."""
    chunks = [
        _chunk(rows[start : start + ARCHIVE_CHUNK_ROWS], spaces)
        for start in range(0, len(rows), ARCHIVE_CHUNK_ROWS)
    ]
    return pa.Table.from_batches(chunks, SCHEMA)


def _chunk(rows: Rows, spaces: SpaceRegistry) -> pa.RecordBatch:
    read = [attributes_of(row, spaces) for _, row in rows]
    columns: Sequence[Iterable[object]] = (
        [row.time_microseconds for _, row in rows],
        [row.broker for _, row in rows],
        [sequence for sequence, _ in rows],
        [row.topic.decode() for _, row in rows],
        [row.payload for _, row in rows],
        [row.qos for _, row in rows],
        [row.retain for _, row in rows],
        [numbers for numbers, _ in read],
        [texts for _, texts in read],
        [_pairs(row.properties) for _, row in rows],
        [_stream(row) for _, row in rows],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def warm_up() -> None:
    """Use pyarrow once: its first use takes a second, and no rows wait for it yet."""
    row = ArchiveRow("", 0, b"", b"", 0, False, b"")
    pq.write_table(table_of([(0, row)], SpaceRegistry()), pa.BufferOutputStream())


def attributes_of(
    row: ArchiveRow, spaces: SpaceRegistry
) -> tuple[list[tuple[str, float]], list[tuple[str, str]]]:
    """Return the numbers and the texts of a row, as brokers read them."""
    space = spaces.space_of_topic(row.topic)
    if space is None:
        return [], []
    message = Message(row.topic, row.payload, properties=row.properties)
    try:
        point = point_of(space, message)
    except ClientError:
        point = None
    if point is None:
        return [], []
    numbers = [
        (dimension.name, value)
        for dimension, value in zip(space.dimensions, point.values, strict=True)
        if not math.isnan(value)
    ]
    return numbers, sorted(point.texts.items())


def _stream(row: ArchiveRow) -> dict[str, object] | None:
    if not row.stream:
        return None
    waiting = delivery_context_decoder.decode(row.stream)
    expires = None if waiting.expires_at is None else round(waiting.expires_at * 1e6)
    return {"client": waiting.client, "expires": expires, "properties": row.properties}


def _pairs(properties: bytes) -> list[dict[str, str]]:
    if not properties:
        return []
    return [{"name": name, "value": value} for name, value in user_properties(properties)]
