"""Rows of an archive, made and read for tests."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dovetail.archive.files import files_of
from dovetail.broker.archiving import Rows
from dovetail.broker.journal import ArchiveRow

BEGIN = 1_794_848_400_000_000
"""2026-11-16 17:00 UTC in microseconds."""

HOUR = 3_600_000_000


def row(
    time: int = BEGIN, topic: bytes = b"a/1", payload: bytes = b"", properties: bytes = b""
) -> ArchiveRow:
    return ArchiveRow("one", time, topic, payload, 1, False, properties)


def rows_of(sequences: Iterable[int], time: int = BEGIN) -> Rows:
    return [(sequence, row(time, payload=b"%d" % sequence)) for sequence in sequences]


def read(folder: Path) -> list[dict[str, Any]]:
    """Every row that counts, in the order of files."""
    found: list[dict[str, Any]] = []
    for file in files_of(folder):
        found += pq.ParquetFile(file).read().to_pylist()
    return found


def sequences(folder: Path) -> list[int]:
    return [found["sequence"] for found in read(folder)]
