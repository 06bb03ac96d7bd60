"""The files of an archive by broker and sequence, for readers that go on where they have been.

A reader asks for the rows of a broker above its offset (sequences.py), and gets them in their
order, each once: also while brokers add files, and while small ones are put together. A file has
the sequences that its name says, in their order, so a row's place in it is known without a search.

Which files count says files.py. Folders are listed anew when they have changed; a file that was put
into another one since is not found, and then everything is listed again, and the reader goes on
above the last row that it has.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.columns import SCHEMA
from dovetail.archive.files import ArchiveError, Part, counting, hours_in, parts_in
from dovetail.archive.limits import ARCHIVE_LISTINGS_MAX, ARCHIVE_SETTLED_SECONDS
from dovetail.archive.sequences import Run, between, joined


class Piece(NamedTuple):
    """Rows, and the offset that they lead to: nothing is between the last of them and it."""

    table: pa.Table
    upto: int


class _File(NamedTuple):
    part: Part
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.part.file_name


class _Listing(NamedTuple):
    """What a folder had, and when it had last changed."""

    changed_at: int
    is_settled: bool
    parts: list[Part]


class Tail:
    """The files of one folder. Used by one thread at a time."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._hours: dict[Path, _Listing] = {}
        self._files: dict[str, list[_File]] = {}

    def look(self) -> None:
        """See what there is now; an archive that has no folder yet has nothing."""
        try:
            hours = {hour.folder: self._listed(hour.folder) for hour in hours_in(self._folder)}
        except OSError as error:
            raise _unreadable(self._folder, error) from error
        if hours == self._hours:
            return
        self._hours = hours
        self._files = {}
        for folder, listing in hours.items():
            for part in counting(listing.parts):
                self._files.setdefault(part.broker, []).append(_File(part, folder))
        for files in self._files.values():
            files.sort(key=lambda file: file.part.first)

    def _listed(self, folder: Path) -> _Listing:
        try:
            changed_at = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return _Listing(0, False, [])
        known = self._hours.get(folder)
        if known is not None and known.is_settled and known.changed_at == changed_at:
            return known
        # Clocks of file systems tick some times a second: a change in the tick of another one
        # cannot be seen.
        is_settled = changed_at / 1e9 < self._clock() - ARCHIVE_SETTLED_SECONDS
        parts = parts_in(folder)
        while sorted(again := parts_in(folder)) != sorted(parts):
            parts = again
        return _Listing(changed_at, is_settled, sorted(parts))

    @property
    def brokers(self) -> list[str]:
        return sorted(self._files)

    def runs(self, broker: str) -> list[Run]:
        files = self._files.get(broker, [])
        return joined((file.part.first, file.part.last) for file in files)

    def read(self, broker: str, after: int, upto: int, rows_max: int, bytes_max: int) -> Piece:
        """Rows above an offset and up to another one: as many as fit, at least one if there are."""
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
                        return Piece(pa.Table.from_batches(batches, SCHEMA), offset)
            except FileNotFoundError:
                self._hours = {}
                self.look()
            else:
                return Piece(pa.Table.from_batches(batches, SCHEMA), upto)
        raise ArchiveError(f"{self._folder}: files go faster than they can be read.")

    def _batches(
        self, broker: str, after: int, upto: int, rows_max: int, bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        left = rows_max
        for file in self._files.get(broker, []):
            for first, last in between([(file.part.first, file.part.last)], after, upto):
                wanted = first, min(last, first + left - 1)
                if wanted[0] <= wanted[1]:
                    left -= wanted[1] - wanted[0] + 1
                    yield from _rows_of(file, wanted, bytes_max)


def _rows_of(file: _File, wanted: Run, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Rows with these sequences."""
    begin, end = wanted[0] - file.part.first, wanted[1] - file.part.first + 1
    try:
        with pq.ParquetFile(file.path) as opened:
            metadata = opened.metadata
            if metadata.num_rows != file.part.rows:
                raise ArchiveError(
                    f"{file.path} has {metadata.num_rows:,} rows, and {file.part.rows:,} by its "
                    "name.",
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
                            yield _as_row(batch.slice(low, min(end - at, len(batch)) - low))
                        at += len(batch)
                start = stop
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file.path, error) from error


def _as_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In our columns, whichever version wrote it."""
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
