"""Compaction loses and doubles nothing, even when it is killed or readers are at work."""

import os
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.archive import compaction
from dovetail.archive.compaction import CompactionResult, compact
from dovetail.archive.files import ArchiveError, ArchiveFile, files_in, files_of, hour_path
from dovetail.archive.rows import table_of
from dovetail.archive.writer import write_file
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.cli.command import main
from support.archives import BEGIN, HOUR, read, rows_of, sequences
from support.processes.broker_process import wait_until

OVER = (BEGIN + 2 * HOUR) / 1e6
LARGE = 1 << 30
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system that syncs at once, where there is one


def archive(folder: Path, *ranges: tuple[int, int], broker: str = "one", hour: int = 0) -> Path:
    """Write one file for each range, and return the folder of the hour."""
    time = BEGIN + hour * HOUR
    place = folder / hour_path(time)
    for first, last in ranges:
        rows = [
            (sequence, row._replace(broker=broker))
            for sequence, row in rows_of(range(first, last + 1), time)
        ]
        write_file(place, ArchiveFile(broker, first, last), table_of(rows, SpaceRegistry()))
    return place


def test_neighbouring_files_are_merged(tmp_path: Path) -> None:
    place = archive(tmp_path, (1, 3), (4, 4), (5, 9), (101, 102), (103, 105), (200, 201))
    archive(tmp_path, (1, 3), (4, 4), broker="two")
    other = archive(tmp_path, (10, 11), (12, 13), hour=2)  # which is not over
    before = sorted(map(str, read(tmp_path)))
    assert compact(tmp_path, OVER, file_bytes_max=LARGE) == CompactionResult(7, 3, 18, 7, 0)
    assert [file.name for file in files_of(tmp_path) if file.parent == place] == [
        "one-1-9.parquet",
        "one-101-105.parquet",
        "one-200-201.parquet",
        "two-1-4.parquet",
    ]
    assert len(files_in(other)) == 2
    assert sorted(map(str, read(tmp_path))) == before
    assert pq.ParquetFile(place / "one-1-9.parquet").num_row_groups == 1
    assert compact(tmp_path, OVER, file_bytes_max=LARGE) == CompactionResult()


