"""The tables of the store: their SQL, and conversions between their rows and the journal's. Pure.

Nothing here executes a statement. A new field of a journal row is a new column of a table. It needs
a new `SCHEMA_VERSION`, and an upgrade from the last one.

The last column of a row is a checksum of the others, as SQLite returns them. So `flatten` makes the
values that SQLite returns: integers for truth values, floats for times.
"""

import functools
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from dovetail.broker.store.journal import (
    ArchiveRow,
    DeliveryRow,
    LeaveState,
    MemberRow,
    MessageRow,
    OwedRow,
    RunDeliveryRow,
    RunRow,
    SessionRow,
    SubscriptionRow,
)

SCHEMA_VERSION = 11
"""In PRAGMA user_version; 0 is a file that has nothing in it yet."""

# Tables with an INTEGER PRIMARY KEY are SQLite's own kind: large rows do not fill the inner pages
# of their trees. The others have small rows, and would need an index besides as rowid tables.
_SCHEMA_1 = """
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY,
    client_id TEXT NOT NULL,
    expiry_seconds INTEGER NOT NULL,
    ended_at REAL,
    user TEXT,
    will BLOB
) STRICT;
CREATE TABLE subscriptions (
    session INTEGER NOT NULL,
    filter TEXT NOT NULL,
    options INTEGER NOT NULL,
    identifier INTEGER NOT NULL,
    PRIMARY KEY (session, filter)
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    message INTEGER PRIMARY KEY,
    topic BLOB NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    expires_at REAL,
    origin TEXT NOT NULL
) STRICT;
CREATE TABLE deliveries (
    session INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    message INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    released INTEGER NOT NULL,
    identifiers BLOB NOT NULL, -- Variable Byte Integers, one after the other
    PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE incoming (
    session INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    held INTEGER NOT NULL,
    PRIMARY KEY (session, packet_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE retained (
    topic BLOB PRIMARY KEY,
    message INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE numbers (
    kind TEXT PRIMARY KEY,
    reserved INTEGER NOT NULL -- none above it was ever given
) STRICT, WITHOUT ROWID;
INSERT INTO numbers VALUES ('sessions', 0), ('messages', 0);
"""
_SCHEMA_2 = """
ALTER TABLE messages ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
CREATE TABLE removals (
    topic BLOB PRIMARY KEY,
    stamp INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE owed (
    peer TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    message INTEGER NOT NULL,
    PRIMARY KEY (peer, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE heard (
    stream INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL
) STRICT;
CREATE TABLE seen (
    stream INTEGER PRIMARY KEY,
    seen INTEGER NOT NULL
) STRICT;
CREATE TABLE members (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO numbers VALUES ('incarnation', 0), ('stream', random() & 0x7fffffffffffffff);
"""
_SCHEMA_3 = """
ALTER TABLE sessions ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN detour BLOB NOT NULL DEFAULT x'';
"""
_SCHEMA_4 = """
ALTER TABLE owed ADD COLUMN mark BLOB NOT NULL DEFAULT x'';
CREATE TABLE peer_groups (
    peer TEXT NOT NULL,
    name TEXT NOT NULL,
    filter TEXT NOT NULL,
    kept INTEGER NOT NULL,
    PRIMARY KEY (peer, name, filter)
) STRICT, WITHOUT ROWID;
"""
_SCHEMA_5 = """
ALTER TABLE sessions ADD COLUMN void_before INTEGER NOT NULL DEFAULT 0;
"""
_SCHEMA_6 = """
ALTER TABLE members ADD COLUMN left INTEGER NOT NULL DEFAULT 0;
"""
_SCHEMA_7 = """
CREATE TABLE archive (
    sequence INTEGER PRIMARY KEY,
    broker TEXT NOT NULL,
    time_microseconds INTEGER NOT NULL,
    topic BLOB NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL
) STRICT;
INSERT INTO numbers VALUES ('archive', 0);
"""
_SCHEMA_8 = """
ALTER TABLE archive ADD COLUMN stream BLOB NOT NULL DEFAULT x'';
"""
_SCHEMA_9 = "".join(
    f"ALTER TABLE {name} ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;\n"
    for name in (
        *("sessions", "subscriptions", "messages", "deliveries", "incoming", "retained", "owed"),
        *("heard", "seen", "members", "removals", "peer_groups", "archive", "numbers"),
    )
)
_SCHEMA_10 = """
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    packets INTEGER NOT NULL,
    has_properties INTEGER NOT NULL,
    origin TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE run_deliveries (
    session INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    run INTEGER NOT NULL,
    first INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    rows BLOB NOT NULL, -- 16-bit numbers
    checksum INTEGER NOT NULL,
    PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID;
"""
_SCHEMA_11 = """
ALTER TABLE messages ADD COLUMN retained INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET retained = 1 WHERE message IN (SELECT message FROM retained);
DROP TABLE retained;
"""
CHECKSUMS_SINCE = 9
"""Rows of earlier versions have none; an upgrade adds them."""
UPGRADES = {
    1: _SCHEMA_1,
    2: _SCHEMA_2,
    3: _SCHEMA_3,
    4: _SCHEMA_4,
    5: _SCHEMA_5,
    6: _SCHEMA_6,
    7: _SCHEMA_7,
    8: _SCHEMA_8,
    9: _SCHEMA_9,
    10: _SCHEMA_10,
    11: _SCHEMA_11,
}
"""The script that leads to each version from the one before. A new file runs all of them."""

