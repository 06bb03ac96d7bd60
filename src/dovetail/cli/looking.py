"""`status`, `route` and `spaces`: what a running cluster says of itself; `drain` changes it."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option
from dovetail.config import HTTP_URL

app = typer.Typer()

Url = Annotated[
    str, option.value("Where a node serves HTTP; any one of the cluster will do.", "URL")
]

User = Annotated[str | None, option.value("Who we are, where that has to be proven.", "NAME")]
PasswordFile = Annotated[Path | None, option.password_file()]


@app.command(epilog="Example: dovetail status --url http://127.0.0.1:8081 --once")
def status(
    url: Url = HTTP_URL,
    once: Annotated[
        bool, option.flag("--once", "Show it once, measured for a second, and end.")
    ] = False,
    json: Annotated[
        bool, option.flag("--json", "Print it once, as JSON, with all that nodes told.")
    ] = False,
    matchers: Annotated[
        bool,
        option.flag(
            "--matchers", "Show each matcher's part of each dimension, however many there are."
        ),
    ] = False,
    interval_seconds: Annotated[
        float, option.seconds("--interval", "How often it is renewed.", least=0.1, most=3_600)
    ] = 2.0,
) -> None:
    """Show the nodes of a running cluster, and what they carry, until Ctrl-C.

    sketch: the share of its bits that are set; false+: how often a look-up in it is wrongly
    answered yes; fwd: publications forwarded to other nodes; vain: those that came from others and
    nobody here had subscribed to; lag: what the others owe it at QoS 1 and 2. Of matchers: boxes
    that they hold; points: publications that they answered for; unsure: those that brokers had to
    look at themselves; queue: points that wait. Of their parts: the values of a dimension that each
    answers for; arrive: points a second that came there; match: how many it could answer for.
    """
    from dovetail.looking.status import show_status

    show_status(url, once=once, as_json=json, interval_seconds=interval_seconds, all_parts=matchers)


@app.command(epilog="Example: dovetail route traffic/A1 --attr lat=40.5 --attr speed=20")
def route(
    topic: Annotated[str, typer.Argument(help="The topic of a publication.")],
    attributes: Annotated[
        list[str] | None,
        option.value("An attribute of it; may be repeated.", "NAME=VALUE", "--attr"),
    ] = None,
    url: Annotated[
        str, option.value("Where a broker serves HTTP; any one of the cluster will do.", "URL")
    ] = HTTP_URL,
    user: User = None,
    password_file: PasswordFile = None,
    json: Annotated[bool, option.flag("--json", "Print it as JSON.")] = False,
) -> None:
    """Say where a publication would go in a running cluster, and why.

    With attributes also which clauses hold, and which matchers are asked. Nothing is published.
    Where there are users, rules or certificates, a broker tells this to a user that
    access.administrators in its configuration names (--user).
    """
    from dovetail.looking.route import show_route

    pairs = option.pairs("--attr", attributes, "lat=40.7")
    show_route(url, topic, pairs, option.login(user, password_file), as_json=json)


@app.command(epilog="Example: dovetail spaces --url http://127.0.0.1:8081")
def spaces(
    url: Annotated[str, option.value("Where a node serves HTTP.", "URL")] = HTTP_URL,
    json: Annotated[bool, option.flag("--json", "Print it as JSON.")] = False,
) -> None:
    """Show the spaces of a running node, and how many where-clauses its clients have in them."""
    from dovetail.looking.spaces import show_spaces

    show_spaces(url, as_json=json)


@app.command(epilog="Example: dovetail drain east-matcher-2")
def drain(
    name: Annotated[str, typer.Argument(help="The matcher, as `dovetail status` names it.")],
    url: Annotated[
        str, option.value("Where a broker serves HTTP; any one of the cluster will do.", "URL")
    ] = HTTP_URL,
    user: User = None,
    password_file: PasswordFile = None,
) -> None:
    """Have a matcher hand over what it answers for, and leave; wait until it is gone.

    No publication is missed or doubled: it answers until others have what it holds, and brokers
    look through where-clauses themselves if it was the last one. `dovetail up` does not start it
    again. A broker takes this from a user that access.administrators in its configuration names
    (--user), or from its own machine if it has no users, rules or certificates.
    """
    from dovetail.looking.draining import drain as run

    run(url, name, option.login(user, password_file))
