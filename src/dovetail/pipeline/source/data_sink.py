"""`df.writeStream.format("dovetail")` and `df.write`: publish rows, each at least once.

    changes.writeStream.format("dovetail").option("url", "mqtt://127.0.0.1:1883")...

| column | |
|---|---|
| `topic` | string; the option `topic` replaces the column |
| `payload` | string or binary |
| `qos`, `retain` | number and boolean; default: the options of the same names, or 1 and false |
| `attributes` | map of string to numbers or strings: user properties, as where-clauses read them |
| `properties` | map of string to string, or array of name and value: user properties as they are |

A task ends when the server has acknowledged all of its rows, in order (client/sender.py). Spark
repeats a task that fails, and then its rows may arrive twice.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.sender import MqttMessage, Sender
from dovetail.errors import ClientError, ConfigError
from dovetail.pipeline.limits import STREAM_SEND_WAIT_SECONDS
from dovetail.pipeline.source.options import boolean, canonical_options, number
from dovetail.topics.names import check_name

WRITER_OPTIONS = {
    "url": "mqtt://host:1883, or mqtts://host:8883",
    "topic": "default for rows without this column",
    "qos": "default for rows without this column; 1 if not given",
    "retain": "default for rows without this column; false if not given",
    "user": "the user that publishes",
    "password": "the user's password",
    "waitSeconds": "how long to wait for a server that is away",
    "checkpointLocation": "an option of Spark itself",
}

_SCHEMES = {"mqtt": False, "mqtts": True}


@dataclass(frozen=True)
class WriterOptions:
    """The options of the sink."""

    connection: ConnectionOptions
    topic: str | None = None
    qos: int = 1
    retain: bool = False
    wait_seconds: float = STREAM_SEND_WAIT_SECONDS


def writer_options(given: Mapping[str, str]) -> WriterOptions:
    """Read the options. A ConfigError says what is wrong with them."""
    options = canonical_options(given, WRITER_OPTIONS)
    qos = number(options, "qos", 1, low=0)
    if qos > 2:
        raise ConfigError(f"qos is 0, 1 or 2, and not {qos}.")
    if "topic" in options:
        _check_topic(options["topic"])
    return WriterOptions(
        connection_options(options.get("url", ""), options.get("user"), options.get("password")),
        topic=options.get("topic"),
        qos=qos,
        retain=boolean(options, "retain", default=False),
        wait_seconds=number(options, "waitSeconds", int(STREAM_SEND_WAIT_SECONDS), low=0),
    )


def connection_options(url: str, user: str | None, password: str | None) -> ConnectionOptions:
    """Return the connection options for an address such as mqtt://host:1883."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in _SCHEMES or not parts.hostname or port == 0:
        raise ConfigError(
            f"the address of an MQTT server cannot be {url or 'missing'}.",
            hint="It looks like this: mqtt://127.0.0.1:1883, or mqtts://host:8883 with TLS.",
        )
    options = ConnectionOptions(
        host=parts.hostname,
        port=port,
        tls=_SCHEMES[parts.scheme],
        user=user,
        password=password,
    )
    options.check()
    return options


@dataclass
class PublishCommit(WriterCommitMessage):
    """A task's report to Spark."""

    rows: int


class _RowPublisher:
    """Publishes the rows of a task."""

    def __init__(self, options: WriterOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("what was published cannot be overwritten: use the mode append.")
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        sender = Sender(options.connection, wait_seconds=options.wait_seconds)
        rows = 0
        try:
            for batch in iterator:
                for row in batch.to_pylist():
                    sender.send(publication_of(row, options))
                    rows += 1
            sender.finish()
        finally:
            sender.close()
        return PublishCommit(rows)


class StreamWriter(_RowPublisher, DataSourceStreamArrowWriter):
    """For streams."""


class TableWriter(_RowPublisher, DataSourceArrowWriter):
    """For tables."""


def publication_of(row: Mapping[str, Any], options: WriterOptions) -> MqttMessage:
    """Return the publication of a row. A ConfigError says what is wrong with the row."""
    topic = row.get("topic", options.topic)
    if topic is None:
        raise ConfigError("a row has no topic.")
    _check_topic(topic)
    payload = row["payload"]
    if payload is None:
        raise ConfigError(f"a row to {topic} has no payload.", hint="An empty one is ''.")
    qos = row.get("qos")
    if qos is not None and qos not in {0, 1, 2}:
        raise ConfigError(f"a row to {topic} has the QoS {qos}; there are 0, 1 and 2.")
    retain = row.get("retain")
    pairs = [(str(name), _text(value)) for name, value in row.get("attributes") or ()]
    for one in row.get("properties") or ():
        name, value = one.values() if isinstance(one, dict) else one
        pairs.append((str(name), str(value)))
    return MqttMessage(
        topic,
        payload.encode() if isinstance(payload, str) else payload,
        options.qos if qos is None else int(qos),
        options.retain if retain is None else retain,
        tuple(pairs),
    )


def _text(value: object) -> str:
    """Return a value as text that where-clauses can read."""
    return repr(value) if isinstance(value, float) else str(value)


def _check_topic(topic: str) -> None:
    try:
        check_name(topic)
    except ClientError as error:
        raise ConfigError(f"cannot publish to {topic!r}: {error.message}.") from None


def check_columns(schema: StructType, options: WriterOptions) -> None:
    """Raise a ConfigError if rows with these columns cannot be published."""
    found = {field.name: field.dataType for field in schema.fields}
    if "topic" not in found and options.topic is None:
        raise ConfigError(
            f"the rows have no column 'topic'; their columns are {', '.join(found)}.",
            hint="The option topic has one for all of them.",
        )
    if "payload" not in found:
        raise ConfigError(
            f"the rows have no column 'payload'; their columns are {', '.join(found)}."
        )
    for name, (fits, wanted) in _COLUMNS.items():
        if name in found and not fits(found[name]):
            raise ConfigError(
                f"the column {name!r} is {found[name].simpleString()}, and should be {wanted}."
            )


def _is_attributes(given: DataType) -> bool:
    return (
        isinstance(given, MapType)
        and isinstance(given.keyType, StringType)
        and isinstance(given.valueType, NumericType | StringType)
    )


def _is_properties(given: DataType) -> bool:
    if isinstance(given, ArrayType) and isinstance(given.elementType, StructType):
        kinds = [field.dataType for field in given.elementType.fields]
        return len(kinds) == 2 and all(isinstance(kind, StringType) for kind in kinds)
    return isinstance(given, MapType) and isinstance(given.valueType, StringType)


_COLUMNS: Mapping[str, tuple[Callable[[DataType], bool], str]] = {
    "topic": (lambda given: isinstance(given, StringType), "string"),
    "payload": (lambda given: isinstance(given, StringType | BinaryType), "string or binary"),
    "qos": (lambda given: isinstance(given, IntegralType), "a whole number"),
    "retain": (lambda given: isinstance(given, BooleanType), "boolean"),
    "attributes": (_is_attributes, "map<string,double> or map<string,string>"),
    "properties": (
        _is_properties,
        "map<string,string> or array<struct<name:string,value:string>>",
    ),
}
