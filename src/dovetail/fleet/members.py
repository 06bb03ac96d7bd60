"""Plans several nodes of one cluster on this machine: their names, folders and ports.

Either each broker has its own ports, one after the other (`--brokers`), or all of them share the
listeners' ports (`--workers`), and the system spreads clients over them. Matchers (`--matchers`)
come after the brokers. They have no folders and no listeners. The largest number of matchers is
planned from the start.

Rules:

- Ports are taken once, before the first node starts, and held until the last has ended
  (process/ports.py). So a node that restarts has the same ports, and no other program can take them
  in between.
- Ports that nobody chose are the next free ones.
- A broker's folder is within the data folder, named by the broker's number. Sessions are stored in
  these folders, so a start that would leave one of them out is refused: its clients would lose
  their sessions. Folders where nothing was ever stored do not count.
"""

import errno
import re
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dovetail.api.reports import NodeRole
from dovetail.broker.store.database import DATABASE_FILE
from dovetail.broker.store.sqlite import has_promises
from dovetail.cluster.addresses import Address, is_unspecified, parse_address
from dovetail.cluster.node_settings import secret_file_of
from dovetail.errors import ConfigError, explain_file_errors
from dovetail.limits import WORKERS_MAX
from dovetail.process import ports
from dovetail.settings import Options, Settings, as_matcher, movable_kinds, settings_of

_FOLDER = "broker-{}"


class Member(Struct, frozen=True, kw_only=True):
    """The configuration of one node, as its process gets it."""

    options: Options
    name: str
    data: str
    listener_ports: tuple[int, ...]
    http_port: int
    cluster_port: int
    join: tuple[str, ...]
    secret_file: str
    number: int
    """From 0 on."""
    shares_ports: bool
    role: NodeRole = "broker"
    tells_load: bool = False
    """The matcher reports its load to the supervisor."""
    stream_key: str = ""
    """The key of the stream process at the broker. Empty: no stream, or it logs in."""


class Fleet(Struct, frozen=True):
    members: tuple[Member, ...]
    settings: Settings
    """The common settings."""
    held: ExitStack
    """Sockets that hold all ports while nodes restart."""

    @property
    def brokers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role == "broker")

    @property
    def matchers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role == "matcher")


def settings_of_member(member: Member) -> Settings:
    settings = settings_of(member.options)
    if member.role == "matcher":
        settings = as_matcher(settings)
    cluster = settings.cluster
    advertise = cluster.advertise
    if advertise:
        host, port = parse_address(advertise)
        advertise = str(Address(host, port + member.number))
    return replace(
        settings,
        name=member.name,
        data=member.data,
        workers=1,
        listeners=tuple(
            replace(one, port=port)
            for one, port in zip(settings.listeners, member.listener_ports, strict=True)
        ),
        http=replace(settings.http, port=member.http_port),
        cluster=replace(
            cluster,
            enabled=True,
            port=member.cluster_port,
            advertise=advertise,
            join=member.join,
            secret_file=member.secret_file,
        ),
    )


def plan(options: Options, settings: Settings, count: int, *, shares_ports: bool) -> Fleet:
    """Plan `count` brokers and all matchers: hold ports, check folders, make a secret."""
    if not 1 <= count <= WORKERS_MAX:
        raise ConfigError(f"it takes 1 to {WORKERS_MAX} brokers.")
    data = Path(settings.data)
    check_folders(data, count)
    secret_file = secret_file_of(settings, options.secret_folder)
    movable = movable_kinds(options)
    chosen = _Ports()
    shared = count if shares_ports else 1
    listener_ports = [
        shared
        * chosen.several(
            one.host, one.port, count // shared, one.kind, may_move=one.kind in movable
        )
        for one in settings.listeners
    ]
    http, cluster = settings.http, settings.cluster
    nodes = count + settings.matchers.count_most
    http_ports = [0] * nodes
    if http.enabled:
        may_move = "http" in movable
        http_ports = chosen.several(
            http.host, http.port, nodes, "http", may_move=may_move, may_skip=True
        )
    # Links that only these brokers have may be anywhere.
    may_move = "cluster" in movable or not cluster.enabled
    cluster_ports = chosen.several(cluster.host, cluster.port, nodes, "cluster", may_move=may_move)
    host = "127.0.0.1" if is_unspecified(cluster.host) else cluster.host
    beside = tuple(str(Address(host, port)) for port in cluster_ports)
    name = settings.name or socket.gethostname()
    members = tuple(
        Member(
            options=options,
            name=f"{name}-{number + 1}",
            data=str(data / _FOLDER.format(number + 1)),
            listener_ports=tuple(own[number] for own in listener_ports),
            http_port=http_ports[number],
            cluster_port=cluster_ports[number],
            join=(*beside[:count], *cluster.join),
            secret_file=secret_file,
            number=number,
            shares_ports=shares_ports,
        )
        for number in range(count)
    )
    members += tuple(
        Member(
            options=options,
            name=f"{name}-matcher-{number - count + 1}",
            data=settings.data,
            listener_ports=(),
            http_port=http_ports[number],
            cluster_port=cluster_ports[number],
            join=(*beside[:count], *cluster.join),
            secret_file=secret_file,
            number=number,
            shares_ports=False,
            role="matcher",
            tells_load=settings.matchers.is_elastic,
        )
        for number in range(count, nodes)
    )
    return Fleet(members, settings, chosen.held)


