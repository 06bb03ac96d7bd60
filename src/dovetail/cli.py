"""The `dovetail` command: reads options, calls one function, reports what went wrong.

No command does its work here, and what a command needs is imported when it runs:
`dovetail --help` must not wait for Numba or Spark.
"""

import functools
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail import __version__
from dovetail.config import CLUSTER_PORT, HTTP_URL, SKETCH_FALSE_POSITIVE_RATE, WORKERS_MAX
from dovetail.errors import ConfigError, DovetailError, MissingDependencyError

if TYPE_CHECKING:
    from dovetail.client import ConnectionOptions

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


@dataclass
class Settings:
    """What holds for every command."""

    debug: bool = False


class Figure(StrEnum):
    """The figures of the wildcard paper that can be recomputed."""

    FIGURE_4 = "4"
    FIGURE_5 = "5"
    FIGURE_6 = "6"


class MqttVersion(StrEnum):
    """The versions of MQTT that `pub` and `sub` speak."""

    MQTT_5 = "5"
    MQTT_3_1_1 = "3.1.1"


class PayloadFormat(StrEnum):
    """How `sub` prints payloads."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"


app = typer.Typer(
    help="Dovetail: publish/subscribe that joins MQTT topics and attribute ranges.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
reproduce = typer.Typer(
    help="Recompute the figures of the papers that Dovetail is built on.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
sketch = typer.Typer(
    help="Build, look at and search sketches of topic filters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(reproduce, name="reproduce")
app.add_typer(sketch, name="sketch")


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"dovetail {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: dovetail reproduce wildcard --figure 6 --trials 3")
def global_options(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an expected error.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    context.obj.debug = debug


Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1, this machine."),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        metavar="N",
        help="The MQTT port. Default: 1883, or the next that is free; 0 takes any.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A configuration file; see `dovetail config --explain`."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Say nothing at the start; warnings still come.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=WORKERS_MAX,
        metavar="N",
        help="Run N brokers behind the same ports, to use so many cores. Default: 1.",
    ),
]


@app.command(epilog="Example: dovetail up --port 1884 --data /var/lib/dovetail")
def up(
    host: Host = None,
    port: Port = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=WORKERS_MAX,
            metavar="N",
            help="Run a cluster of N brokers, on --port and the ports after it.",
        ),
    ] = None,
    workers: Workers = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where sessions and messages are kept. Default: dovetail-data, in this folder.",
        ),
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Start the service: an MQTT broker, or several, until Ctrl-C or SIGTERM."""
    from dovetail.settings import Options
    from dovetail.up import up as run

    options = Options(
        config=as_text(config), host=host, port=port, data=as_text(data), workers=workers
    )
    run(options, brokers=brokers, quiet=quiet)


@app.command(epilog="Example: dovetail node --join 192.0.2.7 --secret-file cluster.secret")
def node(
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help=f"A broker of the cluster, by the address of its links (port {CLUSTER_PORT} if "
            "none is given); may be repeated. Without it, a cluster begins here.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The broker's name, which no other has. Default: the name of this machine.",
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Where other brokers reach this one. Default: 127.0.0.1, so only from this "
            f"machine, and port {CLUSTER_PORT} or the next that is free.",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="What they are told instead, where --listen is 0.0.0.0 or behind a translation of "
            "addresses.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The secret that the cluster's brokers share. Default: cluster.secret, in "
            "dovetail-data or in the folder of --data.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where sessions and messages are kept. Default: dovetail-data/NAME, in this "
            "folder.",
        ),
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Start a broker that is one of a cluster, until Ctrl-C or SIGTERM."""
    from dovetail.settings import Options
    from dovetail.up import up as run

    options = Options(
        config=as_text(config),
        host=host,
        port=port,
        data=as_text(data),
        workers=workers,
        is_node=True,
        name=name,
        join=tuple(join or ()),
        listen=listen,
        advertise=advertise,
        secret_file=as_text(secret_file),
    )
    run(options, quiet=quiet)


def as_text(path: Path | None) -> str | None:
    return None if path is None else str(path)


Url = Annotated[
    str,
    typer.Option(metavar="URL", help="Where a node serves HTTP; any one of the cluster will do."),
]


@app.command(epilog="Example: dovetail status --url http://127.0.0.1:8081 --once")
def status(
    url: Url = HTTP_URL,
    once: Annotated[
        bool, typer.Option("--once", help="Show it once, measured for a second, and end.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print it once, as JSON, with all that nodes told.")
    ] = False,
    interval_seconds: Annotated[
        float,
        typer.Option(
            "--interval", min=0.1, max=3_600, metavar="SECONDS", help="How often it is renewed."
        ),
    ] = 2.0,
) -> None:
    """Show the nodes of a running cluster, and what they carry, until Ctrl-C.

    sketch: the share of its bits that are set; false+: how often a look-up in it is wrongly
    answered yes; fwd: publications forwarded to other nodes; vain: those that came from others and
    nobody here had subscribed to; lag: what the others owe it at QoS 1 and 2.
    """
    from dovetail.looking.status import show_status

    show_status(url, once=once, as_json=json, interval_seconds=interval_seconds)


@app.command(epilog="Example: dovetail route building3/room1/temperature")
def route(
    topic: Annotated[str, typer.Argument(help="The topic of a publication.")],
    url: Url = HTTP_URL,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say where a publication would go in a running cluster, and why."""
    from dovetail.looking.route import show_route

    show_route(url, topic, as_json=json)


