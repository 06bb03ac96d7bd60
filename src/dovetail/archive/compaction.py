"""Compaction: merge the small files of past hours. Readers and writers continue meanwhile.

1. Files of one broker whose ranges follow each other without a gap are merged, up to a size. Files
   around a gap are not: a broker that is down may still have the rows in between.
2. The merged file appears whole, under the name of the whole range. From then on it is in effect,
   and its sources are not (files.py).
3. Sources are deleted at once, or later, to leave time to readers that listed them before.

Compaction may be killed at any moment and run again: an unfinished file has no valid name, and the
rule tells which files to delete.
"""

import fcntl
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.archive.files import (
    UNFINISHED,
    ArchiveError,
    ArchiveFile,
    effective_files,
    files_in,
    hour_folders,
)
from dovetail.archive.limits import COMPACT_ROW_GROUP_BYTES, COMPACT_STALE_SECONDS
from dovetail.archive.writer import COMPRESSION, publish_file
from dovetail.broker.store.database import flush

LOCK_FILE = ".compact.lock"


class CompactionResult(NamedTuple):
    """The result of a compaction."""

    sources: int = 0
    """Files that were merged."""
    files: int = 0
    """Files that they were merged into."""
    rows: int = 0
    """Rows in these."""
    deleted: int = 0
    kept: int = 0
    """Merged files that stay until readers have had their time."""


class SourceFile(NamedTuple):
    """A file to merge."""

    file: ArchiveFile
    size: int
    schema: pa.Schema


def compact(
    folder: Path, now: float, *, file_bytes_max: int, keep_seconds: float = 0
) -> CompactionResult:
    """Compact all hours that are over at `now`. Sources are deleted after `keep_seconds`."""
    done = CompactionResult()
    if not folder.is_dir():
        raise ArchiveError(
            f"there is no folder {folder}.", hint="Name the one that archive.folder names."
        )
    with _locked(folder), _compaction_errors(folder):
        for hour in hour_folders(folder):
            if hour.ends_at <= now:
                found = _compact_hour(hour.folder, now, file_bytes_max, keep_seconds)
                done = CompactionResult(*(sum(pair) for pair in zip(done, found, strict=True)))
    return done


def _compact_hour(
    folder: Path, now: float, file_bytes_max: int, keep_seconds: float
) -> CompactionResult:
    _remove_unfinished(folder, now)
    sources = files = rows = 0
    found = (_inspect(folder, file) for file in effective_files(files_in(folder)))
    for run in mergeable_runs(found, file_bytes_max):
        merged = _merge(folder, run)
        sources += len(run)
        files += 1
        rows += merged.rows
    deleted, kept = _delete_covered(folder, now - keep_seconds if keep_seconds else math.inf)
    return CompactionResult(sources, files, rows, deleted, kept)


def mergeable_runs(sources: Iterable[SourceFile], bytes_max: int) -> Iterator[list[SourceFile]]:
    """Yield lists of two or more files to merge. Sources come by broker and sequence."""
    run: list[SourceFile] = []
    size = 0
    for source in sources:
        follows = (
            run
            and run[-1].file.broker == source.file.broker
            and run[-1].file.last + 1 == source.file.first
            and run[-1].schema.equals(source.schema)
            and size + source.size <= bytes_max
        )
        if not follows:
            if len(run) > 1:
                yield run
            run, size = [], 0
        run.append(source)
        size += source.size
    if len(run) > 1:
        yield run


def _inspect(folder: Path, file: ArchiveFile) -> SourceFile:
    """Return a file's size and schema. An ArchiveError: it lacks rows of its range."""
    path = folder / file.file_name
    with pq.ParquetFile(path) as opened:
        if opened.metadata.num_rows != file.rows:
            raise ArchiveError(
                f"{path} has {opened.metadata.num_rows:,} rows, and {file.rows:,} by its name.",
                hint="It was changed since a broker wrote it. Move it elsewhere to go on without.",
            )
        return SourceFile(file, path.stat().st_size, opened.schema_arrow)


def _merge(folder: Path, run: list[SourceFile]) -> ArchiveFile:
    merged = ArchiveFile(run[0].file.broker, run[0].file.first, run[-1].file.last)
    unfinished = folder / merged.unfinished_name
    try:
        rows = _copy(folder, run, unfinished)
        if rows != merged.rows:  # a file changed under our hands
            raise ArchiveError(f"{folder}: {rows:,} rows were read of {merged.rows:,}.")
        publish_file(unfinished, folder / merged.file_name)
    finally:
        unfinished.unlink(missing_ok=True)
    return merged


def _copy(folder: Path, run: list[SourceFile], target: Path) -> int:
    rows = size = 0
    batches: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, run[0].schema, compression=COMPRESSION) as writer:

        def write() -> None:
            table = pa.Table.from_batches(batches, run[0].schema)
            writer.write_table(table, row_group_size=max(len(table), 1))

        for source in run:
            with pq.ParquetFile(folder / source.file.file_name) as opened:
                for batch in opened.iter_batches():
                    batches.append(batch)
                    rows += len(batch)
                    size += batch.nbytes
                    if size >= COMPACT_ROW_GROUP_BYTES:
                        write()
                        batches, size = [], 0
        if batches:
            write()
    return rows


def _delete_covered(folder: Path, before: float) -> tuple[int, int]:
    """Delete files that have been covered since `before`.

    Return how many were deleted, and how many stay for now.
    """
    files = files_in(folder)
    effective = effective_files(files)
    covered = {
        file: merged
        for file in files
        for merged in effective
        if file != merged and merged.covers(file)
    }
    deleted = 0
    for merged in set(covered.values()):
        if (folder / merged.file_name).stat().st_mtime > before:
            continue
        _inspect(folder, merged)  # never delete the sources of a file that is not whole
        for file in (file for file, by in covered.items() if by == merged):
            (folder / file.file_name).unlink(missing_ok=True)
            deleted += 1
    if deleted:
        flush(folder)
    return deleted, len(covered) - deleted


def _remove_unfinished(folder: Path, now: float) -> None:
    """Delete files that a killed writer left unfinished. A live writer would retry."""
    for file in folder.glob(f".*{UNFINISHED}"):
        with suppress(FileNotFoundError):  # its writer has just given it its name
            if file.stat().st_mtime < now - COMPACT_STALE_SECONDS:
                file.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with _compaction_errors(folder):
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"{folder} is being compacted already.") from None
        yield
    finally:
        os.close(lock)


@contextmanager
def _compaction_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(
            f"{folder} could not be compacted: {error}", hint="What it holds is all still there."
        ) from error
