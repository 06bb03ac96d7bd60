"""Files by broker and sequence, while files are added and merged."""

from pathlib import Path

import pytest

from dovetail.archive.compaction import compact
from dovetail.archive.files import ArchiveError, files_of
from dovetail.archive.sequences import Run
from dovetail.archive.tail import ArchiveTail
from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import SpaceRegistry
from support.archives import BEGIN, HOUR, rows_of

MANY = 1 << 30


def write(folder: Path, *sequences: range, time: int = BEGIN) -> None:
    writer = ArchiveWriter(folder, 1 << 20, SpaceRegistry())
    for some in sequences:
        assert writer.write(rows_of(some, time)).error is None


def all_of(tail: ArchiveTail, after: int = 0, upto: int = 10**9, rows_max: int = MANY) -> list[int]:
    found: list[int] = []
    while after < upto:
        piece = tail.read("one", after, upto, rows_max, MANY)
        assert len(piece.table) <= rows_max
        found += piece.table["sequence"].to_pylist()
        after = piece.upto
    return found


@pytest.fixture
def tail(tmp_path: Path) -> ArchiveTail:
    return ArchiveTail(tmp_path, clock=lambda: 0.0)


def test_rows_above_an_offset_in_pieces_of_any_size(tmp_path: Path, tail: ArchiveTail) -> None:
    write(tmp_path, range(1, 11), range(11, 12), range(500, 520))
    write(tmp_path, range(520, 530), time=BEGIN + HOUR)
    tail.refresh()
    there = [*range(1, 12), *range(500, 530)]
    assert tail.runs("one") == [(1, 11), (500, 529)]
    for rows_max in (1, 3, 7, MANY):
        assert all_of(tail, rows_max=rows_max) == there
    assert all_of(tail, after=9, upto=501) == [10, 11, 500, 501]
    assert all_of(tail, after=11, upto=400) == []
    assert tail.read("one", 0, 529, MANY, 1).table["sequence"].to_pylist() == [1]
    assert tail.read("nobody", 0, 9, 9, 9).upto == 9


def test_a_reader_continues_during_compaction(tmp_path: Path, tail: ArchiveTail) -> None:
    write(tmp_path, *(range(start, start + 5) for start in range(1, 51, 5)))
    tail.refresh()
    first = tail.read("one", 0, 50, 13, MANY)
    compact(tmp_path, BEGIN / 1e6 + 3_600, file_bytes_max=1 << 20)
    assert len(files_of(tmp_path)) == 1
    assert first.table["sequence"].to_pylist() + all_of(tail, first.upto, 50) == [*range(1, 51)]


def test_merged_files_beside_their_sources_double_nothing(
    tmp_path: Path, tail: ArchiveTail
) -> None:
    write(tmp_path, range(1, 6), range(6, 11))
    compact(tmp_path, BEGIN / 1e6 + 3_600, file_bytes_max=1 << 20, keep_seconds=1e12)
    write(tmp_path, range(11, 13))
    tail.refresh()
    assert all_of(tail) == [*range(1, 13)]


def test_new_files_are_seen_even_if_clocks_stand_still(tmp_path: Path, tail: ArchiveTail) -> None:
    runs: list[list[Run]] = []
    tail.refresh()
    for end in (3, 5, 9):
        write(tmp_path, range(sum(last for [(_, last)] in runs[-1:]) + 1, end + 1))
        tail.refresh()
        runs.append(tail.runs("one"))
    assert runs == [[(1, 3)], [(1, 5)], [(1, 9)]]


def test_a_damaged_file_is_named(tmp_path: Path, tail: ArchiveTail) -> None:
    write(tmp_path, range(1, 4))
    (file,) = files_of(tmp_path)
    file.write_bytes(b"PAR1 and then nothing")
    tail.refresh()
    with pytest.raises(ArchiveError, match=file.name):
        all_of(tail)
