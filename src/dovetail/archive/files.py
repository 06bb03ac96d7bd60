"""File names of the archive, and the rule which files are in effect. Needs no pyarrow.

A file `BROKER-FIRST-LAST.parquet` has LAST - FIRST + 1 rows: that broker's rows with each sequence
from FIRST to LAST. It lies in the folder of the hour (UTC) in which they were published,
`day=2026-11-16/hour=17`.

The rule: **a file is in effect unless another file in the same folder covers it**. A file covers
another one of the same broker if its range includes the other's range. A broker writes ranges that
rise and do not overlap. So only a file merged by compaction (compaction.py) covers others: its
sources, from the moment it appears, even before they are deleted. So every row is read once,
whatever is killed at whatever moment.

A file appears whole: it is written under a name that begins with a dot, and renamed. Other files
are ignored.
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
"""The end of the name of a file that is being written. Such a name begins with a dot."""


class ArchiveError(DovetailError):
    """The archive cannot be read or compacted."""


class ArchiveFile(NamedTuple):
    """A file of the archive, as its name describes it."""

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

    def covers(self, other: "ArchiveFile") -> bool:
        return self.broker == other.broker and self.first <= other.first and other.last <= self.last


class HourFolder(NamedTuple):
    """The folder of an hour."""

    folder: Path
    ends_at: float
    """When the hour is over, in Unix seconds."""


def parse_file_name(name: str) -> ArchiveFile | None:
    """Return the file of this name; None if it is not one of the archive."""
    found = _NAME.fullmatch(name)
    if found is None or name.startswith("."):
        return None
    file = ArchiveFile(found[1], int(found[2]), int(found[3]))
    return file if file.first <= file.last and file.file_name == name else None


def hour_path(time_microseconds: int) -> str:
    """Return the folder of a moment's hour, relative to the archive's folder."""
    return datetime.fromtimestamp(time_microseconds // 1_000_000, UTC).strftime(
        "day=%Y-%m-%d/hour=%H"
    )


def effective_files(files: Iterable[ArchiveFile]) -> list[ArchiveFile]:
    """Return the files of one folder that no other file covers, by broker and sequence."""
    kept: list[ArchiveFile] = []
    # A file that covers another one sorts before it.
    for file in sorted(set(files), key=lambda one: (one.broker, one.first, -one.last)):
        if not (kept and kept[-1].covers(file)):
            kept.append(file)
    return kept


def files_in(folder: Path) -> list[ArchiveFile]:
    """Return all files in the folder of an hour; none if the folder is missing."""
    try:
        names = [one.name for one in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [file for name in names if (file := parse_file_name(name)) is not None]


def hour_folders(folder: Path) -> Iterator[HourFolder]:
    """Yield the folders of hours, in the order of time."""
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
            yield HourFolder(folder / day / hour, begins.timestamp() + 3_600)


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:  # deleted meanwhile
        return []


def files_of(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the files in effect, by hour, broker and sequence, for jobs to read.

    During compaction a listing can miss both a merged file and its sources, so listings are
    repeated until two agree. If a listed file is missing when it is read, it was merged since: list
    again.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ArchiveError(
            f"there is no folder {root}.", hint="Name the one that archive.folder names."
        )
    listed = _listed(root)
    while (again := _listed(root)) != listed:
        listed = again
    return listed


def _listed(folder: Path) -> list[Path]:
    return [
        hour.folder / file.file_name
        for hour in hour_folders(folder)
        for file in effective_files(files_in(hour.folder))
    ]


# Subscriptions ------------------------------------------------------------------------------------


def subscriptions_of(folder: str | os.PathLike[str], version: int | None = None) -> list[Path]:
    """Return each broker's newest file of subscriptions, up to this version."""
    newest: dict[str, Path] = {}
    for number, file in _versions(Path(folder)):
        if version is None or number <= version:
            newest[file.name] = file
    return [newest[name] for name in sorted(newest)]


def subscription_versions(folder: Path, broker: str) -> list[tuple[int, Path]]:
    """Return the files of one broker's subscriptions, by version."""
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
