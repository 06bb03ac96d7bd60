"""SQL against the real SQLite; identifiers survive packing and unpacking."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.store.tables import (
    ARCHIVE,
    DELIVERIES,
    HEARD,
    INCOMING,
    MEMBERS,
    MESSAGES,
    OWED,
    REMOVALS,
    SEEN,
    SESSIONS,
    SUBSCRIPTIONS,
    UPGRADES,
    TableSchema,
    pack_identifiers,
    remove_statement,
    unpack_identifiers,
)

TABLES = [
    SESSIONS,
    SUBSCRIPTIONS,
    MESSAGES,
    DELIVERIES,
    INCOMING,
    OWED,
    HEARD,
    MEMBERS,
    REMOVALS,
    SEEN,
    ARCHIVE,
]


@given(st.lists(st.integers(0, 268_435_455)).map(tuple))
def test_identifiers_come_back(identifiers: tuple[int, ...]) -> None:
    packed = pack_identifiers(identifiers)
    assert unpack_identifiers(packed) == identifiers
    assert len(packed) <= 4 * len(identifiers)


def test_identifiers_are_packed_as_on_the_wire() -> None:
    # MQTT 5.0 table 1-1: the first and the last of each length
    ends = (0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455)
    assert pack_identifiers(ends).hex(" ", -1) == (
        "00 7f 80 01 ff 7f 80 80 01 ff ff 7f 80 80 80 01 ff ff ff 7f"
    )


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_rows_have_the_columns_of_their_table(table: TableSchema) -> None:
    database = sqlite3.connect(":memory:")
    database.executescript("".join(UPGRADES.values()))
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table.name})")]
    assert {*table.keys, *table.values, "checksum"} == {*columns}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("rows", [1, 2, 256])
def test_rows_are_found_by_their_keys(table: TableSchema, rows: int) -> None:
    database = sqlite3.connect(":memory:")
    database.executescript("".join(UPGRADES.values()))
    for keys in {1, len(table.keys)}:
        plan = [
            row[3]
            for row in database.execute(
                f"EXPLAIN QUERY PLAN {remove_statement(table, keys, rows)}", [None] * rows * keys
            )
        ]
        assert any(step.startswith(f"SEARCH {table.name} USING ") for step in plan), plan
        assert f"SCAN {table.name}" not in plan
