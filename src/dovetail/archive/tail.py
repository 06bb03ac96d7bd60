"""The files of an archive by broker and sequence, for readers that continue at an offset.

A reader asks for the rows of a broker above its offset (sequences.py). It gets them in order, each
once, even while brokers add files and compaction merges them. A file has the sequences of its name,
in order, so the position of a row in it is known without a search.

A folder is listed again when it has changed. If a file is missing because compaction has merged it,
everything is listed again, and the reader continues above the last row that it has.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.columns import SCHEMA
from dovetail.archive.files import (
    ArchiveError,
    ArchiveFile,
    effective_files,
    files_in,
    hour_folders,
)
from dovetail.archive.limits import ARCHIVE_LISTINGS_MAX, ARCHIVE_SETTLED_SECONDS
from dovetail.archive.sequences import Run, clip_runs, merge_runs


class RowChunk(NamedTuple):
    """Rows of a broker, in order."""

    table: pa.Table
    upto: int
    """The reader's next offset. There are no rows between the last of these and it."""


class _LocatedFile(NamedTuple):
    file: ArchiveFile
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.file.file_name


class _FolderListing(NamedTuple):
    """The files of a folder, and when it had last changed."""

    changed_at: int
    is_settled: bool
    files: list[ArchiveFile]


class ArchiveTail:
    """Reads the files of one archive. Used by one thread at a time."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._hours: dict[Path, _FolderListing] = {}
        self._files: dict[str, list[_LocatedFile]] = {}

    def refresh(self) -> None:
        """List the files again. An archive without a folder is empty."""
        try:
            hours = {hour.folder: self._listed(hour.folder) for hour in hour_folders(self._folder)}
        except OSError as error:
            raise _unreadable(self._folder, error) from error
        if hours == self._hours:
            return
        self._hours = hours
        self._files = {}
        for folder, listing in hours.items():
            for file in effective_files(listing.files):
                self._files.setdefault(file.broker, []).append(_LocatedFile(file, folder))
        for files in self._files.values():
            files.sort(key=lambda located: located.file.first)

    def _listed(self, folder: Path) -> _FolderListing:
        try:
            changed_at = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return _FolderListing(0, False, [])
        known = self._hours.get(folder)
        if known is not None and known.is_settled and known.changed_at == changed_at:
            return known
        # Clocks of file systems tick only some times a second. Two changes within one tick look
        # the same.
        is_settled = changed_at / 1e9 < self._clock() - ARCHIVE_SETTLED_SECONDS
        files = files_in(folder)
        while sorted(again := files_in(folder)) != sorted(files):
            files = again
        return _FolderListing(changed_at, is_settled, sorted(files))

    @property
    def brokers(self) -> list[str]:
        return sorted(self._files)

    def runs(self, broker: str) -> list[Run]:
        files = self._files.get(broker, [])
        return merge_runs((located.file.first, located.file.last) for located in files)

    def read(self, broker: str, after: int, upto: int, rows_max: int, bytes_max: int) -> RowChunk:
        """Return rows above `after` and up to `upto`: as many as fit, and at least one."""
        offset, rows, size = after, 0, 0
        batches: list[pa.RecordBatch] = []
        for _ in range(ARCHIVE_LISTINGS_MAX):
            try:
                for batch in self._batches(broker, offset, upto, rows_max - rows, bytes_max):
                    batches.append(batch)
                    offset = batch["sequence"][-1].as_py()
                    rows += len(batch)
                    size += batch.nbytes
                    if rows >= rows_max or size >= bytes_max:
                        return RowChunk(pa.Table.from_batches(batches, SCHEMA), offset)
            except FileNotFoundError:
                self._hours = {}
                self.refresh()
            else:
                return RowChunk(pa.Table.from_batches(batches, SCHEMA), upto)
        raise ArchiveError(f"{self._folder}: files disappear faster than they can be read.")

    def _batches(
        self, broker: str, after: int, upto: int, rows_max: int, bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        left = rows_max
        for located in self._files.get(broker, []):
            run = located.file.first, located.file.last
            for first, last in clip_runs([run], after, upto):
                wanted = first, min(last, first + left - 1)
                if wanted[0] <= wanted[1]:
                    left -= wanted[1] - wanted[0] + 1
                    yield from _rows_of(located, wanted, bytes_max)


def _rows_of(located: _LocatedFile, wanted: Run, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these sequences."""
    begin, end = wanted[0] - located.file.first, wanted[1] - located.file.first + 1
    try:
        with pq.ParquetFile(located.path) as opened:
            metadata = opened.metadata
            if metadata.num_rows != located.file.rows:
                raise ArchiveError(
                    f"{located.path} has {metadata.num_rows:,} rows, and {located.file.rows:,} by "
                    "its name.",
                    hint="It was changed since a broker wrote it.",
                )
            start = 0
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                stop = start + group.num_rows
                if start < end and begin < stop:
                    row_bytes = group.total_byte_size // max(group.num_rows, 1) + 1
                    at_once = max(min(bytes_max // row_bytes, group.num_rows), 1)
                    at = start
                    for batch in opened.iter_batches(at_once, row_groups=[number]):
                        if at + len(batch) > begin and at < end:
                            low = max(begin - at, 0)
                            yield _with_current_columns(
                                batch.slice(low, min(end - at, len(batch)) - low)
                            )
                        at += len(batch)
                start = stop
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(located.path, error) from error


def _with_current_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows in the current columns, whichever version wrote them."""
    if batch.schema.equals(SCHEMA):
        return batch
    known = {*batch.schema.names}
    columns = [
        batch[field.name].cast(field.type)
        if field.name in known
        else pa.nulls(len(batch), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _unreadable(path: Path, error: Exception) -> ArchiveError:
    return ArchiveError(
        f"{path} cannot be read: {error}",
        hint="If it is damaged, move it elsewhere to go on without its rows.",
    )
