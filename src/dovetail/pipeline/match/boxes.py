"""Subscriptions as boxes: what a table of filters and where-clauses means, row by row. No Spark.

A subscription without a clause is one row without borders. One with a clause is a row for each
of its boxes, with the number of its space and the borders in the space's order. What a broker
would refuse at SUBSCRIBE is refused here with the same words, and names the subscription.

A shared subscription counts by the filter behind its group: which member gets a message is for
brokers to decide.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from dovetail.attributes.clauses import check_request
from dovetail.attributes.space import Box, Space
from dovetail.attributes.space_registry import Spaces
from dovetail.errors import ClientError, DovetailError
from dovetail.topics.names import split_shared

NO_SPACE = -1
_READ_MAX = 1 << 16
"""Of clauses that were read, so many are remembered: large sets have the same ones again."""


class RefusedError(DovetailError):
    """A subscription that cannot be."""


def boxes_schema(id_type: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("number", pa.int64()),
            ("id", id_type),
            ("filter", pa.string()),
            ("space", pa.int32()),
            ("lows", pa.list_(pa.float64())),
            ("highs", pa.list_(pa.float64())),
            ("texts", pa.string()),
        ]
    )


BOXES_DDL = (
    "number long, id {id}, filter string, space int, lows array<double>, highs array<double>, "
    "texts string"
)


class Reader:
    """Filters and clauses to boxes, in these spaces."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        self._spaces = Spaces(spaces)
        self._number_of = {space.name: number for number, space in enumerate(spaces)}
        self._read: dict[tuple[str, str | None], tuple[str, int, tuple[Box, ...]]] = {}

    def read(self, topic_filter: str, where: str | None) -> tuple[str, int, tuple[Box, ...]]:
        """The plain filter, the space's number and the boxes; a ClientError says what is wrong."""
        known = self._read.get((topic_filter, where))
        if known is not None:
            return known
        check_request(topic_filter)
        plain, text = self._spaces.read(topic_filter, where)
        shared = split_shared(plain)
        inner = plain if shared is None else shared.filter
        meaning: tuple[str, int, tuple[Box, ...]] = inner, NO_SPACE, ()
        if text:
            clause = self._spaces.clause(inner, text)
            assert clause is not None, "it was read a moment ago"
            meaning = inner, self._number_of[clause.space.name], clause.boxes
        if len(self._read) < _READ_MAX:
            self._read[topic_filter, where] = meaning
        return meaning

    def boxes(self, subscriptions: pa.RecordBatch) -> pa.RecordBatch:
        """Columns `number`, `id`, `filter` and `where` to rows of boxes."""
        rows: list[int] = []
        filters: list[str] = []
        numbers: list[int] = []
        boxes: list[Box | None] = []
        given = zip(
            subscriptions["filter"].to_pylist(), subscriptions["where"].to_pylist(), strict=True
        )
        for row, (topic_filter, where) in enumerate(given):
            try:
                if topic_filter is None:
                    raise RefusedError("it has no topic filter.")
                inner, space, found = self.read(topic_filter, where)
            except (ClientError, RefusedError) as error:
                named = subscriptions["id"][row].as_py()
                raise RefusedError(f"subscription {named!r} cannot be used: {error}") from None
            for box in found or (None,):
                rows.append(row)
                filters.append(inner)
                numbers.append(space)
                boxes.append(box)
        taken = subscriptions.take(pa.array(rows, pa.int64()))
        schema = boxes_schema(subscriptions.schema.field("id").type)
        columns = {
            "number": taken["number"].cast(pa.int64()),
            "id": taken["id"],
            "filter": pa.array(filters, pa.string()),
            "space": pa.array(numbers, pa.int32()),
            "lows": pa.array([box and box.lows for box in boxes], pa.list_(pa.float64())),
            "highs": pa.array([box and box.highs for box in boxes], pa.list_(pa.float64())),
            "texts": pa.array([_texts_json(box) for box in boxes], pa.string()),
        }
        return pa.RecordBatch.from_pydict(columns, schema)


def read_batches(
    batches: Iterable[pa.RecordBatch], *, spaces: Sequence[Space]
) -> Iterator[pa.RecordBatch]:
    reader = Reader(spaces)
    for batch in batches:
        yield reader.boxes(batch)


def boxes_of(subscriptions: pa.Table, spaces: Sequence[Space]) -> pa.Table:
    """The same of a whole table with `id`, `filter` and `where`."""
    numbered = subscriptions.append_column("number", pa.array(range(len(subscriptions))))
    schema = boxes_schema(subscriptions.schema.field("id").type)
    return pa.Table.from_batches(
        read_batches(numbered.combine_chunks().to_batches(), spaces=spaces), schema
    )


def _texts_json(box: Box | None) -> str | None:
    if box is None or not box.texts:
        return None
    return msgspec.json.encode([(name, sorted(allowed)) for name, allowed in box.texts]).decode()


def texts_of(json: str) -> list[tuple[str, list[str]]]:
    return msgspec.json.decode(json, type=list[tuple[str, list[str]]])
