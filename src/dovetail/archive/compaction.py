"""Few files of many: a job for hours that are over. Nothing that reads or writes need stop for it.

1. Files of one broker whose ranges follow each other without a gap are put into one, up to a size.
   A gap could be of rows that are still to come, from a broker that is down, so nothing is put
   together over it.
2. The new file appears whole, under the name of the whole range. From then on it counts, and those
   that it was made of do not (files.py).
3. Files that do not count are deleted: at once, or when readers that listed them before have had
   their time.

It may be killed at any moment, and run again: what is half written has no name, and what is to be
deleted is found by the rule.
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
    Part,
    counting,
    hours_in,
    parts_in,
)
from dovetail.archive.limits import COMPACT_ROW_GROUP_BYTES, COMPACT_STALE_SECONDS
from dovetail.archive.writer import COMPRESSION, settle
from dovetail.broker.store.database import flush

LOCK_FILE = ".compact.lock"


class Compacted(NamedTuple):
    """What was done."""

    sources: int = 0
    """Files that were put into others,"""
    files: int = 0
    """which are so many,"""
    rows: int = 0
    """and have so many rows."""
    deleted: int = 0
    kept: int = 0
    """Files that do not count, and stay until readers have had their time."""


class Source(NamedTuple):
    """A file as it is found."""

    part: Part
    size: int
    schema: pa.Schema


def compact(folder: Path, now: float, *, file_bytes_max: int, keep_seconds: float = 0) -> Compacted:
    """All hours that are over at `now`. `keep_seconds`: what does not count is left for so long."""
    done = Compacted()
    if not folder.is_dir():
        raise ArchiveError(
            f"{folder} is no folder that is there.", hint="Name the one that archive.folder names."
        )
    with _only_one(folder), _explained(folder):
        for hour in hours_in(folder):
            if hour.ends_at <= now:
                found = _compact_hour(hour.folder, now, file_bytes_max, keep_seconds)
                done = Compacted(*(sum(pair) for pair in zip(done, found, strict=True)))
    return done


def _compact_hour(folder: Path, now: float, file_bytes_max: int, keep_seconds: float) -> Compacted:
    _remove_unfinished(folder, now)
    sources = files = rows = 0
    found = (_look_at(folder, part) for part in counting(parts_in(folder)))
    for run in runs(found, file_bytes_max):
        whole = _put_together(folder, run)
        sources += len(run)
        files += 1
        rows += whole.rows
    deleted, kept = _sweep(folder, now - keep_seconds if keep_seconds else math.inf)
    return Compacted(sources, files, rows, deleted, kept)


def runs(sources: Iterable[Source], bytes_max: int) -> Iterator[list[Source]]:
    """Two or more files each that can be one; sources come by broker and sequence."""
    run: list[Source] = []
    size = 0
    for source in sources:
        follows = (
            run
            and run[-1].part.broker == source.part.broker
            and run[-1].part.last + 1 == source.part.first
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


def _look_at(folder: Path, part: Part) -> Source:
    file = folder / part.file_name
    with pq.ParquetFile(file) as opened:
        if opened.metadata.num_rows != part.rows:
            raise ArchiveError(
                f"{file} has {opened.metadata.num_rows:,} rows, and {part.rows:,} by its name.",
                hint="It was changed since a broker wrote it. Move it elsewhere to go on without.",
            )
        return Source(part, file.stat().st_size, opened.schema_arrow)


def _put_together(folder: Path, run: list[Source]) -> Part:
    whole = Part(run[0].part.broker, run[0].part.first, run[-1].part.last)
    unfinished = folder / whole.unfinished_name
    try:
        rows = _copy(folder, run, unfinished)
        if rows != whole.rows:  # a file changed under our hands
            raise ArchiveError(f"{folder}: {rows:,} rows were read of {whole.rows:,}.")
        settle(unfinished, folder / whole.file_name)
    finally:
        unfinished.unlink(missing_ok=True)
    return whole


def _copy(folder: Path, run: list[Source], target: Path) -> int:
    rows = size = 0
    batches: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, run[0].schema, compression=COMPRESSION) as writer:

        def write() -> None:
            table = pa.Table.from_batches(batches, run[0].schema)
            writer.write_table(table, row_group_size=max(len(table), 1))

        for source in run:
            with pq.ParquetFile(folder / source.part.file_name) as opened:
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


def _sweep(folder: Path, before: float) -> tuple[int, int]:
    """Delete what does not count since `before`; returns how many went, and how many stay."""
    parts = parts_in(folder)
    wholes = counting(parts)
    covered = {
        part: whole for part in parts for whole in wholes if part != whole and whole.covers(part)
    }
    deleted = 0
    for whole in set(covered.values()):
        if (folder / whole.file_name).stat().st_mtime > before:
            continue
        _look_at(folder, whole)  # sure that it is whole, or nothing goes
        for part in (part for part, of in covered.items() if of == whole):
            (folder / part.file_name).unlink(missing_ok=True)
            deleted += 1
    if deleted:
        flush(folder)
    return deleted, len(covered) - deleted


def _remove_unfinished(folder: Path, now: float) -> None:
    """What was being written when its writer was killed. A writer that lives would try again."""
    for file in folder.glob(f".*{UNFINISHED}"):
        with suppress(FileNotFoundError):  # its writer has just given it its name
            if file.stat().st_mtime < now - COMPACT_STALE_SECONDS:
                file.unlink()


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    with _explained(folder):
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
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(
            f"{folder} could not be compacted: {error}", hint="What it holds is all still there."
        ) from error
