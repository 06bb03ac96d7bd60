"""`up` and `node`: brokers and matchers that run until they are stopped."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.limits import CLUSTER_PORT, WORKERS_MAX
from dovetail.process.extras import Extra, require

app = typer.Typer()


class Role(StrEnum):
    BROKER = "broker"
    MATCHER = "matcher"
    BOTH = "both"


Host = Annotated[
    str | None, option_types.value("Where to listen. Default: 127.0.0.1, this machine.", "ADDRESS")
]
Port = Annotated[
    int | None,
    option_types.port(
        "The MQTT port. Default: 1883, or the next that is free; 0 takes any.", least=0
    ),
]
ConfigFile = Annotated[
    Path | None, option_types.file("A configuration file; see `dovetail config --explain`.")
]
Quiet = Annotated[
    bool, option_types.flag("--quiet", "Say nothing at the start; warnings still come.")
]
Workers = Annotated[
    int | None,
    option_types.number(
        "Run N brokers behind the same ports, to use so many cores. Default: 1.",
        least=1,
        most=WORKERS_MAX,
    ),
]


@app.command(epilog="Example: dovetail up --port 1884 --data /var/lib/dovetail")
def up(
    host: Host = None,
    port: Port = None,
    brokers: Annotated[
        int | None,
        option_types.number(
            "Run a cluster of N brokers, on --port and the ports after it.",
            least=1,
            most=WORKERS_MAX,
        ),
    ] = None,
    workers: Workers = None,
    matchers: Annotated[
        str | None,
        option_types.value(
            "Run N matchers besides, which find out at which brokers a publication is wanted in "
            "the spaces of --config. MIN:MAX: as many as it takes, by how busy they are.",
            "N|MIN:MAX",
        ),
    ] = None,
    pipeline: Annotated[
        bool,
        option_types.flag(
            "--pipeline",
            "Run all of it: two brokers and, for the spaces of --config, two matchers, unless "
            "others are asked for; an archive of all topics, unless the file names some; and a "
            "stream on a Spark of this machine, which matches what is archived into a table and "
            'serves spaces with engine = "spark".',
        ),
    ] = False,
    data: Annotated[
        Path | None,
        option_types.folder(
            "Where sessions and messages are kept. Default: dovetail-data, in this folder."
        ),
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Run the service: an MQTT broker, or several nodes.

    Ctrl-C or SIGTERM stops it.
    """
    if pipeline:
        require(Extra.SPARK)
    from dovetail.fleet.launch import up as run
    from dovetail.settings import Options, parse_counts

    options = Options(
        config=_as_text(config),
        host=host,
        port=port,
        data=_as_text(data),
        workers=workers,
        matchers=None if matchers is None else parse_counts(matchers),
        pipeline=pipeline,
    )
    run(options, brokers=brokers, quiet=quiet)


@app.command(epilog="Example: dovetail node --join 192.0.2.7 --secret-file cluster.secret")
def node(
    join: Annotated[
        list[str] | None,
        option_types.node_address(
            f"A broker of the cluster, by the address of its links (port {CLUSTER_PORT} if "
            "none is given); may be repeated. Without it, a cluster begins here."
        ),
    ] = None,
    role: Annotated[
        Role,
        option_types.value(
            "What the node is for. A matcher has no clients and no data: it takes --join, "
            "--name, --listen, --advertise, --secret-file, and --config with its brokers' spaces. "
            "both: a broker that has a matcher, NAME-matcher, in its process.",
            "broker|matcher|both",
        ),
    ] = Role.BROKER,
    name: Annotated[
        str | None,
        option_types.value(
            "The node's name, which no other has. Default: the name of this machine, for a "
            "matcher with -matcher behind it."
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    listen: Annotated[
        str | None,
        option_types.node_address(
            "Where other brokers reach this one. Default: 127.0.0.1, so only from this "
            f"machine, and port {CLUSTER_PORT} or the next that is free."
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        option_types.node_address(
            "What they are told instead, where --listen is 0.0.0.0 or behind a translation of "
            "addresses."
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        option_types.file(
            "The secret that the cluster's brokers share. Default: cluster.secret, in "
            "dovetail-data or in the folder of --data."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        option_types.folder(
            "Where sessions and messages are kept. Default: dovetail-data/NAME, in this folder."
        ),
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Run a broker, a matcher or both as a node of a cluster.

    Ctrl-C or SIGTERM stops it.
    """
    from dovetail.fleet.launch import up as run
    from dovetail.settings import Options

    options = Options(
        config=_as_text(config),
        host=host,
        port=port,
        data=_as_text(data),
        workers=workers,
        is_node=True,
        role=role.value,
        name=name,
        join=tuple(join or ()),
        listen=listen,
        advertise=advertise,
        secret_file=_as_text(secret_file),
    )
    run(options, quiet=quiet)


def _as_text(path: Path | None) -> str | None:
    return None if path is None else str(path)