@app.command(epilog="Example: dovetail config --check dovetail.toml")
def config(
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show every setting with its default, as TOML."),
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Say whether a node could start with this file."),
    ] = None,
) -> None:
    """Explain the settings, or check a configuration file."""
    from dovetail import settings
    from dovetail.broker.passwords import PasswordFile
    from dovetail.cluster.secret import read_secret

    if explain == (check is not None):
        raise ConfigError("it takes either --explain or --check FILE.")
    if check is None:
        print(settings.explain(), end="")
        return
    checked = settings.load_settings(check)
    settings.check_files(checked)
    if checked.access.password_file:
        PasswordFile.load(checked.access.password_file)
    if checked.cluster.secret_file:
        read_secret(checked.cluster.secret_file)
    print(f"{check}: ok")


@app.command(epilog="Example: dovetail passwd users.txt alice")
def passwd(
    file: Annotated[Path, typer.Argument(help="The file that `access.password_file` names.")],
    user: Annotated[
        str | None, typer.Argument(help="Whose password to set. Without: the users are listed.")
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Take the first line of standard input, and do not ask.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Take the user out of the file.")
    ] = False,
) -> None:
    """Set the passwords of users."""
    from dovetail.broker import passwords

    if user is None:
        if stdin or delete:
            raise ConfigError("name the user too: dovetail passwd FILE USER.")
        for name in passwords.PasswordFile.load(file).users:
            print(name)
    elif delete:
        passwords.delete_user(file, user)
        print(f"{file}: {user} is deleted")
    else:
        passwords.check_user(user)
        passwords.set_password(file, user, first_line() if stdin else ask_password(user))
        print(f"{file}: the password of {user} is set")


@app.command(epilog="Example: dovetail backup --data /var/lib/dovetail monday.db")
def backup(
    target: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    data: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            show_default=False,
            help="What `up` was given. Default: dovetail-data, in this folder.",
        ),
    ] = Path("dovetail-data"),
) -> None:
    """Copy a data folder to a file, also while a broker uses it.

    To go back to it, put the file into an empty folder as dovetail.db, and start with that folder.
    """
    from dovetail.broker import store

    store.backup(data, target)
    print(f"{target}: {target.stat().st_size:,} bytes, a copy of {data}")


def first_line() -> bytes:
    return sys.stdin.buffer.readline().removesuffix(b"\n").removesuffix(b"\r")


def ask_password(user: str) -> bytes:
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is no terminal to ask for the password on.", hint="--stdin reads it from a pipe."
        )
    asked: str = typer.prompt(
        f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
    )
    return asked.encode()


