"""Runs `dovetail up` and `dovetail node`: starts nodes and prints where they listen."""

import os
import secrets
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from dovetail import __version__
from dovetail.api.child_process import STREAM_MODULE, StreamMember
from dovetail.client.endpoint import PASSWORD_VARIABLE
from dovetail.cluster.addresses import is_unspecified
from dovetail.cluster.node_settings import secret_file_of
from dovetail.errors import ConfigError
from dovetail.fleet.child import ProcessSpec
from dovetail.fleet.limits import PIPELINE_BROKERS
from dovetail.fleet.members import Fleet, Member, check_folders, plan
from dovetail.fleet.supervisor import MatcherPool, supervise
from dovetail.matcher.autoscaler import Autoscaler
from dovetail.node.service import http_url
from dovetail.process import garbage
from dovetail.process.descriptors import raise_descriptor_limit
from dovetail.process.extras import Extra, require
from dovetail.process.logs import set_up_logging
from dovetail.process.terminal import say
from dovetail.settings import (
    Options,
    Settings,
    check_files,
    check_spaces,
    movable_kinds,
    settings_of,
)

if TYPE_CHECKING:
    from dovetail.node.broker import BrokerNode
    from dovetail.node.combined import CombinedNode
    from dovetail.node.matcher import MatcherNode

_DURABILITY = {
    "process": "survives a crash of the process",
    "power": "survives a power failure",
}


def up(options: Options, *, brokers: int | None = None, quiet: bool = False) -> None:
    """Run one node, or several, until they are told to stop."""
    settings = settings_of(options)
    matchers = settings.matchers.count_min
    if matchers or options.role in {"matcher", "both"}:
        check_spaces(settings)
    check_files(settings)
    if settings.has_archive:
        require(Extra.ARCHIVE)
    if options.pipeline and brokers is None and settings.workers == 1:
        brokers = PIPELINE_BROKERS
    if options.role == "matcher":
        _run_matcher(options, settings, quiet=quiet)
    elif options.role == "both":
        _run_both(options, settings, quiet=quiet)
    elif brokers is not None:
        if settings.workers > 1:
            raise ConfigError(
                "it takes --brokers or workers, and not both.",
                hint="--brokers N gives each broker ports of its own, to try a cluster on one "
                "machine; with workers they share one port, and so the machine's cores.",
            )
        _run_fleet(plan(options, settings, brokers, shares_ports=False), quiet=quiet)
    elif matchers or settings.workers > 1:
        shares_ports = settings.workers > 1
        count = settings.workers
        _run_fleet(plan(options, settings, count, shares_ports=shares_ports), quiet=quiet)
    else:
        _run_alone(options, settings, quiet=quiet)


# One ----------------------------------------------------------------------------------------------


def _run_alone(options: Options, settings: Settings, *, quiet: bool) -> None:
    with garbage.paused():
        from dovetail.node.broker import run_node

    check_folders(Path(settings.data), None)
    if settings.cluster.enabled:
        settings = _with_secret(options, settings)
    run_node(
        settings,
        load=lambda: settings_of(options),
        movable=movable_kinds(options),
        announce=None if quiet else _announce_one,
    )


def _with_secret(options: Options, settings: Settings) -> Settings:
    """Return settings that name the secret's file. It is made if missing."""
    secret_file = secret_file_of(settings, options.secret_folder)
    return replace(settings, cluster=replace(settings.cluster, secret_file=secret_file))


def _run_both(options: Options, settings: Settings, *, quiet: bool) -> None:
    with garbage.paused():
        from dovetail.node.combined import run_combined

    if settings.workers > 1 or settings.matchers.count_max:
        raise ConfigError(
            "a node with both roles is one process: it takes neither workers nor matchers.",
            hint="`dovetail up --brokers N --matchers N` starts more of them.",
        )
    check_folders(Path(settings.data), None)
    run_combined(
        _with_secret(options, settings),
        load=lambda: settings_of(options),
        movable=movable_kinds(options),
        announce=None if quiet else _announce_both,
    )


def _announce_both(node: "CombinedNode") -> None:
    matcher = node.matcher
    assert matcher is not None, "it has just been started"
    (links,) = [address for kind, address in matcher.addresses if kind == "links"]
    _announce_one(node.broker, f"  {'matcher':10} {matcher.name}, links {links}")