# In this order: a removed row may have held the last reference to a row of a later table.
_GARBAGE = {
    "subscriptions": "session NOT IN (SELECT session FROM sessions)",
    "incoming": "session NOT IN (SELECT session FROM sessions)",
    "deliveries": (
        "session NOT IN (SELECT session FROM sessions)"
        " OR message NOT IN (SELECT message FROM messages)"
    ),
    "run_deliveries": (
        "session NOT IN (SELECT session FROM sessions) OR run NOT IN (SELECT run FROM runs)"
    ),
    "owed": (
        "message NOT IN (SELECT message FROM messages) AND message NOT IN (SELECT run FROM runs)"
    ),
    "runs": (
        "run NOT IN (SELECT run FROM run_deliveries) AND run NOT IN (SELECT message FROM owed)"
    ),
    "messages": (
        "retained = 0"
        " AND message NOT IN (SELECT message FROM deliveries)"
        " AND message NOT IN (SELECT message FROM owed)"
    ),
}


class TableSchema(NamedTuple):
    """A table of the schema. `flatten` makes its values from a row of the journal."""

    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    flatten: Callable[[Any], tuple[Any, ...]]


_encode = msgspec.msgpack.Encoder().encode
_crc32 = zlib.crc32


def checksum(row: tuple[Any, ...]) -> int:
    """Return the checksum of a row without one, with the values that SQLite returns."""
    return _crc32(_encode(row))


