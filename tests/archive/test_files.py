"""Which files of an archive count: names, hours, and files that cover others."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.archive.files import (
    ArchiveError,
    Part,
    counting,
    files_of,
    hour_of,
    hours_in,
    part_of,
)

BROKERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
RANGES = st.tuples(st.integers(1, 30), st.integers(0, 8))
PARTS = st.builds(
    lambda broker, found: Part(broker, found[0], sum(found)), st.sampled_from("ab"), RANGES
)


@given(BROKERS, st.integers(0, 2**62), st.integers(0, 2**62))
def test_names_say_what_is_in_a_file(broker: str, one: int, other: int) -> None:
    part = Part(broker, min(one, other), max(one, other))
    assert part_of(part.file_name) == part
    assert part_of(part.unfinished_name) is None


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
def test_other_files_are_not_looked_at(name: str) -> None:
    assert part_of(name) is None


@given(st.lists(PARTS, max_size=8))
def test_a_file_counts_unless_another_covers_it(parts: list[Part]) -> None:
    kept = counting(parts)
    assert set(kept) == {
        part for part in parts if not any(one.covers(part) for one in parts if one != part)
    }
    assert kept == sorted(kept)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.data())
def test_files_put_together_count_once_whatever_is_left_of_them(
    sizes: list[int], data: st.DataObject
) -> None:
    """Disjoint ranges; some neighbours put together; any of the sources deleted already."""
    parts, at = [], 1
    for size in sizes:
        parts.append(Part("a", at, at + size - 1))
        at += size
    begin = data.draw(st.integers(0, len(parts) - 1))
    end = data.draw(st.integers(begin + 1, len(parts)))
    whole = Part("a", parts[begin].first, parts[end - 1].last)
    left = [
        part
        for number, part in enumerate(parts)
        if not begin <= number < end or data.draw(st.booleans())
    ]
    rows = [
        sequence
        for part in counting([*left, whole])
        for sequence in range(part.first, part.last + 1)
    ]
    assert rows == [*range(1, at)]


@given(st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1)))
def test_hours_are_of_utc(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    microseconds = round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000
    folder = hour_of(microseconds)
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
    ends = [datetime.fromtimestamp(hour.ends_at, UTC) for hour in hours_in(tmp_path)]
    assert [f"{end:%F %T}" for end in ends] == ["2026-11-16 04:00:00", "2026-11-16 18:00:00"]