def connection(
    *,
    host: Annotated[str, typer.Option(metavar="HOST", help="The server.")] = "localhost",
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            metavar="N",
            help="Its port. Default: 1883; 8883 with TLS; 8083 or 8084 with --websocket.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Who we are.")] = None,
    password: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The user's password. Other users of this machine can see it; "
            "better --password-file, or the variable DOVETAIL_PASSWORD.",
        ),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file whose first line is the password.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The client's name. Default: one by chance.")
    ] = None,
    keep_alive_seconds: Annotated[
        int,
        typer.Option(
            "--keep-alive",
            min=0,
            max=65_535,
            metavar="SECONDS",
            help="How often to make sure of the server; 0: never.",
        ),
    ] = 60,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS. The four options below ask for it too.")
    ] = False,
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Whom to trust, in PEM form. Default: as the system."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Our own certificate, in PEM form.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its key. Default: in the certificate's file."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Trust whatever certificate the server has.")
    ] = False,
    websocket: Annotated[
        bool, typer.Option("--websocket", help="Use a websocket, with the path /mqtt.")
    ] = False,
    version: Annotated[
        MqttVersion, typer.Option("--mqtt", metavar="5|3.1.1", help="The version of MQTT.")
    ] = MqttVersion.MQTT_5,
    session_expiry_seconds: Annotated[
        int | None,
        typer.Option(
            "--session-expiry",
            min=0,
            max=2**32 - 1,
            metavar="SECONDS",
            help="How long the server keeps the session when we are gone.",
        ),
    ] = None,
    will_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Where the server publishes our will if we vanish."),
    ] = None,
    will_payload: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The will's payload. Default: empty.")
    ] = None,
    will_qos: Annotated[
        int, typer.Option(min=0, max=2, metavar="0|1|2", help="The will's QoS.")
    ] = 0,
    will_retain: Annotated[
        bool, typer.Option("--will-retain", help="The will is to be retained.")
    ] = False,
) -> None:
    """The options that `pub` and `sub` have in common. Read, and never called."""


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `connection`, which get them as its argument `options`."""
    own = inspect.signature(command).parameters
    shared = inspect.signature(connection).parameters

    @functools.wraps(command)
    def run(**given: object) -> None:
        from dovetail.client import ConnectionOptions

        options: dict[str, Any] = {name: given.pop(name) for name in shared}
        command(options=ConnectionOptions(**options), **given)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own.values(), *shared.values())
        if parameter.name != "options"
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


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
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The message is what is in this file.")
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="The message is standard input, to its end.")
    ] = False,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="A message for each line of standard input, as it comes."),
    ] = False,
    null: Annotated[
        bool, typer.Option("--null", help="An empty message; with --retain it clears the topic.")
    ] = False,
    qos: Annotated[
        int,
        typer.Option(
            min=0, max=2, metavar="0|1|2", help="At most once, at least once, exactly once."
        ),
    ] = 0,
    retain: Annotated[
        bool, typer.Option("--retain", help="The server keeps it for subscribers to come.")
    ] = False,
    user_properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A user property; may be repeated."),
    ] = None,
    content_type: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the message is, such as text/csv.")
    ] = None,
    response_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where an answer is expected.")
    ] = None,
    correlation_data: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What an answer has to bring back.")
    ] = None,
    expiry_seconds: Annotated[
        int | None,
        typer.Option(
            "--expiry",
            min=0,
            max=2**32 - 1,
            metavar="SECONDS",
            help="After this time it is not delivered any more.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Publish it so many times.")] = 1,
    interval_seconds: Annotated[
        float,
        typer.Option(
            "--interval", min=0, metavar="SECONDS", help="Between one message and the next."
        ),
    ] = 0.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say so when nobody has subscribed to it.")
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
            user_properties=tuple(map(name_and_value, user_properties or ())),
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


def name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--property {text}: it takes a name and a value, as in unit=celsius.")
    return name, value


@app.command(epilog="Example: dovetail sub 'building3/+/temperature' -v")
@with_connection
def sub(
    filters: Annotated[list[str], typer.Argument(help="Topic filters, with wildcards + and #.")],
    *,
    options: "ConnectionOptions",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the topic before the message.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each message, with all it has.")
    ] = False,
    payload_format: Annotated[
        PayloadFormat,
        typer.Option(
            "--format",
            metavar="text|hex|base64|raw",
            help="How messages are printed. text escapes what is not UTF-8; raw is the bytes "
            "alone, without a line's end.",
        ),
    ] = PayloadFormat.TEXT,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many messages.")
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0,
            metavar="SECONDS",
            help="End after this time; an error if --count was not reached.",
        ),
    ] = None,
    qos: Annotated[
        int, typer.Option(min=0, max=2, metavar="0|1|2", help="The highest QoS of deliveries.")
    ] = 0,
    no_retained: Annotated[
        bool, typer.Option("--no-retained", help="Leave out what was retained before.")
    ] = False,
    no_local: Annotated[
        bool, typer.Option("--no-local", help="Leave out what this client published.")
    ] = False,
    retain_as_published: Annotated[
        bool, typer.Option("--retain-as-published", help="Show retain as the publisher set it.")
    ] = False,
    identifier: Annotated[
        int | None,
        typer.Option(
            min=1, max=268_435_455, metavar="N", help="A number that --json shows with messages."
        ),
    ] = None,
    keep_session: Annotated[
        bool,
        typer.Option(
            "--keep-session/--clean",
            help="The server keeps the subscriptions, and messages of QoS 1 and 2, while we are "
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


@reproduce.command(
    epilog="Example: dovetail reproduce wildcard --figure 6 --trials 3 --out results"
)
def wildcard(
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trials that each point averages, up to 1,000.")
    ] = 10,
    figure: Annotated[
        list[Figure] | None,
        typer.Option(metavar="4|5|6", help="A figure to compute; may be repeated. Default: all."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The same seed gives the same figures.")
    ] = 1,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The Spark master, such as spark://host:7077. Default: this machine.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder for the results. Default: wildcard-results."),
    ] = None,
) -> None:
    """Count the filter queries per search that the wildcard paper plots in figures 4 to 6."""
    require_spark()
    from dovetail.pipeline import jobs

    jobs.reproduce_wildcard(
        figures=tuple(int(chosen) for chosen in figure or Figure),
        trials=trials,
        seed=seed,
        master=master,
        out=out,
    )


@reproduce.command(epilog="Example: dovetail reproduce broker --rounds 5 --out results")
def broker(
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rounds over all points, up to 100.")
    ] = 3,
    seconds: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Of full load at a point, in each round."),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The same seed draws the same filters.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder for the results. Default: broker-results."),
    ] = None,
) -> None:
    """Time our broker over filter queries per PUBLISH, as the wildcard paper's figure 7 does."""
    require_spark()
    from dovetail.pipeline import jobs

    jobs.reproduce_broker(rounds=rounds, seconds=seconds, seed=seed, out=out)


