"""The options of `spark.readStream.format("dovetail")`, read and checked.

Names are in Spark's style, and upper or lower case does not matter. An unknown option is refused,
so that a typing error does not silently become a default.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dovetail.errors import ClientError, ConfigError
from dovetail.pipeline.limits import (
    STREAM_BATCH_ROWS_MAX,
    STREAM_TASK_ROWS_MAX,
    STREAM_WAIT_SECONDS,
)
from dovetail.pipeline.source.archives import ArchiveFolder, ClusterArchive, RowSource
from dovetail.topics.names import check_filter

Start = Literal["earliest", "latest"] | dict[str, int]
"""Where a stream begins. A dict has the offsets of some brokers; others start at the earliest."""

READER_OPTIONS = {
    "url": "HTTP addresses of nodes of a running cluster, with commas: one is enough",
    "path": "or the folder of an archive, as .load(path) or .option('path', ...) has it",
    "topics": "filters of topics, with commas; all without it",
    "startingOffsets": 'earliest (the default), latest, or JSON: {"broker": sequence}',
    "maxRowsPerBatch": "rows of one batch of a stream",
    "maxRowsPerTask": "rows of one task",
    "failOnDataLoss": "false: skip unread rows that have vanished; default: true",
    "waitSeconds": "how long to wait for a broker that goes away while its rows are read",
    "user": "an administrator of the brokers, if they have any",
    "password": "the administrator's password",
}


@dataclass(frozen=True)
class ReaderOptions:
    """The options of a reader."""

    row_source: RowSource
    topics: tuple[str, ...] = ()
    start: Start = "earliest"
    batch_rows_max: int = STREAM_BATCH_ROWS_MAX
    task_rows_max: int = STREAM_TASK_ROWS_MAX
    fails_on_loss: bool = True
    wait_seconds: float = STREAM_WAIT_SECONDS


def reader_options(given: Mapping[str, str]) -> ReaderOptions:
    """Read the options. A ConfigError says what is wrong with them."""
    options = canonical_options(given, READER_OPTIONS)
    return ReaderOptions(
        row_source=_row_source(options),
        topics=_topics(options.get("topics", "")),
        start=_start(options.get("startingOffsets", "earliest")),
        batch_rows_max=number(options, "maxRowsPerBatch", STREAM_BATCH_ROWS_MAX),
        task_rows_max=number(options, "maxRowsPerTask", STREAM_TASK_ROWS_MAX),
        fails_on_loss=boolean(options, "failOnDataLoss", default=True),
        wait_seconds=number(options, "waitSeconds", int(STREAM_WAIT_SECONDS), low=0),
    )


def canonical_options(given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return options by their documented names. A ConfigError names an unknown one."""
    by_lower = {name.lower(): name for name in names}
    found = {}
    for name, value in given.items():
        if name.lower() not in by_lower:
            raise ConfigError(
                f"there is no option {name!r} here.", hint=f"There are: {', '.join(names)}."
            )
        found[by_lower[name.lower()]] = value
    return found


def _row_source(options: Mapping[str, str]) -> RowSource:
    url, path = options.get("url", ""), options.get("path", "")
    if bool(url) == bool(path):
        raise ConfigError(
            "it takes a url or a path: where rows are read.",
            hint='.option("url", "http://127.0.0.1:8080"), or .load("/srv/archive")',
        )
    if path:
        if "://" in path and not path.startswith("file://"):
            raise ConfigError(
                f"{path} is no folder of this machine.", hint="An archive is read where it lies."
            )
        return ArchiveFolder(path.removeprefix("file://"))
    user = options.get("user")
    login = None if user is None else (user, options.get("password", ""))
    urls = [one.strip().rstrip("/") for one in url.split(",")]
    return ClusterArchive(tuple(one for one in urls if one), login)


def _topics(text: str) -> tuple[str, ...]:
    filters = tuple(one.strip() for one in text.split(",") if one.strip())
    for one in filters:
        try:
            check_filter(one)
        except ClientError as error:
            raise ConfigError(f"topics: {one}: {error.message}.") from None
    return filters


def _start(text: str) -> Start:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    try:
        given = json.loads(text)
        if not isinstance(given, dict) or not all(
            isinstance(value, int) and value >= 0 for value in given.values()
        ):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"startingOffsets cannot be {text}.",
            hint='earliest, latest, or a sequence for each broker: {"b1": 1794848400000017}',
        ) from None
    return {str(name): int(value) for name, value in given.items()}


def number(options: Mapping[str, str], name: str, default: int, low: int = 1) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < low:
        raise ConfigError(f"{name} cannot be {text}: it is a whole number, {low} or more.")
    return int(text)


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name} is true or false, and not {text}.")
    return text == "true"