def with_checksum(row: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
    """Return a row with its checksum behind it, and about how many bytes it has."""
    encoded = _encode(row)
    return (*row, _crc32(encoded)), len(encoded)


def is_whole(row: tuple[Any, ...]) -> bool:
    """Return whether a row is as it was written. Its last column is its checksum."""
    return bool(_crc32(_encode(row[:-1])) == row[-1])


def _unchanged(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row


def _single(value: int) -> tuple[int]:
    return (int(value),)


def _real(time: float | None) -> float | None:
    """Return a time as SQLite does: a float, and no negative zero."""
    return None if time is None else time + 0.0


def _flat_session(row: SessionRow) -> tuple[Any, ...]:
    return row._replace(ended_at=_real(row.ended_at))


def _flat_message(row: MessageRow) -> tuple[Any, ...]:
    topic, payload, qos, retain, properties, expires_at, origin, stamp, retained = row
    # Python looks for an adapter of each value that is `bytes`, and of no `bytearray`: a quarter of
    # the time of a row.
    return (
        bytearray(topic),
        bytearray(payload),
        qos,
        1 if retain else 0,
        bytearray(properties),
        None if expires_at is None else expires_at + 0.0,
        origin,
        stamp,
        1 if retained else 0,
    )


def _flat_delivery(row: DeliveryRow) -> tuple[Any, ...]:
    message, qos, retain, packet_id, released, identifiers = row
    packed = pack_identifiers(identifiers) if identifiers else b""
    return message, qos, 1 if retain else 0, packet_id, 1 if released else 0, packed


def _flat_archived(row: ArchiveRow) -> tuple[Any, ...]:
    broker, time, topic, payload, qos, retain, properties, stream = row
    return broker, time, topic, payload, qos, 1 if retain else 0, properties, stream


def _flat_run(row: RunRow) -> tuple[Any, ...]:
    return row.data, row.version, row.packets, 1 if row.has_properties else 0, row.origin


SESSIONS = TableSchema("sessions", ("session",), SessionRow._fields, _flat_session)
SUBSCRIPTIONS = TableSchema(
    "subscriptions", ("session", "filter"), SubscriptionRow._fields, _unchanged
)
MESSAGES = TableSchema("messages", ("message",), MessageRow._fields, _flat_message)
DELIVERIES = TableSchema("deliveries", ("session", "sequence"), DeliveryRow._fields, _flat_delivery)
RUNS = TableSchema("runs", ("run",), RunRow._fields, _flat_run)
RUN_DELIVERIES = TableSchema(
    "run_deliveries", ("session", "sequence"), RunDeliveryRow._fields, _unchanged
)
INCOMING = TableSchema("incoming", ("session", "packet_id"), ("held",), _single)
OWED = TableSchema("owed", ("peer", "sequence"), OwedRow._fields, _unchanged)
HEARD = TableSchema("heard", ("stream",), ("sequence",), _single)
REMOVALS = TableSchema("removals", ("topic",), ("stamp",), _single)
SEEN = TableSchema("seen", ("stream",), ("seen",), _single)
MEMBERS = TableSchema("members", ("name",), MemberRow._fields, _unchanged)
PEER_GROUPS = TableSchema("peer_groups", ("peer", "name", "filter"), ("kept",), _single)
ARCHIVE = TableSchema("archive", ("sequence",), ArchiveRow._fields, _flat_archived)
NUMBERS = TableSchema("numbers", ("kind",), ("reserved",), _single)
ALL = (
    *(SESSIONS, SUBSCRIPTIONS, MESSAGES, DELIVERIES, RUNS, RUN_DELIVERIES, INCOMING),
    *(OWED, HEARD, SEEN, MEMBERS, REMOVALS, PEER_GROUPS, ARCHIVE, NUMBERS),
)

RETAINED_UNTIL_10 = TableSchema("retained", ("topic",), ("message",), _single)
"""The table that said which messages are retained. Since version 11 their own rows do."""


def of_version(version: int) -> tuple[TableSchema, ...]:
    """Return the tables of a file of this version, as far as rows have checksums."""
    if version > 10:
        return ALL
    messages = MESSAGES._replace(values=MESSAGES.values[:-1])
    return (*(messages if one is MESSAGES else one for one in ALL), RETAINED_UNTIL_10)


# Statements. Their names are ours, so S608 (injection) does not apply.


def read_statement(table: TableSchema) -> str:
    columns = ", ".join((*table.keys, *table.values, "checksum"))
    return f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.keys)}"  # noqa: S608


def remove_garbage_statements() -> dict[str, str]:
    """Return statements, by table and in order, that remove rows with no or dead references."""
    return {name: f"DELETE FROM {name} WHERE {lost}" for name, lost in _GARBAGE.items()}  # noqa: S608


@functools.cache
def put_statement(table: TableSchema, rows: int) -> str:
    columns = (*table.keys, *table.values, "checksum")
    return (
        f"INSERT OR REPLACE INTO {table.name} ({', '.join(columns)}) "  # noqa: S608
        f"VALUES {_placeholders(len(columns), rows)}"
    )


