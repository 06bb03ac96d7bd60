"""`status`, `route` and `spaces`: what a running cluster says of itself; `drain` changes it."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.cli.limits import HTTP_URL

app = typer.Typer()

Url = Annotated[
    str, option_types.value("Where a node serves HTTP; any one of the cluster will do.", "URL")
]

User = Annotated[str | None, option_types.value("Who we are, where that has to be proven.", "NAME")]
PasswordFile = Annotated[Path | None, option_types.password_file()]


@app.command(epilog="Example: dovetail status --url http://127.0.0.1:8081 --once")
def status(
    url: Url = HTTP_URL,
    once: Annotated[
        bool, option_types.flag("--once", "Show it once, measured for a second, and end.")
    ] = False,
    json: Annotated[
        bool, option_types.flag("--json", "Print it once, as JSON, with all that nodes told.")
    ] = False,
    matchers: Annotated[
        bool,
        option_types.flag(
            "--matchers", "Show each matcher's part of each dimension, however many there are."
        ),
    ] = False,
    interval_seconds: Annotated[
        float, option_types.seconds("--interval", "How often it is renewed.", least=0.1, most=3_600)
    ] = 2.0,
) -> None:
    """Show the nodes of a running cluster and their load.

    Ctrl-C ends it. sketch: the share of its bits that are set; false+: the rate of false positives
    of a look-up in it; fwd: publications forwarded to other nodes; vain: those that came from
    others although no client here had subscribed; lag: messages of QoS 1 and 2 that the others
    still have to send to it. Of matchers: boxes that they hold; points: publications that they
    answered for; unsure: those that brokers had to look at themselves; queue: points that wait. Of
    their segments: the values of a dimension that each answers for; arrive: points a second that
    come there; match: points a second that it could answer for.
    """
    from dovetail.inspect.status import show_status

    show_status(url, once=once, as_json=json, interval_seconds=interval_seconds, all_parts=matchers)


@app.command(epilog="Example: dovetail route traffic/A1 --attr lat=40.5 --attr speed=20")
def route(
    topic: Annotated[str, typer.Argument(help="The topic of a publication.")],
    attributes: Annotated[
        list[str] | None,
        option_types.value("An attribute of it; may be repeated.", "NAME=VALUE", "--attr"),
    ] = None,
    url: Annotated[
        str,
        option_types.value("Where a broker serves HTTP; any one of the cluster will do.", "URL"),
    ] = HTTP_URL,
    user: User = None,
    password_file: PasswordFile = None,
    json: Annotated[bool, option_types.flag("--json", "Print it as JSON.")] = False,
) -> None:
    """Say where a publication would go in a running cluster, and why.

    With attributes also which clauses hold, and which matchers are asked. Nothing is published.
    Where there are users, rules or certificates, a broker tells this to a user that
    access.administrators in its configuration names (--user).
    """
    from dovetail.inspect.route import show_route

    pairs = option_types.pairs("--attr", attributes, "lat=40.7")
    show_route(url, topic, pairs, option_types.login(user, password_file), as_json=json)


@app.command(epilog="Example: dovetail spaces --url http://127.0.0.1:8081")
def spaces(
    url: Annotated[str, option_types.value("Where a node serves HTTP.", "URL")] = HTTP_URL,
    json: Annotated[bool, option_types.flag("--json", "Print it as JSON.")] = False,
) -> None:
    """Show the spaces of a running node and count their clauses."""
    from dovetail.inspect.spaces import show_spaces

    show_spaces(url, as_json=json)


@app.command(epilog="Example: dovetail drain east-matcher-2")
def drain(
    name: Annotated[str, typer.Argument(help="The matcher, as `dovetail status` names it.")],
    url: Annotated[
        str,
        option_types.value("Where a broker serves HTTP; any one of the cluster will do.", "URL"),
    ] = HTTP_URL,
    user: User = None,
    password_file: PasswordFile = None,
) -> None:
    """Drain a matcher and wait until it has left.

    No publication is missed or doubled: it answers until others have what it holds, and brokers
    look through where-clauses themselves if it was the last one. `dovetail up` does not start it
    again. A broker takes this from a user that access.administrators in its configuration names
    (--user), or from its own machine if it has no users, rules or certificates.
    """
    from dovetail.inspect.drain import drain as run

    run(url, name, option_types.login(user, password_file))
