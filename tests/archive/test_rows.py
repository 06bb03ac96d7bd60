"""Rows as Arrow: every column, and how attributes are read."""

from datetime import UTC, datetime

import msgspec

from dovetail.archive.columns import SCHEMA
from dovetail.archive.rows import table_of
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import DeliveryContext
from dovetail.broker.store.journal import ArchiveRow
from support.archives import BEGIN, row
from support.brokers.harness import attributes

TRAFFIC = Space(
    "traffic",
    "traffic/#",
    (Dimension("lat", -90, 90), Dimension("speed", 0, 200)),
    texts=frozenset({"road"}),
    json_fields=True,
)


def test_columns() -> None:
    rows = [
        (7, ArchiveRow("one", BEGIN + 1, "büro/1".encode(), b"\0\xff", 2, True, b"")),
        (8, row(properties=attributes(lat="40", unknown="x"))),
    ]
    table = table_of(rows, SpaceRegistry())
    assert table.schema == SCHEMA
    first, second = table.to_pylist()
    assert first == {
        "time": datetime(2026, 11, 16, 17, microsecond=1, tzinfo=UTC),
        "broker": "one",
        "sequence": 7,
        "topic": "büro/1",
        "payload": b"\0\xff",
        "qos": 2,
        "retain": True,
        "attributes": [],
        "texts": [],
        "properties": [],
        "stream": None,
    }
    assert second["attributes"] == []  # no space governs it
    assert second["properties"] == [
        {"name": "lat", "value": "40"},
        {"name": "unknown", "value": "x"},
    ]


def test_the_column_for_streams() -> None:
    properties = attributes(lat="40")
    waiting = msgspec.msgpack.encode(DeliveryContext("publisher", 12.5))
    (one,) = table_of(
        [(1, row(properties=properties)._replace(stream=waiting))], SpaceRegistry()
    ).to_pylist()
    assert one["stream"] == {
        "client": "publisher",
        "expires": datetime.fromtimestamp(12.5, UTC),
        "properties": properties,
    }


def test_attributes_are_those_that_the_space_reads() -> None:
    topic = b"traffic/1"
    properties = attributes(lat="40.5", road="A1", unknown="x")
    cases = {
        (b"", properties): ([("lat", 40.5)], [("road", "A1")]),
        (b'{"speed": 30, "lat": 1}', properties): (
            [("lat", 40.5), ("speed", 30.0)],
            [("road", "A1")],
        ),
        (b'{"speed": 30}', b""): ([("speed", 30.0)], []),
        (b"", attributes(lat="north")): ([], []),
        (b"not JSON", b""): ([], []),
    }
    rows = [
        (number, row(topic=topic, payload=payload, properties=given))
        for number, (payload, given) in enumerate(cases)
    ]
    found = table_of(rows, SpaceRegistry([TRAFFIC])).to_pylist()
    assert [(one["attributes"], one["texts"]) for one in found] == [*cases.values()]


def test_many_rows_are_one_table() -> None:
    rows = [(number, row(payload=b"%d" % number)) for number in range(5_000)]
    assert table_of(rows, SpaceRegistry())["sequence"].to_pylist() == [*range(5_000)]
