"""Names of files, and which of them count: all that says which rows the archive has.

A file is called `BROKER-FIRST-LAST.parquet`, and has LAST - FIRST + 1 rows: those of that broker
with each sequence from FIRST to LAST. It lies in the folder of the hour (UTC) in which they were
published, `day=2026-11-16/hour=17`.

The rule: **a file counts unless another one in the same folder covers it**: one of the same
broker, with a range that its own lies in. A broker writes ranges that rise and do not overlap, so
that only happens where files were put together (compaction.py): the new one covers those that it
was made of from the moment it appears, whether or not they are gone yet. So every row counts once,
whatever was killed at whatever moment.

A file appears whole: it is written under a name that begins with a dot, and renamed. Other files
than these are not looked at. Nothing here needs pyarrow.
"""

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dovetail.errors import DovetailError

_NAME = re.compile(r"([A-Za-z0-9._-]+)-([0-9]{1,19})-([0-9]{1,19})\.parquet")
_DAY = re.compile(r"day=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_VERSION = re.compile(r"version=([0-9]{1,18})")
_HOUR = re.compile(r"hour=([0-9]{2})")

UNFINISHED = ".part"
"""The end of a name that a file has while it is written; it begins with a dot."""


class ArchiveError(DovetailError):
    """The archive cannot be read, or not be put in order."""


class Part(NamedTuple):
    """What the name of a file says."""

    broker: str
    first: int
    last: int

    @property
    def file_name(self) -> str:
        return f"{self.broker}-{self.first}-{self.last}.parquet"

    @property
    def unfinished_name(self) -> str:
        return f".{self.file_name}{UNFINISHED}"

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    def covers(self, other: "Part") -> bool:
        return self.broker == other.broker and self.first <= other.first and other.last <= self.last


class Hour(NamedTuple):
    """A folder of the archive, and when its hour is over, in Unix seconds."""

    folder: Path
    ends_at: float


def part_of(name: str) -> Part | None:
    """What a name of a file says; None if it is none of the archive."""
    found = _NAME.fullmatch(name)
    if found is None or name.startswith("."):
        return None
    part = Part(found[1], int(found[2]), int(found[3]))
    return part if part.first <= part.last and part.file_name == name else None


def hour_of(time_microseconds: int) -> str:
    """The folder of a moment, within the archive's."""
    return datetime.fromtimestamp(time_microseconds // 1_000_000, UTC).strftime(
        "day=%Y-%m-%d/hour=%H"
    )


def counting(parts: Iterable[Part]) -> list[Part]:
    """Those of one folder that no other one covers, by broker and sequence."""
    kept: list[Part] = []
    # A part that covers another comes before it.
    for part in sorted(set(parts), key=lambda one: (one.broker, one.first, -one.last)):
        if not (kept and kept[-1].covers(part)):
            kept.append(part)
    return kept


def parts_in(folder: Path) -> list[Part]:
    """All files of the archive in the folder of an hour; of one that is not there, none."""
    try:
        names = [one.name for one in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [part for name in names if (part := part_of(name)) is not None]


def hours_in(folder: Path) -> Iterator[Hour]:
    """The folders of hours, in their order."""
    for day in sorted(_folders(folder)):
        found_day = _DAY.fullmatch(day)
        if found_day is None:
            continue
        for hour in sorted(_folders(folder / day)):
            found_hour = _HOUR.fullmatch(hour)
            if found_hour is None or int(found_hour[1]) > 23:
                continue
            try:
                begins = datetime.fromisoformat(f"{found_day[1]}T{found_hour[1]}:00:00+00:00")
            except ValueError:  # a 31st of February
                continue
            yield Hour(folder / day / hour, begins.timestamp() + 3_600)


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:  # it went since we heard of it
        return []


def files_of(folder: str | os.PathLike[str]) -> list[Path]:
    """The files that count, in the order of hours, brokers and sequences. What jobs read.

    While files are put together a listing can miss one that came and others that went, so it is
    made until two agree. A file that is put into another one between this and its reading is not
    found any more: then list again.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ArchiveError(
            f"{root} is no folder that is there.", hint="Name the one that archive.folder names."
        )
    listed = _listed(root)
    while (again := _listed(root)) != listed:
        listed = again
    return listed


def _listed(folder: Path) -> list[Path]:
    return [
        hour.folder / part.file_name
        for hour in hours_in(folder)
        for part in counting(parts_in(hour.folder))
    ]


# Subscriptions ------------------------------------------------------------------------------------


def subscriptions_of(folder: str | os.PathLike[str], version: int | None = None) -> list[Path]:
    """The files with the subscriptions of all brokers: of each the newest, up to this version."""
    newest: dict[str, Path] = {}
    for number, file in _versions(Path(folder)):
        if version is None or number <= version:
            newest[file.name] = file
    return [newest[name] for name in sorted(newest)]


def versions_of(folder: Path, broker: str) -> list[tuple[int, Path]]:
    """The files with this broker's subscriptions, by version."""
    name = f"{broker}.parquet"
    return [(version, file) for version, file in _versions(folder) if file.name == name]


def _versions(folder: Path) -> list[tuple[int, Path]]:
    root = folder / "subscriptions"
    found: list[tuple[int, Path]] = []
    for name in _folders(root):
        version = _VERSION.fullmatch(name)
        if version is not None:
            files = [*(root / name).glob("[!._]*.parquet")]
            found += [(int(version[1]), file) for file in files]
    return sorted(found)