@functools.cache
def remove_statement(table: TableSchema, keys: int, rows: int) -> str:
    """Return a statement that removes rows by the first `keys` key columns."""
    names = ", ".join(table.keys[:keys])
    found = ", ".join(f"column{number + 1}" for number in range(keys))
    # Not `IN (VALUES ...)`: for two keys SQLite would scan the table.
    return (
        f"DELETE FROM {table.name} "  # noqa: S608
        f"WHERE ({names}) IN (SELECT {found} FROM (VALUES {_placeholders(keys, rows)}))"
    )


def _placeholders(columns: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


def pack_identifiers(identifiers: tuple[int, ...]) -> bytes:
    """Return subscription identifiers as on the wire: seven bits a byte, the least first."""
    if not identifiers:
        return b""
    packed = bytearray()
    for identifier in identifiers:
        rest = identifier
        while rest > 0x7F:
            packed.append(rest & 0x7F | 0x80)
            rest >>= 7
        packed.append(rest)
    return bytes(packed)


def unpack_identifiers(packed: bytes) -> tuple[int, ...]:
    identifiers = []
    identifier = shift = 0
    for byte in packed:
        identifier |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            identifiers.append(identifier)
            identifier = shift = 0
    return tuple(identifiers)


# From SQLite's rows to the journal's.


def read_members(rows: Iterable[tuple[str, str, int]]) -> dict[str, MemberRow]:
    return {name: MemberRow(address, LeaveState(left)) for name, address, left in rows}


def read_sessions(
    rows: Iterable[tuple[int, str, int, float | None, str | None, bytes | None, int, bytes]],
) -> dict[int, SessionRow]:
    return {row[0]: SessionRow(*row[1:]) for row in rows}


def read_messages(
    rows: Iterable[tuple[int, bytes, bytes, int, int, bytes, float | None, str, int, int]],
) -> dict[int, MessageRow]:
    return {
        number: MessageRow(
            topic, payload, qos, bool(retain), properties, expires_at, origin, stamp, bool(retained)
        )
        for (
            number,
            topic,
            payload,
            qos,
            retain,
            properties,
            expires_at,
            origin,
            stamp,
            retained,
        ) in rows
    }


def read_runs(rows: Iterable[tuple[int, bytes, int, int, int, str]]) -> dict[int, RunRow]:
    return {
        number: RunRow(data, version, packets, bool(has_properties), origin)
        for number, data, version, packets, has_properties, origin in rows
    }


def read_run_deliveries(
    rows: Iterable[tuple[int, int, int, int, int, int, bytes]],
) -> dict[tuple[int, int], RunDeliveryRow]:
    return {(row[0], row[1]): RunDeliveryRow(*row[2:]) for row in rows}


def read_archive(
    rows: Iterable[tuple[int, str, int, bytes, bytes, int, int, bytes, bytes]],
) -> dict[int, ArchiveRow]:
    return {
        sequence: ArchiveRow(broker, time, topic, payload, qos, bool(retain), properties, stream)
        for sequence, broker, time, topic, payload, qos, retain, properties, stream in rows
    }


def read_incoming(rows: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], bool]:
    return {(session, packet_id): bool(held) for session, packet_id, held in rows}


def read_subscriptions(
    rows: Iterable[tuple[int, str, int, int]],
) -> dict[tuple[int, str], SubscriptionRow]:
    # Most have the same few options and identifiers, and share a row.
    kinds: dict[tuple[int, int], SubscriptionRow] = {}
    found = {}
    for session, topic_filter, options, identifier in rows:
        row = kinds.get((options, identifier))
        if row is None:
            row = kinds[options, identifier] = SubscriptionRow(options, identifier)
        found[session, topic_filter] = row
    return found


def read_deliveries(
    rows: Iterable[tuple[int, int, int, int, int, int, int, bytes]],
) -> dict[tuple[int, int], DeliveryRow]:
    unpack = functools.lru_cache(maxsize=4_096)(unpack_identifiers)
    return {
        (session, sequence): DeliveryRow(
            message, qos, bool(retain), packet_id, bool(released), unpack(packed)
        )
        for session, sequence, message, qos, retain, packet_id, released, packed in rows
    }