def test_merged_files_have_a_maximal_size(tmp_path: Path) -> None:
    place = archive(tmp_path, *((number, number) for number in range(1, 9)))
    size = (place / "one-1-1.parquet").stat().st_size
    compact(tmp_path, OVER, file_bytes_max=4 * size + size // 2)
    assert sorted(file.name for file in files_of(tmp_path)) == [
        "one-1-4.parquet",
        "one-5-8.parquet",
    ]
    assert sequences(tmp_path) == [*range(1, 9)]


def test_merged_files_may_stay_for_readers(tmp_path: Path) -> None:
    place = archive(tmp_path, (1, 2), (3, 4))
    listed = files_of(tmp_path)
    done = compact(tmp_path, OVER, file_bytes_max=LARGE, keep_seconds=1e9)
    assert done == CompactionResult(2, 1, 4, 0, 2)
    assert [pq.ParquetFile(file).metadata.num_rows for file in listed] == [2, 2]
    assert sequences(tmp_path) == [1, 2, 3, 4]
    os.utime(place / "one-1-4.parquet", (1, 1))
    done = compact(tmp_path, OVER, file_bytes_max=LARGE, keep_seconds=60)
    assert done == CompactionResult(deleted=2)
    assert len(files_in(place)) == 1


def test_an_incomplete_file_is_left_alone(tmp_path: Path) -> None:
    place = archive(tmp_path, (1, 2), (3, 4))
    (place / "one-3-4.parquet").rename(place / "one-3-5.parquet")
    with pytest.raises(ArchiveError, match="2 rows, and 3 by its name"):
        compact(tmp_path, OVER, file_bytes_max=LARGE)
    (place / "one-3-5.parquet").write_bytes(b"no Parquet")
    with pytest.raises(ArchiveError, match="could not be compacted"):
        compact(tmp_path, OVER, file_bytes_max=LARGE)
    assert len(files_in(place)) == 2


def test_files_of_a_killed_writer_are_deleted_in_time(tmp_path: Path) -> None:
    place = archive(tmp_path, (1, 2))
    old, new = place / ".one-3-4.parquet.part", place / ".one-5-6.parquet.part"
    for file, time in ((old, OVER - 4_000), (new, OVER)):
        file.touch()
        os.utime(file, (time, time))
    (place / ".one-7-8.parquet.part").symlink_to("renamed-since-it-was-listed")
    compact(tmp_path, OVER, file_bytes_max=LARGE)
    assert not old.exists()
    assert new.exists()


class Killed(BaseException):
    """Like SIGKILL: the code under test does not catch it."""


class Fragile:
    """A process that ends before or after one of its renames, or before a deletion."""

    def __init__(self, moment: int) -> None:
        self._moment = moment
        self._unlink = Path.unlink

    def put_into(self, patch: pytest.MonkeyPatch) -> None:
        def settle(unfinished: Path, file: Path) -> None:
            self._tick()
            unfinished.rename(file)
            self._tick()

        def unlink(file: Path, missing_ok: bool = False) -> None:
            if not file.name.startswith("."):
                self._tick()
            self._unlink(file, missing_ok=missing_ok)

        patch.setattr(compaction, "publish_file", settle)
        patch.setattr(Path, "unlink", unlink)

    def _tick(self) -> None:
        if not self._moment:
            raise Killed
        self._moment -= 1


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=7),
    st.lists(st.integers(0, 12), max_size=3),
    st.sampled_from([6_000, LARGE]),
)
def test_every_row_counts_once_whenever_it_is_killed(
    files: list[tuple[int, bool]], moments: list[int], file_bytes_max: int
) -> None:
    """Before and after every rename and deletion."""
    ranges, at = [], 1
    for count, has_gap in files:
        at += 50 * has_gap
        ranges.append((at, at + count - 1))
        at += count
    expected = [sequence for first, last in ranges for sequence in range(first, last + 1)]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        archive(folder, *ranges)
        for moment in moments:
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                Fragile(moment).put_into(patch)
                compact(folder, OVER, file_bytes_max=file_bytes_max)
            assert sequences(folder) == expected
        compact(folder, OVER, file_bytes_max=LARGE)
        assert sequences(folder) == expected
        gaps = sum(has_gap for _, has_gap in files[1:])
        assert len(files_in(folder / hour_path(BEGIN))) == len(files_of(folder)) == 1 + gaps


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    """By SIGKILL, in the middle of its work."""
    for hour in range(-10, 0):
        archive(tmp_path, *((2 * number, 2 * number + 1) for number in range(8)), hour=hour)
    expected = sequences(tmp_path)
    enough = len(files_of(tmp_path)) - random.randrange(1, 60)
    program = (
        "import sys; from pathlib import Path; from dovetail.archive.compaction import compact;"
        "compact(Path(sys.argv[1]), 4e9, file_bytes_max=1 << 30)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as process:
        wait_until(lambda: len(files_of(tmp_path)) <= enough, "files put together")
        process.kill()
    assert sequences(tmp_path) == expected
    compact(tmp_path, 4e9, file_bytes_max=LARGE)
    assert sequences(tmp_path) == expected
    assert len(files_of(tmp_path)) == 10


def test_only_one_at_a_time(tmp_path: Path) -> None:
    archive(tmp_path, (1, 1))
    with (
        compaction._locked(tmp_path),
        pytest.raises(ArchiveError, match="is being compacted already"),
    ):
        compact(tmp_path, OVER, file_bytes_max=LARGE)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["dovetail", "compact", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out + printed.err

    archive(tmp_path, (1, 2), (3, 4), hour=-24 * 300)
    code, said = run(str(tmp_path))
    assert code == 0
    assert f"{tmp_path}: 2 files with 4 rows are 1 now (" in said
    assert "\ndeleted: 2 files" in said
    code, said = run(str(tmp_path / "missing"))
    assert code == 2
    assert "there is no folder" in said
