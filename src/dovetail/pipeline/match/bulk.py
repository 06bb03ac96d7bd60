"""Matching in bulk: DataFrames of messages and of subscriptions to a DataFrame of who gets what.

    from dovetail.pipeline.match.bulk import match
    match(messages, subscriptions, spaces=spaces_of("dovetail.toml"))

messages        `id`, `topic`, `attributes` (map of string to double), maybe `texts` (map of string
                to string); other columns are left alone
subscriptions   `id`, `filter`, and maybe `where`, which may be null
result          `message` and `subscriptions`, an array of ids: a row for each message, also for
                those that nobody wants; or `message` and `subscription`, a row for each pair

Subscriptions are read when `match` is called, messages when the result is used. Nothing here needs
more than DataFrames have, so it is the same under classic Spark and Spark Connect. What a task
needs to know travels inside its function; workers keep it from task to task.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, DoubleType, MapType, NumericType, StringType

from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space import Space
from dovetail.errors import ConfigError
from dovetail.pipeline.match.batch_matcher import Matcher, arrays, pairs
from dovetail.pipeline.match.boxes import BOXES_DDL, RefusedError, read_batches
from dovetail.pipeline.match.spread import match_spread
from dovetail.settings import load_settings

BOXES_SHIPPED_MAX = 500_000
"""A set of subscriptions with at most so many boxes goes to every worker."""

_TASKS_USUAL = "spark.sql.shuffle.partitions"
_MATCHERS_KEPT = 2
"""By a worker process. A second one is for a query that begins while another is ending."""


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

    More boxes than `boxes_shipped_max` are cut into about so many `tasks`, which are as many as
    `spark.sql.shuffle.partitions` if nothing is said.
    """
    return prepare(
        messages,
        subscriptions,
        spaces=spaces,
        as_pairs=as_pairs,
        boxes_shipped_max=boxes_shipped_max,
        tasks=tasks,
    ).found


class Prepared(NamedTuple):
    """What is found when it is asked for; and in how many tasks, where that was planned."""

    found: DataFrame
    tasks: int | None


def prepare(
    messages: DataFrame,
    subscriptions: DataFrame,
    *,
    spaces: Iterable[Space],
    as_pairs: bool,
    boxes_shipped_max: int = BOXES_SHIPPED_MAX,
    tasks: int | None = None,
) -> Prepared:
    """The same, for who shows how far it is."""
    known = tuple(spaces)
    # What messages lack is said before subscriptions are read.
    wanted = known_messages(messages, known)
    boxes = read_boxes(subscriptions, spaces=known, boxes_shipped_max=boxes_shipped_max)
    return match_boxes(wanted, boxes, as_pairs=as_pairs, tasks=tasks)


class Boxes(NamedTuple):
    """Subscriptions that have been read, to be matched with as often as one likes."""

    frame: DataFrame
    """Of boxes (boxes.py)."""
    here: pa.Table
    """All of them; of a set that is cut, those without borders."""
    spaces: tuple[Space, ...]
    packed: bytes | None
    """`here`, for the way to workers. None: the set is so large that it is cut."""


def read_boxes(
    subscriptions: DataFrame,
    *,
    spaces: Iterable[Space],
    boxes_shipped_max: int = BOXES_SHIPPED_MAX,
) -> Boxes:
    """A RefusedError names the first subscription that cannot be."""
    known = tuple(spaces)
    frame = known_boxes(subscriptions, known)
    with refusals():
        here = frame.limit(boxes_shipped_max + 1).toArrow()
        if len(here) > boxes_shipped_max and known:
            return Boxes(frame, frame.where("space < 0").toArrow(), known, None)
        if len(here) > boxes_shipped_max:
            here = frame.toArrow()
    return Boxes(frame, here, known, packed(here))


def match_boxes(
    messages: DataFrame, boxes: Boxes, *, as_pairs: bool, tasks: int | None = None
) -> Prepared:
    """With subscriptions that have been read."""
    wanted = known_messages(messages, boxes.spaces)
    result = _result(wanted, boxes.frame, as_pairs)
    if boxes.packed is None:
        with refusals():
            found, planned = match_spread(
                wanted,
                boxes.frame,
                boxes.spaces,
                tasks=tasks or int(messages.sparkSession.conf.get(_TASKS_USUAL) or 1),
                plain=boxes.here,
                as_pairs=as_pairs,
                result=result,
            )
        return Prepared(found, planned)
    shipped = Shipped(boxes.packed, boxes.spaces)
    do = partial(match_batches, shipped=shipped, as_pairs=as_pairs)
    return Prepared(wanted.mapInArrow(do, result), None)


@contextmanager
def refusals() -> Iterator[None]:
    """What a worker has against a subscription comes out as it was said there."""
    try:
        yield
    except PySparkException as error:
        _, name, said = str(error).partition(f"{RefusedError.__name__}: ")
        if not name:
            raise
        # Spark Connect has Java's trace behind it.
        raise RefusedError(re.split(r"\n\s*SQLSTATE|\n\nJVM", said)[0].rstrip()) from error


class Shipped(NamedTuple):
    """Boxes on their way to a worker."""

    boxes: bytes
    spaces: tuple[Space, ...]


def match_batches(
    batches: Iterable[pa.RecordBatch], *, shipped: Shipped, as_pairs: bool
) -> Iterator[pa.RecordBatch]:
    """What a task does."""
    digest = hashlib.blake2b(shipped.boxes, digest_size=16).digest()
    matcher = _kept_matcher(digest, _Held(shipped))
    answer = pairs if as_pairs else arrays
    for batch in batches:
        yield from answer(matcher, batch, matcher.ids.type)


class _Held:
    """Boxes that a cache does not look at: their digest is what it goes by."""

    def __init__(self, shipped: Shipped) -> None:
        self.shipped = shipped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.shipped.spaces == other.shipped.spaces

    def __hash__(self) -> int:
        return 0


@lru_cache(_MATCHERS_KEPT)
def _kept_matcher(_digest: bytes, held: _Held) -> Matcher:
    return Matcher(unpacked(held.shipped.boxes), held.shipped.spaces)


def known_boxes(subscriptions: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    """Subscriptions as boxes (boxes.py)."""
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


def known_messages(messages: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    """The columns that are looked at."""
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
    """The type of a column, or a ConfigError that says what is wrong with it."""
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
    """Apart from what may be null, and from kinds of numbers."""
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


def packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpacked(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()