@sketch.command(epilog="Example: dovetail sketch build filters.txt --out broker.sketch")
def build(
    filters: Annotated[
        str, typer.Argument(help="A file with one topic filter a line; - reads standard input.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", dir_okay=False, help="The sketch's file.")],
    method: Annotated[
        str, typer.Option(metavar="bf|bfp|prefix|lines", help="How filters are kept.")
    ] = "lines",
    false_positive_rate: Annotated[
        float, typer.Option(metavar="RATE", help="Wrong answers per query that are allowed.")
    ] = SKETCH_FALSE_POSITIVE_RATE,
    seed: Annotated[
        int, typer.Option(min=0, max=2**64 - 1, metavar="N", help="The hashes' seed.")
    ] = 0,
) -> None:
    """Sketch a list of filters as a broker would, and say what it costs."""
    from dovetail import sketching

    show_table(
        sketching.build(
            filters, out, method=method, false_positive_rate=false_positive_rate, seed=seed
        )
    )


SketchFile = Annotated[Path, typer.Argument(help="A file that `sketch build` wrote.")]


@sketch.command()
def info(file: SketchFile) -> None:
    """Show a sketch's size, fill and false-positive rate."""
    from dovetail import sketching

    show_table(sketching.describe(sketching.read(file)))


@sketch.command(epilog="Example: dovetail sketch search broker.sketch building3/room1/temperature")
def search(
    file: SketchFile,
    topics: Annotated[
        list[str], typer.Argument(help="Topic names; - reads them from standard input.")
    ],
) -> None:
    """Say for each topic whether a filter in the sketch may match it."""
    from dovetail import sketching

    for topic, found, queries in sketching.search(file, topics):
        print(f"{'maybe' if found else 'no':5}  {queries:4} queries  {topic}")


def show_table(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def require_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"this command needs Spark's packages, and {' and '.join(missing)} cannot be imported.",
            hint='Install the extra: pip install "dovetail[spark]"',
        )


def main() -> None:
    """Run the command line, and end the process."""
    settings = Settings()
    try:
        try:
            app(obj=settings, prog_name="dovetail")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except DovetailError as error:
        if settings.debug:
            traceback.print_exc()
        else:
            print(f"dovetail: error: {error}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (OSError, UnicodeEncodeError) as error:
        if getattr(error, "filename", None) is not None:
            raise  # a file is a command's business, and this a bug of it
        # Standard output. A reader that has gone (`dovetail ... | head`) is no error to speak of.
        if settings.debug:
            traceback.print_exc()
        elif not isinstance(error, BrokenPipeError):
            print(f"dovetail: error: cannot write to standard output: {error}", file=sys.stderr)
        # Python's own flush at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
