"""Match in bulk: a DataFrame of messages and one of subscriptions to a DataFrame of deliveries.

    from dovetail.pipeline.match.bulk import match
    match(messages, subscriptions, spaces=spaces_of("dovetail.toml"))

messages        `id`, `topic`, `attributes` (map of string to double), maybe `texts` (map of string
                to string); other columns are left alone
subscriptions   `id`, `filter`, and maybe `where`, which may be null
result          `message` and `subscriptions`, an array of ids: a row for each message, also where
                no subscription matches; or `message` and `subscription`, a row for each pair

`match` reads subscriptions when it is called, and messages when the result is used. This module
uses nothing but DataFrames, so it works the same under classic Spark and Spark Connect. The
function of a task carries the boxes that the task needs; workers keep their index from task to
task.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, DoubleType, MapType, NumericType, StringType

from dovetail.archive.arrow_stream import pack, unpack
from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space import Space
from dovetail.errors import ConfigError
from dovetail.pipeline.match.batch_matcher import BatchMatcher, match_arrays, match_pairs
from dovetail.pipeline.match.boxes import BOXES_DDL, SubscriptionRefusedError, read_batches
from dovetail.pipeline.match.distributed_match import match_spread
from dovetail.pipeline.match.index_cache import IndexCache
from dovetail.settings import load_settings

BOXES_SHIPPED_MAX = 500_000
"""A set of subscriptions with at most this many boxes goes to every worker."""

_TASKS_USUAL = "spark.sql.shuffle.partitions"

_matchers: IndexCache[BatchMatcher] = IndexCache(2)
"""In a worker process. The second one is for a query that begins while another one ends."""


def spaces_of(config: str | Path) -> tuple[Space, ...]:
    """The spaces that a configuration file declares."""
    return declared_spaces(load_settings(Path(config)).spaces)


def match(
    messages: DataFrame,
    subscriptions: DataFrame,
    *,
    spaces: Iterable[Space] = (),
    as_pairs: bool = False,
    boxes_shipped_max: int = BOXES_SHIPPED_MAX,
    tasks: int | None = None,
) -> DataFrame:
    """Which subscriptions each message matches.

    More boxes than `boxes_shipped_max` are cut into about `tasks` tasks. The default is
    `spark.sql.shuffle.partitions`.
    """
    return prepare(
        messages,
        subscriptions,
        spaces=spaces,
        as_pairs=as_pairs,
        boxes_shipped_max=boxes_shipped_max,
        tasks=tasks,
    ).found


class MatchResult(NamedTuple):
    """The matches, which Spark computes when they are used."""

    found: DataFrame
    tasks: int | None
    """How many tasks they take; None if that was not planned."""


def prepare(
    messages: DataFrame,
    subscriptions: DataFrame,
    *,
    spaces: Iterable[Space],
    as_pairs: bool,
    boxes_shipped_max: int = BOXES_SHIPPED_MAX,
    tasks: int | None = None,
) -> MatchResult:
    """Like `match`, and return the number of tasks as well, for a progress bar."""
    known = tuple(spaces)
    # Check the columns of messages before the subscriptions are read.
    wanted = message_columns(messages, known)
    boxes = read_boxes(subscriptions, spaces=known, boxes_shipped_max=boxes_shipped_max)
    return match_boxes(wanted, boxes, as_pairs=as_pairs, tasks=tasks)


class SubscriptionBoxes(NamedTuple):
    """Subscriptions that have been read as boxes, for any number of matches."""

    frame: DataFrame
    """The boxes (boxes.py)."""
    local: pa.Table
    """All boxes, in this process. If the set is cut: those without borders."""
    spaces: tuple[Space, ...]
    packed: bytes | None
    """`local`, packed for workers. None: the set is so large that it is cut."""


def read_boxes(
    subscriptions: DataFrame,
    *,
    spaces: Iterable[Space],
    boxes_shipped_max: int = BOXES_SHIPPED_MAX,
) -> SubscriptionBoxes:
    """Read subscriptions. A SubscriptionRefusedError names the first invalid one."""
    known = tuple(spaces)
    frame = subscription_boxes(subscriptions, known)
    with subscription_errors():
        local = frame.limit(boxes_shipped_max + 1).toArrow()
        if len(local) > boxes_shipped_max and known:
            return SubscriptionBoxes(frame, frame.where("space < 0").toArrow(), known, None)
        if len(local) > boxes_shipped_max:
            local = frame.toArrow()
    return SubscriptionBoxes(frame, local, known, pack(local))


def match_boxes(
    messages: DataFrame, boxes: SubscriptionBoxes, *, as_pairs: bool, tasks: int | None = None
) -> MatchResult:
    """Match messages with subscriptions that have been read."""
    wanted = message_columns(messages, boxes.spaces)
    result = _result(wanted, boxes.frame, as_pairs)
    if boxes.packed is None:
        with subscription_errors():
            found, planned = match_spread(
                wanted,
                boxes.frame,
                boxes.spaces,
                tasks=tasks or int(messages.sparkSession.conf.get(_TASKS_USUAL) or 1),
                plain=boxes.local,
                as_pairs=as_pairs,
                result=result,
            )
        return MatchResult(found, planned)
    shipped = PackedBoxes(boxes.packed, boxes.spaces)
    do = partial(match_batches, shipped=shipped, as_pairs=as_pairs)
    return MatchResult(wanted.mapInArrow(do, result), None)


@contextmanager
def subscription_errors() -> Iterator[None]:
    """Raise a worker's SubscriptionRefusedError here, with its own words."""
    try:
        yield
    except PySparkException as error:
        _, name, said = str(error).partition(f"{SubscriptionRefusedError.__name__}: ")
        if not name:
            raise
        # Spark Connect appends Java's trace.
        raise SubscriptionRefusedError(
            re.split(r"\n\s*SQLSTATE|\n\nJVM", said)[0].rstrip()
        ) from error


