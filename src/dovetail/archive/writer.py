"""Rows into files of the archive, each whole and in its place or not there.

A file is written beside its place, synced, and renamed; then its folder is synced. Rows are cut
where their hour ends, where a sequence is passed over (between two lives of a broker), where the
broker's name changes, and where a file is large enough.

After a start, and after an error, nobody knows whether the rows that wait are in a file already:
it was renamed, and then the process was killed, or the sync of the folder failed. The names of the
files tell, so they are looked at first.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.files import Part, hour_of, parts_in
from dovetail.archive.rows import table_of
from dovetail.attributes.space_registry import Spaces
from dovetail.broker.archive_queue import Outcome, Rows, size_of
from dovetail.broker.store.database import flush

COMPRESSION = "zstd"


class ArchiveWriter:
    """Used by one thread at a time."""

    def __init__(self, folder: Path, file_bytes_max: int, spaces: Spaces) -> None:
        self.spaces = spaces
        self._folder = folder
        self._file_bytes_max = file_bytes_max
        self._is_sure = False
        """That no row which waits is in a file."""

    def write(self, rows: Rows) -> Outcome:
        """As far as it goes."""
        last = files = 0
        try:
            for piece in pieces(rows, self._file_bytes_max):
                missing = [piece] if self._is_sure else self._missing(piece)
                for one in missing:
                    self._write_file(one)
                    files += 1
                last = piece[-1][0]
        except (OSError, pa.ArrowException) as error:
            self._is_sure = False
            return Outcome(last, files, error)
        self._is_sure = True
        return Outcome(last, files)

    def _missing(self, piece: Rows) -> Iterator[Rows]:
        """Those that are in no file."""
        broker = piece[0][1].broker
        known = [one for one in parts_in(self._hour(piece)) if one.broker == broker]
        rest = [row for row in piece if not any(one.first <= row[0] <= one.last for one in known)]
        return pieces(rest, self._file_bytes_max)

    def _hour(self, piece: Rows) -> Path:
        return self._folder / hour_of(piece[0][1].time_microseconds)

    def _write_file(self, piece: Rows) -> None:
        folder = self._hour(piece)
        part = Part(piece[0][1].broker, piece[0][0], piece[-1][0])
        put_file(folder, part, table_of(piece, self.spaces))


def pieces(rows: Rows, bytes_max: int) -> Iterator[Rows]:
    """Cut into what makes a file each. A row larger than a file has one of its own."""
    piece: Rows = []
    of: tuple[str, str] | None = None
    size = 0
    for sequence, row in rows:
        place = row.broker, hour_of(row.time_microseconds)
        weight = size_of(row)
        if piece and (place != of or sequence != piece[-1][0] + 1 or size + weight > bytes_max):
            yield piece
            piece, size = [], 0
        of = place
        piece.append((sequence, row))
        size += weight
    if piece:
        yield piece


def put_file(folder: Path, part: Part, table: pa.Table) -> None:
    """Whole, or not at all; what was there under this name is replaced."""
    make_folder(folder)
    unfinished = folder / part.unfinished_name
    try:
        pq.write_table(table, unfinished, compression=COMPRESSION)
        settle(unfinished, folder / part.file_name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def settle(unfinished: Path, file: Path) -> None:
    """Give a file that is written its name, for good."""
    flush(unfinished)
    unfinished.rename(file)
    flush(file.parent)


def make_folder(folder: Path) -> None:
    """With those above it, each known to the disk."""
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    for path in reversed(missing):
        with suppress(FileExistsError):  # another broker makes it, too
            path.mkdir()
        flush(path.parent)
