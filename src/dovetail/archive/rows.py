"""Rows of the archive as Arrow: what is in their columns (columns.py).

`attributes` and `texts` are what the space of the topic reads of a publication, as brokers do when
they look for clauses that hold: its numbers and its texts, of user properties and, if the space
says so, of the payload. Both are empty outside of spaces, and where nothing can be read.
`properties` has the user properties as they came, in their order, whatever a space makes of them.
`stream` is there for publications whose clauses Spark looks at (`engine = "spark"`): what it has to
pass on besides.
"""

import math
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.columns import SCHEMA
from dovetail.archive.limits import ARCHIVE_CHUNK_ROWS
from dovetail.attributes.space_registry import Spaces
from dovetail.broker.archive_queue import Rows, waiting_decoder
from dovetail.broker.publication_point import point_of
from dovetail.broker.store.journal import ArchiveRow
from dovetail.codec.properties import user_properties
from dovetail.errors import ClientError
from dovetail.messages import Message


def table_of(rows: Rows, spaces: Spaces) -> pa.Table:
    """In chunks, so that the event loop gets its turn in between."""
    chunks = [
        _chunk(rows[start : start + ARCHIVE_CHUNK_ROWS], spaces)
        for start in range(0, len(rows), ARCHIVE_CHUNK_ROWS)
    ]
    return pa.Table.from_batches(chunks, SCHEMA)


def _chunk(rows: Rows, spaces: Spaces) -> pa.RecordBatch:
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
    """What pyarrow loads when it is first used takes a second: not while rows wait."""
    row = ArchiveRow("", 0, b"", b"", 0, False, b"")
    pq.write_table(table_of([(0, row)], Spaces()), pa.BufferOutputStream())


def attributes_of(
    row: ArchiveRow, spaces: Spaces
) -> tuple[list[tuple[str, float]], list[tuple[str, str]]]:
    """Numbers and texts, as a broker reads them."""
    space = spaces.governing(row.topic)
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
    waiting = waiting_decoder.decode(row.stream)
    expires = None if waiting.expires_at is None else round(waiting.expires_at * 1e6)
    return {"client": waiting.client, "expires": expires, "properties": row.properties}


def _pairs(properties: bytes) -> list[dict[str, str]]:
    if not properties:
        return []
    return [{"name": name, "value": value} for name, value in user_properties(properties)]