def _run_matcher(options: Options, settings: Settings, *, quiet: bool) -> None:
    with garbage.paused():
        from dovetail.node.matcher import run_matcher

    run_matcher(
        _with_secret(options, settings),
        load=lambda: settings_of(options),
        announce=None if quiet else _announce_matcher,
    )


def _announce_matcher(node: "MatcherNode") -> None:
    lines = [f"Dovetail {__version__} is up, as matcher {node.name}."]
    for kind, address in node.addresses:
        more = " (/metrics, /healthz)" if kind == "HTTP" else ""
        lines.append(f"  {kind:10} {address}{more}")
    settings = node.settings
    brokers = [] if node.agent is None else sorted(node.agent.brokers())
    known = f"with {', '.join(brokers)}" if brokers else "no broker is known yet"
    lines.append(f"  {'cluster':10} {settings.cluster.name}: {known}")
    lines.append(f"  {'spaces':10} {', '.join(settings.spaces)}")
    lines.append("Ctrl-C stops it, once others have what it answers for.")
    say(*lines)


def _announce_one(node: "BrokerNode", *more_lines: str) -> None:
    lines = [f"Dovetail {__version__} is up, as node {node.name}."]
    why_moved = {one.address: one.moved_because for one in node.listeners}
    for kind, address in node.addresses:
        why = why_moved.get(address)
        more = f"  ({why})" if why else " (/metrics, /healthz)" if kind == "HTTP" else ""
        lines.append(f"  {kind:10} {address}{more}")
    lines += more_lines
    settings = node.settings
    lines.append(_data_line(settings))
    if node.agent is not None:
        others = sorted(node.agent.mesh.names())
        known = f"with {', '.join(others)}" if others else "nobody else is known yet"
        lines.append(f"  {'cluster':10} {settings.cluster.name}: {known}")
        secret_file = secret_file_of(settings)
        lines.append(_join_line(str(node.agent.transport.address), secret_file))
    plain = next((one for one in node.listeners if one.listener.kind == "tcp"), None)
    if plain is not None:
        lines.append(_try_line((plain.host, plain.port), (plain.host, plain.port)))
    lines.append("Ctrl-C stops it.")
    say(*lines)


# Several ------------------------------------------------------------------------------------------


def _run_fleet(fleet: Fleet, *, quiet: bool) -> None:
    set_up_logging(fleet.settings.log.level)
    raise_descriptor_limit()
    matchers = fleet.settings.matchers
    stream = _stream(fleet) if fleet.members[0].options.pipeline else None
    after = []
    if stream is not None:
        after = [ProcessSpec(stream.name, STREAM_MODULE, msgspec.json.encode(stream))]
        members = tuple(replace(member, stream_key=stream.key) for member in fleet.members)
        fleet = replace(fleet, members=members)

    def announce(reports: dict[str, Any]) -> None:
        if not quiet:
            say(*_fleet_lines(fleet, reports, stream))

    with fleet.held:
        if matchers.is_elastic:
            pool = MatcherPool(
                _specs(fleet.matchers), matchers.count_min, Autoscaler(matchers).decide
            )
            supervise(_specs(fleet.brokers), announce, pool, after)
        else:
            supervise(_specs(fleet.members), announce, after=after)


def _specs(members: Iterable[Member]) -> list[ProcessSpec]:
    return [
        ProcessSpec(member.name, "dovetail.fleet.member_process", msgspec.json.encode(member))
        for member in members
    ]


def _stream(fleet: Fleet) -> StreamMember:
    """Configure the stream process that reads from these brokers."""
    settings = fleet.settings
    if not settings.http.enabled:
        raise ConfigError(
            "a stream reads what brokers archive over HTTP, and it is switched off.",
            hint="Leave `enabled` in the table [http] as it is, which is on.",
        )
    user = next(iter(settings.access.administrators), None)
    if user is not None and PASSWORD_VARIABLE not in os.environ:
        raise ConfigError(
            f"the stream logs in as {user}, the first of access.administrators, and has no "
            "password.",
            hint=f"Set the variable {PASSWORD_VARIABLE} to it.",
        )
    folder = Path(settings.data).absolute() / "pipeline"
    host = "127.0.0.1" if is_unspecified(settings.http.host) else settings.http.host
    return StreamMember(
        name="stream",
        urls=tuple(http_url((host, member.http_port)) for member in fleet.brokers),
        out=str(folder / "matched"),
        checkpoint=str(folder / "checkpoint"),
        is_serving=any(space.engine == "spark" for space in settings.spaces.values()),
        user=user,
        key="" if user is not None else secrets.token_hex(32),
        log_level=settings.log.level,
    )