class PackedBoxes(NamedTuple):
    """Boxes as a task carries them to a worker."""

    boxes: bytes
    spaces: tuple[Space, ...]


def match_batches(
    batches: Iterable[pa.RecordBatch], *, shipped: PackedBoxes, as_pairs: bool
) -> Iterator[pa.RecordBatch]:
    """Match the messages of one task."""
    digest = hashlib.blake2b(shipped.boxes, digest_size=16).digest()
    matcher = _matchers.get(
        (digest, shipped.spaces), lambda: BatchMatcher(unpack(shipped.boxes), shipped.spaces)
    )
    answer = match_pairs if as_pairs else match_arrays
    for batch in batches:
        yield from answer(matcher, batch, matcher.ids.type)


def subscription_boxes(subscriptions: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    """Return the rows of boxes (boxes.py) of these subscriptions."""
    _need(subscriptions, "subscriptions", "id", None)
    _need(subscriptions, "subscriptions", "filter", StringType())
    where = sql.lit(None).cast("string").alias("where")
    if "where" in subscriptions.columns:
        _need(subscriptions, "subscriptions", "where", StringType())
        where = sql.col("where")
    numbered = subscriptions.select(
        sql.monotonically_increasing_id().alias("number"), "id", "filter", where
    )
    ddl = BOXES_DDL.format(id=subscriptions.schema["id"].dataType.simpleString())
    return numbered.mapInArrow(partial(read_batches, spaces=spaces), ddl)


def message_columns(messages: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    """Return the columns of messages that matching reads."""
    _need(messages, "messages", "id", None)
    _need(messages, "messages", "topic", StringType())
    columns = [sql.col("id"), sql.col("topic")]
    if spaces or "attributes" in messages.columns:
        given = _need(messages, "messages", "attributes", MapType(StringType(), DoubleType()))
        numbers = sql.col("attributes")
        if isinstance(given, MapType) and given.valueType != DoubleType():
            numbers = numbers.cast("map<string,double>")
        columns.append(numbers)
    if "texts" in messages.columns:
        _need(messages, "messages", "texts", MapType(StringType(), StringType()))
        columns.append(sql.col("texts"))
    return messages.select(*columns)


def _need(frame: DataFrame, noun: str, name: str, wanted: DataType | None) -> DataType:
    """Return the type of a column. A ConfigError says what is wrong with it."""
    if name not in frame.columns:
        there = ", ".join(frame.columns) or "none"
        raise ConfigError(
            f"the {noun} have no column {name!r}; their columns are {there}.",
            hint="docs/pipeline.md has the columns that are needed, and their types.",
        )
    given: DataType = frame.schema[name].dataType
    if wanted is not None and not _fits(given, wanted):
        raise ConfigError(
            f"the column {name!r} of the {noun} is {given.simpleString()}, and should be "
            f"{wanted.simpleString()}.",
            hint="docs/pipeline.md has the columns that are needed, and their types.",
        )
    return given


def _fits(given: DataType, wanted: DataType) -> bool:
    """Compare types, whatever may be null and whatever kind of number it is."""
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _fits(given.keyType, wanted.keyType) and _fits(given.valueType, wanted.valueType)
    if isinstance(wanted, DoubleType):
        return isinstance(given, NumericType)
    return type(given) is type(wanted)


def _result(messages: DataFrame, boxes: DataFrame, as_pairs: bool) -> str:
    message = messages.schema["id"].dataType.simpleString()
    subscription = boxes.schema["id"].dataType.simpleString()
    if as_pairs:
        return f"message {message}, subscription {subscription}"
    return f"message {message}, subscriptions array<{subscription}>"