# Folders ------------------------------------------------------------------------------------------


def check_folders(data: Path, count: int | None) -> None:
    """Raise a ConfigError if a start would leave data out. None: one broker in `data` itself."""
    with explain_file_errors(data):
        left_out = [number for number in sorted(_numbers(data)) if number > (count or 0)]
    left_out = [number for number in left_out if has_promises(data / _FOLDER.format(number))]
    most = max(left_out, default=0)
    if count is None:
        if left_out:
            raise ConfigError(
                f"{data} has the data of {most} brokers, and one alone would leave out sessions or "
                "retained messages that are in them.",
                hint=f"Start as many (--brokers {most}, or --workers {most}), or give --data "
                "another folder.",
            )
        return
    if has_promises(data):
        first, files = data / _FOLDER.format(1), f"{shlex.quote(str(data))}/dovetail.*"
        raise ConfigError(
            f"{data} has the data of a single broker, and sessions or retained messages in it "
            "would be left out.",
            hint=f"To go on with them, stop that broker and make them the first one's: "
            f"mkdir -p {shlex.quote(str(first))} && mv {files} {shlex.quote(str(first))}/",
        )
    if left_out:
        folders = ", ".join(str(data / _FOLDER.format(number)) for number in left_out)
        raise ConfigError(
            f"{data} has the data of {most} brokers, and {count} would leave out sessions or "
            f"retained messages that are in {folders}.",
            hint=f"Start {most}, or remove what is left out if nobody needs it any more.",
        )


def _numbers(data: Path) -> Iterator[int]:
    for file in data.glob(f"{_FOLDER.format('*')}/{DATABASE_FILE}"):
        found = re.fullmatch(_FOLDER.format(r"([1-9][0-9]{0,8})"), file.parent.name)
        if found is not None:
            yield int(found[1])


# Ports --------------------------------------------------------------------------------------------


class _Ports:
    """Holds ports for nodes, none of them twice."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[str, str]] = {}  # by port: where, and what for
        self.held = ExitStack()

    def several(
        self, host: str, port: int, count: int, what: str, *, may_move: bool, may_skip: bool = False
    ) -> list[int]:
        """Hold `count` ports in a row. With `may_skip`, ports after the first may have gaps."""
        chosen: list[int] = []
        candidates = ports.candidates(port, count, may_move=may_move)
        while len(chosen) < count:
            candidate = next(candidates)
            try:
                held = ports.hold(host, candidate)
            except OSError as error:
                is_bound_to_it = not may_move and (not chosen or not may_skip)
                if error.errno != errno.EADDRINUSE or is_bound_to_it or not candidate:
                    raise self._refused(host, port, count, what, candidate, error) from None
                continue
            self.held.callback(ports.close, held)
            taken = ports.port_of(held)
            chosen.append(taken)
            self._given[taken] = (host, what)
        return chosen

    def _refused(
        self, host: str, first: int, count: int, what: str, port: int, error: OSError
    ) -> ConfigError:
        given, ours = self._given.get(port, ("", None))
        if ours is not None and (given == host or is_unspecified(given) or is_unspecified(host)):
            return ConfigError(
                f"the ports of these brokers overlap: {count} of them need ports {first} to "
                f"{first + count - 1} for {what}, and {port} is one for {ours}.",
                hint=f"Leave {count} ports for each `port` in the configuration.",
            )
        return ConfigError(
            f"cannot listen on {host or 'any address'}, port {port} ({what}): "
            f"{ports.explain(error)}",
            hint=ports.advice(what) if ports.is_about_port(error) else None,
        )
