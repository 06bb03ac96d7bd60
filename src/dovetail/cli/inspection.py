"""`status`, `route` and `spaces`: show a running cluster. `drain`: remove a matcher from it."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.cli.limits import HTTP_URL

app = typer.Typer()

NodeUrl = Annotated[str, option_types.value("The HTTP address of any node of the cluster.", "URL")]
BrokerUrl = Annotated[
    str, option_types.value("The HTTP address of any broker of the cluster.", "URL")
]

User = Annotated[
    str | None, option_types.value("Your user name, if the broker asks for one.", "NAME")
]
PasswordFile = Annotated[Path | None, option_types.password_file()]


@app.command(epilog="Example: dovetail status --url http://127.0.0.1:8081 --once")
def status(
    url: NodeUrl = HTTP_URL,
    once: Annotated[
        bool, option_types.flag("--once", "Measure for one second, print once and exit.")
    ] = False,
    json: Annotated[
        bool, option_types.flag("--json", "Print the full report once, as JSON.")
    ] = False,
    matchers: Annotated[
        bool,
        option_types.flag(
            "--matchers", "Show the segments of all matchers, however many there are."
        ),
    ] = False,
    interval_seconds: Annotated[
        float,
        option_types.seconds(
            "--interval", "The time between refreshes.", minimum=0.1, maximum=3_600
        ),
    ] = 2.0,
) -> None:
    """Show the nodes of a running cluster and their load.

    The tables refresh until Ctrl-C.

    Brokers. sketch: share of the sketch's bits that are set. false+: false-positive rate of a
    look-up in the sketch. fwd: publications that the broker forwards to other nodes, per second.
    vain: publications that others forward to it needlessly, per second. lag: messages of QoS 1 and
    2 that other brokers still have to send to it.

    Matchers. boxes: boxes that the matcher holds. points: publications that it answers for, per
    second. unsure: those of them that brokers had to check themselves. queue: points that wait.

    Segments. The values of a dimension that each matcher answers for. arrive: points that come, per
    second. match: points that the matcher could answer for, per second.
    """
    from dovetail.inspect.status import show_status

    show_status(url, once=once, as_json=json, interval_seconds=interval_seconds, all_parts=matchers)


@app.command(epilog="Example: dovetail route traffic/A1 --attr lat=40.5 --attr speed=20")
def route(
    topic: Annotated[str, typer.Argument(help="The topic of the publication.")],
    attributes: Annotated[
        list[str] | None,
        option_types.value(
            "An attribute of the publication; may be repeated.", "NAME=VALUE", "--attr"
        ),
    ] = None,
    url: BrokerUrl = HTTP_URL,
    user: User = None,
    password_file: PasswordFile = None,
    json: Annotated[bool, option_types.flag("--json", "Print JSON.")] = False,
) -> None:
    """Explain where a publication would go in a running cluster.

    Nothing is published. With attributes, it also shows which clauses match and which matchers the
    broker would ask. If the broker has users, rules or certificates, --user must be one of
    access.administrators in its configuration.
    """
    from dovetail.inspect.route import show_route

    pairs = option_types.pairs("--attr", attributes, "lat=40.7")
    show_route(url, topic, pairs, option_types.login(user, password_file), as_json=json)


@app.command(epilog="Example: dovetail spaces --url http://127.0.0.1:8081")
def spaces(
    url: Annotated[str, option_types.value("The HTTP address of the node.", "URL")] = HTTP_URL,
    json: Annotated[bool, option_types.flag("--json", "Print JSON.")] = False,
) -> None:
    """Show the spaces of a running node and count their clauses."""
    from dovetail.inspect.spaces import show_spaces

    show_spaces(url, as_json=json)


@app.command(epilog="Example: dovetail drain east-matcher-2")
def drain(
    name: Annotated[str, typer.Argument(help="The matcher's name, as in `dovetail status`.")],
    url: BrokerUrl = HTTP_URL,
    user: User = None,
    password_file: PasswordFile = None,
) -> None:
    """Drain a matcher and wait until it has left.

    No publication is missed or doubled: the matcher answers until others have its boxes. If it was
    the last one, brokers evaluate where-clauses themselves. `dovetail up` does not start it again.

    If the broker has users, rules or certificates, --user must be one of access.administrators in
    its configuration. Otherwise the command must run on the broker's machine.
    """
    from dovetail.inspect.drain import drain as run

    run(url, name, option_types.login(user, password_file))
