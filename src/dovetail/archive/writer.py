"""Write rows into files of the archive. A file appears whole, or not at all.

A file is written under a hidden name, synced and renamed; then its folder is synced. A new file
begins where the hour ends, where sequences have a gap (between two lives of a broker), where the
broker's name changes, and where the file is large enough.

After a start or an error, waiting rows may be in a file already: the process was killed after the
rename, or the sync of the folder failed. So the writer checks the names of the files first.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.files import ArchiveFile, files_in, hour_path
from dovetail.archive.rows import table_of
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import Rows, WriteOutcome, size_of
from dovetail.broker.store.database import flush

COMPRESSION = "zstd"


class ArchiveWriter:
    """Writes a broker's rows. Used by one thread at a time."""

    def __init__(self, folder: Path, file_bytes_max: int, spaces: SpaceRegistry) -> None:
        self.spaces = spaces
        self._folder = folder
        self._file_bytes_max = file_bytes_max
        self._is_sure = False
        """No waiting row is in a file already."""

    def write(self, rows: Rows) -> WriteOutcome:
        """Write rows until an error occurs. The outcome has the last sequence and the error."""
        last = files = 0
        try:
            for piece in split_into_files(rows, self._file_bytes_max):
                missing = [piece] if self._is_sure else self._missing(piece)
                for one in missing:
                    self._write_file(one)
                    files += 1
                last = piece[-1][0]
        except (OSError, pa.ArrowException) as error:
            self._is_sure = False
            return WriteOutcome(last, files, error)
        self._is_sure = True
        return WriteOutcome(last, files)

    def _missing(self, piece: Rows) -> Iterator[Rows]:
        """Yield the rows that are in no file yet."""
        broker = piece[0][1].broker
        known = [one for one in files_in(self._hour(piece)) if one.broker == broker]
        rest = [row for row in piece if not any(one.first <= row[0] <= one.last for one in known)]
        return split_into_files(rest, self._file_bytes_max)

    def _hour(self, piece: Rows) -> Path:
        return self._folder / hour_path(piece[0][1].time_microseconds)

    def _write_file(self, piece: Rows) -> None:
        folder = self._hour(piece)
        file = ArchiveFile(piece[0][1].broker, piece[0][0], piece[-1][0])
        write_file(folder, file, table_of(piece, self.spaces))


def split_into_files(rows: Rows, bytes_max: int) -> Iterator[Rows]:
    """Yield the rows of one file after another. A row above the limit gets a file of its own."""
    piece: Rows = []
    of: tuple[str, str] | None = None
    size = 0
    for sequence, row in rows:
        place = row.broker, hour_path(row.time_microseconds)
        weight = size_of(row)
        if piece and (place != of or sequence != piece[-1][0] + 1 or size + weight > bytes_max):
            yield piece
            piece, size = [], 0
        of = place
        piece.append((sequence, row))
        size += weight
    if piece:
        yield piece


def write_file(folder: Path, file: ArchiveFile, table: pa.Table) -> None:
    """Write a file atomically. It replaces a file of the same name."""
    make_folder(folder)
    unfinished = folder / file.unfinished_name
    try:
        pq.write_table(table, unfinished, compression=COMPRESSION)
        publish_file(unfinished, folder / file.file_name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def publish_file(unfinished: Path, file: Path) -> None:
    """Rename a finished file to its final name, and sync both to the disk."""
    flush(unfinished)
    unfinished.rename(file)
    flush(file.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and sync each to the disk."""
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    for path in reversed(missing):
        with suppress(FileExistsError):  # another broker creates it as well
            path.mkdir()
        flush(path.parent)
