"""`pub` and `sub`: publish and subscribe at any MQTT server."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli import option_types
from dovetail.cli.connection_options import with_connection
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from dovetail.client import ConnectionOptions

app = typer.Typer()


class PayloadFormat(StrEnum):
    """The values of `sub --format`."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"


@app.command(epilog="Example: dovetail pub building3/room1/temperature 21.5 --qos 1 --retain")
@with_connection
def pub(
    topic: Annotated[str, typer.Argument(help="The topic to publish to.")],
    payload: Annotated[
        str | None,
        typer.Argument(
            help="The payload of the message. - reads standard input to its end. Put a payload "
            "that begins with - behind --, as in: dovetail pub room/temperature -- -5"
        ),
    ] = None,
    *,
    options: "ConnectionOptions",
    file: Annotated[Path | None, option_types.file("Publish the content of this file.")] = None,
    stdin: Annotated[
        bool, option_types.flag("--stdin", "Publish standard input, to its end, as one message.")
    ] = False,
    lines: Annotated[
        bool,
        option_types.flag("--lines", "Publish each line of standard input as a message."),
    ] = False,
    null: Annotated[
        bool,
        option_types.flag(
            "--null",
            "Publish an empty message. With --retain it clears the topic's retained message.",
        ),
    ] = False,
    qos: Annotated[
        int, option_types.qos("Deliver at most once (0), at least once (1) or exactly once (2).")
    ] = 0,
    retain: Annotated[
        bool,
        option_types.flag("--retain", "Let the server keep the message for later subscribers."),
    ] = False,
    attributes: Annotated[
        list[str] | None,
        option_types.value(
            "An attribute, for subscribers with a where-clause; may be repeated.",
            "NAME=VALUE",
            "--attr",
        ),
    ] = None,
    user_properties: Annotated[
        list[str] | None,
        option_types.value("A user property; may be repeated.", "NAME=VALUE", "--property"),
    ] = None,
    content_type: Annotated[
        str | None, option_types.value("The type of the payload, such as text/csv.")
    ] = None,
    response_topic: Annotated[
        str | None, option_types.value("The topic for an answer.", "TOPIC")
    ] = None,
    correlation_data: Annotated[
        str | None, option_types.value("Data that the answer must repeat.")
    ] = None,
    expiry_seconds: Annotated[
        int | None,
        option_types.expiry(
            "--expiry", "The server drops the message if it is not delivered in time."
        ),
    ] = None,
    repeat: Annotated[int, option_types.number("Publish the message N times.", minimum=1)] = 1,
    interval_seconds: Annotated[
        float, option_types.seconds("--interval", "The time between two messages.")
    ] = 0.0,
    verbose: Annotated[
        bool, option_types.flag("--verbose", "Print a note if the message has no subscriber.", "-v")
    ] = False,
) -> None:
    """Publish a message to an MQTT server.

    The command succeeds when the server has acknowledged the message; at QoS 0, when it is sent.
    """
    from dovetail.client import PayloadSource, PublishRequest, publish

    publish(
        options,
        PublishRequest(
            topic=topic,
            qos=qos,
            retain=retain,
            attributes=option_types.pairs("--attr", attributes, "lat=40.7"),
            user_properties=option_types.pairs("--property", user_properties, "unit=celsius"),
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            expiry_seconds=expiry_seconds,
        ),
        PayloadSource(payload=payload, file=file, stdin=stdin, lines=lines, null=null),
        repeat=repeat,
        interval_seconds=interval_seconds,
        verbose=verbose,
    )


@app.command(epilog="Example: dovetail sub 'building3/+/temperature' -v")
@with_connection
def sub(
    filters: Annotated[
        list[str], typer.Argument(help="Topic filters; they may have wildcards + and #.")
    ],
    *,
    options: "ConnectionOptions",
    verbose: Annotated[
        bool, option_types.flag("--verbose", "Print the topic before each message.", "-v")
    ] = False,
    json: Annotated[
        bool,
        option_types.flag("--json", "Print each message with all its properties as a JSON object."),
    ] = False,
    payload_format: Annotated[
        PayloadFormat,
        option_types.value(
            "How to print payloads. text escapes bytes that are not UTF-8 and, on a terminal, "
            "control characters. raw prints only the bytes, without line breaks.",
            "text|hex|base64|raw",
            "--format",
        ),
    ] = PayloadFormat.TEXT,
    count: Annotated[int | None, option_types.number("Exit after N messages.", minimum=1)] = None,
    timeout_seconds: Annotated[
        float | None,
        option_types.seconds(
            "--timeout", "Exit after this time. It is an error if --count was not reached."
        ),
    ] = None,
    where: Annotated[
        str | None,
        option_types.value(
            "Receive only messages whose attributes match, as in 'lat < 41 and road == \"A1\"'. "
            "The clause applies to all filters. A server other than Dovetail may ignore it.",
            "CLAUSE",
        ),
    ] = None,
    qos: Annotated[int, option_types.qos("The highest QoS for deliveries.")] = 0,
    no_retained: Annotated[
        bool, option_types.flag("--no-retained", "Do not receive retained messages at the start.")
    ] = False,
    no_local: Annotated[
        bool, option_types.flag("--no-local", "Do not receive messages that this client published.")
    ] = False,
    retain_as_published: Annotated[
        bool,
        option_types.flag("--retain-as-published", "Keep the retain flag as the publisher set it."),
    ] = False,
    identifier: Annotated[
        int | None,
        option_types.number(
            "The subscription identifier, which --json prints with each message.",
            minimum=1,
            maximum=268_435_455,
        ),
    ] = None,
    keep_session: Annotated[
        bool,
        option_types.flag(
            "--keep-session/--clean",
            "Use a persistent session: the server keeps subscriptions and messages of QoS 1 and 2 "
            "while this client is away, for ever or for --session-expiry. Needs --client-id.",
        ),
    ] = False,
) -> None:
    """Subscribe at an MQTT server and print messages as they come.

    The command reconnects when the connection breaks. Stop it with Ctrl-C: that is no error, unless
    --count was not reached.
    """
    from dovetail.client import Format, SubscribeRequest, subscribe

    if json and payload_format is not PayloadFormat.TEXT:
        raise ConfigError("give --json or --format.")
    subscribe(
        options,
        SubscribeRequest(
            filters=tuple(filters),
            where=where,
            qos=qos,
            retained=not no_retained,
            no_local=no_local,
            retain_as_published=retain_as_published,
            identifier=identifier,
        ),
        keep_session=keep_session,
        count=count,
        timeout_seconds=timeout_seconds,
        format_=Format.JSON if json else Format(payload_format),
        verbose=verbose,
    )
