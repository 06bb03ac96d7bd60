"""`pub` and `sub`: clients of any MQTT server."""

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
    """How `sub` prints payloads."""

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
            help="The message; - reads standard input to its end. One that begins with - goes "
            "behind --, as in: dovetail pub room/temperature -- -5"
        ),
    ] = None,
    *,
    options: "ConnectionOptions",
    file: Annotated[Path | None, option_types.file("The message is what is in this file.")] = None,
    stdin: Annotated[
        bool, option_types.flag("--stdin", "The message is standard input, to its end.")
    ] = False,
    lines: Annotated[
        bool,
        option_types.flag("--lines", "A message for each line of standard input, as it comes."),
    ] = False,
    null: Annotated[
        bool, option_types.flag("--null", "An empty message; with --retain it clears the topic.")
    ] = False,
    qos: Annotated[int, option_types.qos("At most once, at least once, exactly once.")] = 0,
    retain: Annotated[
        bool, option_types.flag("--retain", "The server keeps it for subscribers to come.")
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
        str | None, option_types.value("What the message is, such as text/csv.")
    ] = None,
    response_topic: Annotated[
        str | None, option_types.value("Where an answer is expected.", "TOPIC")
    ] = None,
    correlation_data: Annotated[
        str | None, option_types.value("What an answer has to bring back.")
    ] = None,
    expiry_seconds: Annotated[
        int | None, option_types.expiry("--expiry", "After this time it is not delivered any more.")
    ] = None,
    repeat: Annotated[int, option_types.number("Publish it so many times.", least=1)] = 1,
    interval_seconds: Annotated[
        float, option_types.seconds("--interval", "Between one message and the next.")
    ] = 0.0,
    verbose: Annotated[
        bool, option_types.flag("--verbose", "Say so when nobody has subscribed to it.", "-v")
    ] = False,
) -> None:
    """Publish a message.

    Success is that the server has acknowledged it, or at QoS 0 that it was sent.
    """
    from dovetail.client import Publication, Source, publish

    publish(
        options,
        Publication(
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
        Source(payload=payload, file=file, stdin=stdin, lines=lines, null=null),
        repeat=repeat,
        interval_seconds=interval_seconds,
        verbose=verbose,
    )


@app.command(epilog="Example: dovetail sub 'building3/+/temperature' -v")
@with_connection
def sub(
    filters: Annotated[list[str], typer.Argument(help="Topic filters, with wildcards + and #.")],
    *,
    options: "ConnectionOptions",
    verbose: Annotated[
        bool, option_types.flag("--verbose", "Print the topic before the message.", "-v")
    ] = False,
    json: Annotated[
        bool, option_types.flag("--json", "Print a JSON object for each message, with all it has.")
    ] = False,
    payload_format: Annotated[
        PayloadFormat,
        option_types.value(
            "How messages are printed. text escapes what is not UTF-8 and, on a terminal, "
            "control characters; raw is the bytes alone, without a line's end.",
            "text|hex|base64|raw",
            "--format",
        ),
    ] = PayloadFormat.TEXT,
    count: Annotated[
        int | None, option_types.number("End after so many messages.", least=1)
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        option_types.seconds(
            "--timeout", "End after this time; an error if --count was not reached."
        ),
    ] = None,
    where: Annotated[
        str | None,
        option_types.value(
            "Only messages whose attributes satisfy it, as in 'lat < 41 and road == \"A1\"'. It "
            "goes with all filters. A server that knows no attributes may send everything.",
            "CLAUSE",
        ),
    ] = None,
    qos: Annotated[int, option_types.qos("The highest QoS of deliveries.")] = 0,
    no_retained: Annotated[
        bool, option_types.flag("--no-retained", "Leave out what was retained before.")
    ] = False,
    no_local: Annotated[
        bool, option_types.flag("--no-local", "Leave out what this client published.")
    ] = False,
    retain_as_published: Annotated[
        bool, option_types.flag("--retain-as-published", "Show retain as the publisher set it.")
    ] = False,
    identifier: Annotated[
        int | None,
        option_types.number("A number that --json shows with messages.", least=1, most=268_435_455),
    ] = None,
    keep_session: Annotated[
        bool,
        option_types.flag(
            "--keep-session/--clean",
            "The server keeps the subscriptions, and messages of QoS 1 and 2, while we are "
            "away: for ever, or as --session-expiry says. Needs --client-id.",
        ),
    ] = False,
) -> None:
    """Subscribe, and print messages as they come.

    It connects again when it has to. Ctrl-C ends it, and is no error, unless --count was not
    reached.
    """
    from dovetail.client import Format, Subscription, subscribe

    if json and payload_format is not PayloadFormat.TEXT:
        raise ConfigError("give --json or --format.")
    subscribe(
        options,
        Subscription(
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
        how=Format.JSON if json else Format(payload_format),
        verbose=verbose,
    )
