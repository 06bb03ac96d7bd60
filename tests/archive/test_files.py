"""Which files of an archive are in effect: names, hours, and files that cover others."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.archive.files import (
    ArchiveError,
    ArchiveFile,
    effective_files,
    files_of,
    hour_folders,
    hour_path,
    parse_file_name,
)

BROKERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
RANGES = st.tuples(st.integers(1, 30), st.integers(0, 8))
PARTS = st.builds(
    lambda broker, found: ArchiveFile(broker, found[0], sum(found)), st.sampled_from("ab"), RANGES
)


@given(BROKERS, st.integers(0, 2**62), st.integers(0, 2**62))
def test_names_are_parsed(broker: str, one: int, other: int) -> None:
    file = ArchiveFile(broker, min(one, other), max(one, other))
    assert parse_file_name(file.file_name) == file
    assert parse_file_name(file.unfinished_name) is None


@pytest.mark.parametrize(
    "name",
    [
        "a-1-2",
        "a-2-1.parquet",
        "a-01-2.parquet",
        "1-2.parquet",
        ".a-1-2.parquet",
        "a-1-2.parquet.x",
    ],
)
def test_other_files_are_ignored(name: str) -> None:
    assert parse_file_name(name) is None


@given(st.lists(PARTS, max_size=8))
def test_a_file_is_in_effect_unless_another_one_covers_it(files: list[ArchiveFile]) -> None:
    kept = effective_files(files)
    assert set(kept) == {
        file for file in files if not any(one.covers(file) for one in files if one != file)
    }
    assert kept == sorted(kept)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.data())
def test_rows_count_once_whichever_sources_are_left(sizes: list[int], data: st.DataObject) -> None:
    """Disjoint ranges. Some neighbours are merged, and some sources deleted already."""
    files, at = [], 1
    for size in sizes:
        files.append(ArchiveFile("a", at, at + size - 1))
        at += size
    begin = data.draw(st.integers(0, len(files) - 1))
    end = data.draw(st.integers(begin + 1, len(files)))
    whole = ArchiveFile("a", files[begin].first, files[end - 1].last)
    left = [
        file
        for number, file in enumerate(files)
        if not begin <= number < end or data.draw(st.booleans())
    ]
    rows = [
        sequence
        for file in effective_files([*left, whole])
        for sequence in range(file.first, file.last + 1)
    ]
    assert rows == [*range(1, at)]


@given(st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1)))
def test_hours_are_of_utc(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    microseconds = round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000
    folder = hour_path(microseconds)
    assert folder.startswith("day=")
    begins = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    assert folder == f"day={begins:%Y-%m-%d}/hour={begins:%H}"


def test_listing(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="no folder"):
        files_of(tmp_path / "missing")
    assert files_of(tmp_path) == []
    late, early = tmp_path / "day=2026-11-16/hour=17", tmp_path / "day=2026-11-16/hour=03"
    others = tmp_path / "day=2026-02-31/hour=00", tmp_path / "day=2026-11-16/hour=24"
    for folder in (late, early, *others, tmp_path / "subscriptions"):
        folder.mkdir(parents=True)
        for name in ("b-1-9", "a-4-6", "a-1-3", "a-1-6", "a-7-8"):
            (folder / f"{name}.parquet").touch()
        (folder / ".a-9-9.parquet.part").touch()
        (folder / "readme").touch()
    names = ["a-1-6.parquet", "a-7-8.parquet", "b-1-9.parquet"]
    assert files_of(tmp_path) == [folder / name for folder in (early, late) for name in names]
    ends = [datetime.fromtimestamp(hour.ends_at, UTC) for hour in hour_folders(tmp_path)]
    assert [f"{end:%F %T}" for end in ends] == ["2026-11-16 04:00:00", "2026-11-16 18:00:00"]