def _fleet_lines(
    fleet: Fleet, reports: dict[str, list[list[str]]], stream: StreamMember | None
) -> list[str]:
    is_one = fleet.members[0].shares_ports
    brokers, matchers = len(fleet.brokers), fleet.settings.matchers
    kinds = f"{brokers} workers behind one port" if is_one else _counted(brokers, "broker")
    if matchers.is_elastic:
        kinds += f" and {matchers.count_min} to {matchers.count_most} matchers"
    elif matchers.count_most:
        kinds += f" and {_counted(matchers.count_most, 'matcher')}"
    lines = [f"Dovetail {__version__} is up: {kinds}, one cluster."]
    first = reports[fleet.members[0].name]
    shared = [place for place in first if is_one and place[0] not in ("HTTP", "links")]
    lines += [f"  {kind:10} {address}" for kind, address in shared]
    width = max(10, *map(len, reports))
    for name, places in reports.items():
        own = ", ".join(f"{kind} {at}" for kind, at in places if [kind, at] not in shared)
        lines.append(f"  {name:{width}} {own}")
    if brokers == 1 and matchers.count_most:
        lines.append("  One broker alone asks no matchers; they have work from the second on.")
    lines.append(_data_line(fleet.settings))
    if stream is not None:
        lines += _pipeline_lines(fleet.settings, stream)
    links = next(address for kind, address in first if kind == "links")
    secret_file = fleet.members[0].secret_file
    lines.append(_join_line(links, secret_file))
    config = fleet.members[0].options.config
    if matchers.count_most and config is not None:
        lines.append(_join_line(links, secret_file, config))
    doors = [
        (listener.host, member.listener_ports[number])
        for member in fleet.brokers
        for number, listener in enumerate(fleet.settings.listeners)
        if listener.kind == "tcp"
    ]
    if doors:
        lines.append(_try_line(doors[0], doors[-1]))
    lines.append("Ctrl-C stops them.")
    return lines


# Words --------------------------------------------------------------------------------------------


def _data_line(settings: Settings) -> str:
    return f"  {'data':10} {Path(settings.data).absolute()} ({_DURABILITY[settings.durability]})"


def _pipeline_lines(settings: Settings, stream: StreamMember) -> list[str]:
    archive = settings.archive
    topics = ", ".join(archive.topics)
    lines = [
        f"  {'archive':10} {Path(archive.folder).absolute()}, of {topics}",
        f"  {'stream':10} starts Spark now; who matched what goes to {stream.out}",
    ]
    served = [name for name, space in settings.spaces.items() if space.engine == "spark"]
    if served:
        lines.append(f"  {'':10} and clauses are looked at there of {', '.join(served)}")
    return lines


def _program() -> str:
    # The launcher of a checkout sets the name that it was called by.
    return shlex.quote(os.environ.get("DOVETAIL_COMMAND", "dovetail"))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _join_line(address: str, secret_file: str, config: str | None = None) -> str:
    """Return the command that adds a broker or, with the file that has spaces, a matcher."""
    secret = shlex.quote(str(Path(secret_file).absolute()))
    command = f"{_program()} node --join {address} --secret-file {secret}"
    if config is None:
        return f"Add a broker:  {command}"
    file = shlex.quote(str(Path(config).absolute()))
    return f"Add a matcher:  {command} --role matcher --name NAME --config {file}"


def _try_line(subscriber: tuple[str, int], publisher: tuple[str, int]) -> str:
    """Return a `sub` and a `pub` command that work on this machine."""

    def options(host: str, port: int) -> str:
        if is_unspecified(host):
            host = "::1" if ":" in host else "localhost"
        is_default = host in {"localhost", "127.0.0.1"}
        words = "" if is_default else f" --host {shlex.quote(host)}"
        return words if port == 1883 else f"{words} --port {port}"

    return (
        f"Try:  {_program()} sub{options(*subscriber)} 'hello/#'   and, in another terminal:   "
        f"{_program()} pub{options(*publisher)} hello/world 'Hi there'"
    )
