"""Convert subscriptions (filters and where-clauses) to rows of boxes. No Spark.

A subscription without a clause becomes one row without borders. A subscription with a clause
becomes a row for each of its boxes, with the number of its space and the borders in the order of
the space's dimensions. A subscription that a broker would refuse is refused here with the same
words, and the error names it.

A shared subscription counts with the filter behind its group. Brokers choose the member that gets a
message.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from dovetail.attributes.clauses import check_requested_filter
from dovetail.attributes.space import Box, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.errors import ClientError, DovetailError
from dovetail.topics.names import split_shared

NO_SPACE = -1
_READ_MAX = 1 << 16
"""Parsed clauses to remember: large sets have many equal clauses."""


class SubscriptionRefusedError(DovetailError):
    """A subscription that a broker would refuse."""


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


class BoxReader:
    """Converts filters and clauses to boxes of these spaces."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        self._spaces = SpaceRegistry(spaces)
        self._number_of = {space.name: number for number, space in enumerate(spaces)}
        self._read: dict[tuple[str, str | None], tuple[str, int, tuple[Box, ...]]] = {}

    def read(self, topic_filter: str, where: str | None) -> tuple[str, int, tuple[Box, ...]]:
        """Return the plain filter, the space's number and the boxes.

        A ClientError says what is wrong with the subscription.
        """
        known = self._read.get((topic_filter, where))
        if known is not None:
            return known
        check_requested_filter(topic_filter)
        plain, text = self._spaces.parse_subscription(topic_filter, where)
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
        """Convert rows with `number`, `id`, `filter` and `where` to rows of boxes."""
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
                    raise SubscriptionRefusedError("it has no topic filter.")
                inner, space, found = self.read(topic_filter, where)
            except (ClientError, SubscriptionRefusedError) as error:
                named = subscriptions["id"][row].as_py()
                raise SubscriptionRefusedError(
                    f"subscription {named!r} cannot be used: {error}"
                ) from None
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
    reader = BoxReader(spaces)
    for batch in batches:
        yield reader.boxes(batch)


def boxes_of(subscriptions: pa.Table, spaces: Sequence[Space]) -> pa.Table:
    """Convert a whole table with `id`, `filter` and `where`."""
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
