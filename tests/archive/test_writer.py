"""Rows to files: split correctly, each row once, whatever happened before."""

import random
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.archive import writer
from dovetail.archive.files import ArchiveFile, files_of, hour_path, parse_file_name
from dovetail.archive.rows import table_of
from dovetail.archive.writer import ArchiveWriter, split_into_files, write_file
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import WriteOutcome, size_of
from support.archives import BEGIN, HOUR, read, row, rows_of, sequences
from support.processes import mounts

LARGE = 1 << 30
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system that syncs at once, where there is one


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, HOUR), st.binary(max_size=400)), max_size=20
    )
)
def test_a_file_is_of_one_hour_without_gaps_and_small_enough(
    steps: list[tuple[int, int, bytes]],
) -> None:
    rows, sequence, time = [], 0, BEGIN
    for step, pause, payload in steps:
        sequence += step
        time += pause
        rows.append((sequence, row(time, payload=payload)))
    cut = [*split_into_files(rows, 1_000)]
    assert [one for piece in cut for one in piece] == rows
    for piece in cut:
        assert len({hour_path(one.time_microseconds) for _, one in piece}) == 1
        assert piece[-1][0] - piece[0][0] == len(piece) - 1
        assert len(piece) == 1 or sum(size_of(one) for _, one in piece) <= 1_000
    for before, after in pairwise(cut):  # no piece is cut without need
        assert (
            after[0][0] != before[-1][0] + 1
            or hour_path(after[0][1].time_microseconds) != hour_path(before[0][1].time_microseconds)
            or sum(size_of(one) for _, one in (*before, after[0])) > 1_000
        )


class Killed(BaseException):
    """Like SIGKILL: the code under test does not catch it."""


class Fragile:
    """`publish_file` in a process that ends before or after one of its renames."""

    def __init__(self, moment: int) -> None:
        self._moment = moment
        self._real = writer.publish_file

    def __call__(self, unfinished: Path, file: Path) -> None:
        self._tick()
        self._real(unfinished, file)
        self._tick()

    def _tick(self) -> None:
        if not self._moment:
            raise Killed
        self._moment -= 1


LIVES = st.lists(
    st.tuples(
        st.integers(0, 3),  # publications
        st.sampled_from([BEGIN, BEGIN + HOUR]),
        st.sampled_from([600, LARGE]),  # bytes of a file
        st.integers(0, 9),  # when it is killed
        st.booleans(),  # have rows that are in files left the store?
    ),
    max_size=4,
)


@settings(max_examples=30)
@given(LIVES)
def test_every_row_is_in_one_file_whenever_the_process_ends(
    lives: list[tuple[int, int, int, int, bool]],
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        published = store = rows_of(range(1, 4)) + rows_of(range(4, 7), BEGIN + HOUR)
        for number, (count, time, file_bytes, moment, is_noted) in enumerate(lives, 1):
            new = rows_of(range(100 * number, 100 * number + count), time)
            published, store = published + new, store + new
            archive_writer = ArchiveWriter(folder, file_bytes, SpaceRegistry())
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                patch.setattr(writer, "publish_file", Fragile(moment))
                outcome = archive_writer.write(store)
                if is_noted:
                    store = [one for one in store if one[0] > outcome.last]
        assert ArchiveWriter(folder, LARGE, SpaceRegistry()).write(store).error is None
        assert sorted(sequences(folder)) == [sequence for sequence, _ in published]
        for file in files_of(folder):
            part = parse_file_name(file.name)
            assert part is not None
            assert part.rows == pq.ParquetFile(file).metadata.num_rows


def test_rows_wait_for_a_folder_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.write_text("a file stands here")
    archive_writer = ArchiveWriter(folder, LARGE, SpaceRegistry())
    outcome = archive_writer.write(rows_of([1, 2]))
    assert (outcome.last, outcome.files) == (0, 0)
    assert isinstance(outcome.error, NotADirectoryError)
    folder.unlink()
    assert archive_writer.write(rows_of([1, 2, 3])) == WriteOutcome(3, 1)
    assert archive_writer.write(rows_of([4])) == WriteOutcome(4, 1)
    assert sequences(folder) == [1, 2, 3, 4]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    with mounts.small_disk(tmp_path / "disk", 1 << 20) as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes((1 << 20) - 8_192))
        archive_writer = ArchiveWriter(disk / "archive", LARGE, SpaceRegistry())
        noise = random.Random(1)
        rows = [(number, row(payload=noise.randbytes(20_000))) for number in range(1, 40)]
        outcome = archive_writer.write(rows)
        assert isinstance(outcome.error, OSError)
        assert outcome.last == 0
        left = [path for path in (disk / "archive").rglob("*") if path.is_file()]
        assert left == []
        filler.unlink()
        assert archive_writer.write(rows) == WriteOutcome(39, 1)
        assert sequences(disk / "archive") == [*range(1, 40)]


def test_a_file_is_replaced_by_the_same_one(tmp_path: Path) -> None:
    for payload in (b"one", b"other"):
        table = table_of([(1, row(payload=payload))], SpaceRegistry())
        write_file(tmp_path / hour_path(BEGIN), ArchiveFile("one", 1, 1), table)
    assert [one["payload"] for one in read(tmp_path)] == [b"other"]
