"""`up` and `node`: run brokers and matchers until they are stopped."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.limits import CLUSTER_PORT, WORKERS_MAX
from dovetail.process.extras import Extra, require

app = typer.Typer()


class NodeRole(StrEnum):
    BROKER = "broker"
    MATCHER = "matcher"
    BOTH = "both"


Host = Annotated[
    str | None,
    option_types.value(
        "The address to listen on. Default: 127.0.0.1, so only this machine can connect.", "ADDRESS"
    ),
]
Port = Annotated[
    int | None,
    option_types.port(
        "The MQTT port. Default: 1883, or the next free port. 0: any free port.", minimum=0
    ),
]
ConfigFile = Annotated[
    Path | None,
    option_types.file("A configuration file. `dovetail config --explain` lists all settings."),
]
Quiet = Annotated[
    bool, option_types.flag("--quiet", "Print nothing at the start, except warnings.")
]
Workers = Annotated[
    int | None,
    option_types.number(
        "Run N brokers that share the same ports, to use N cores. Default: 1.",
        minimum=1,
        maximum=WORKERS_MAX,
    ),
]


@app.command(epilog="Example: dovetail up --port 1884 --data /var/lib/dovetail")
def up(
    host: Host = None,
    port: Port = None,
    brokers: Annotated[
        int | None,
        option_types.number(
            "Run a cluster of N brokers on --port and the next ports.",
            minimum=1,
            maximum=WORKERS_MAX,
        ),
    ] = None,
    workers: Workers = None,
    matchers: Annotated[
        str | None,
        option_types.value(
            "Also run N matchers, which find the subscribers of publications in the spaces of "
            "--config. MIN:MAX: start and stop matchers within these bounds, by their load.",
            "N|MIN:MAX",
        ),
    ] = None,
    pipeline: Annotated[
        bool,
        option_types.flag(
            "--pipeline",
            "Run everything: 2 brokers; 2 matchers if --config has spaces; an archive of all "
            "topics; and a Spark stream on this machine, which writes the matches of archived "
            'messages to a table and serves spaces with engine = "spark". --brokers and '
            "--matchers change the numbers; --config may limit the archive's topics.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        option_types.folder(
            "The folder for sessions and messages. Default: dovetail-data in the current folder."
        ),
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Run the service: a broker, or a cluster on this machine.

    Stop it with Ctrl-C or SIGTERM.
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
            f"The --listen or --advertise address of a broker of the cluster (default port "
            f"{CLUSTER_PORT}); may be repeated. Without --join, the node starts a new cluster."
        ),
    ] = None,
    role: Annotated[
        NodeRole,
        option_types.value(
            "The role of the node. A matcher has no clients and no data: it takes only --join, "
            "--name, --listen, --advertise, --secret-file, and --config with the brokers' spaces. "
            "both: a broker and a matcher, named NAME-matcher, in one process.",
            "broker|matcher|both",
        ),
    ] = NodeRole.BROKER,
    name: Annotated[
        str | None,
        option_types.value(
            "The unique name of the node. Default: this machine's name; for a matcher, that name "
            "and -matcher."
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    listen: Annotated[
        str | None,
        option_types.node_address(
            "The address for connections from other nodes. Default: 127.0.0.1, so only from this "
            f"machine, and port {CLUSTER_PORT} or the next free port."
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        option_types.node_address(
            "The address that other nodes connect to, if it is not --listen: for example behind "
            "NAT, or if --listen is 0.0.0.0."
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        option_types.file(
            "The file with the secret that all nodes of the cluster share. Default: "
            "cluster.secret in dovetail-data or in the folder of --data."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        option_types.folder(
            "The folder for sessions and messages. Default: dovetail-data/NAME in the current "
            "folder."
        ),
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Run a broker, a matcher or both as one node of a cluster.

    Stop it with Ctrl-C or SIGTERM.
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
