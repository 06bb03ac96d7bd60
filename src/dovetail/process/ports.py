"""Ports: taken by binding them, and ours from then on, though nobody listens there yet.

Rules:

- Nobody looks whether a port is free. It is bound, and if that fails the next one is.
- A host name may stand for several addresses (localhost: 127.0.0.1 and ::1). All are bound, at one
  port, or none.
- A port that is bound is given to nobody else, so two parts of one process, and two processes that
  start at the same time, do not meet.
- Whoever starts nodes holds their ports (`hold`) from before the first start to the end of the last
  one, and nodes bind the same ports beside it (`is_shared`). Nobody else can, in between.
"""

import errno
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dovetail.limits import PORTS_TRIED_MAX

Sockets = list[socket.socket]
"""One for each address, all at one port."""

PORT_MAX = 65_535

# An address that a name stands for and that this machine has not: localhost as ::1 without IPv6.
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def bind(host: str, port: int, *, is_shared: bool = False) -> Sockets:
    """Take a port, 0 for any that is free. An empty host is every address of this machine.

    `is_shared`: it is held for us, or others listen there besides.
    """
    if port:
        return _bind_all(host, port, is_shared=is_shared)
    # One that is free at the first address may be taken at the next.
    for _ in range(PORTS_TRIED_MAX):
        try:
            return _bind_all(host, 0, is_shared=is_shared)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _bind_all(host, 0, is_shared=is_shared)


def take(
    host: str, port: int, *, may_move: bool, is_shared: bool = False
) -> tuple[Sockets, OSError | None]:
    """Take a port or, if it is taken and `may_move`, the next; and why it was not the first."""
    reason = None
    for candidate in candidates(port) if may_move else [port]:
        try:
            return bind(host, candidate, is_shared=is_shared), reason
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not may_move or not candidate:
                raise
            reason = reason or error
    raise AssertionError("the last candidate is any free port")


def candidates(port: int, count: int = 1, *, may_move: bool = True) -> Iterator[int]:
    """Return the ports to try where `count` are needed: from `port` on, and then any."""
    last = port + count + PORTS_TRIED_MAX
    if port:
        yield from range(port, min(last, PORT_MAX + 1) if may_move else last)
    yield from [0] * count


def hold(host: str, port: int) -> Sockets:
    """Take a port for processes that we start, which bind it with `is_shared`."""
    held = bind(host, port)
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return held


def prepare(sockets: Iterable[socket.socket]) -> None:
    """Called right before somebody listens there."""
    for bound in sockets:
        # Connections inherit it. Those that fade away are then no obstacle to the next start.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def close(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.close()


def port_of(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


def explain(error: OSError) -> str:
    """Say why a port could not be had."""
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another program"
    if error.errno == errno.EACCES:
        return "ports below 1024 need a privileged user"
    # Python adds the address to the message of a failed bind; our sentences name it already.
    return (error.strerror or str(error)).partition(" (while ")[0].lower()


def is_about_port(error: OSError) -> bool:
    """Could another port be had?"""
    return error.errno in (errno.EADDRINUSE, errno.EACCES)


def advice(kind: str) -> str:
    """Say which setting is that of the port of a listener of this kind, of "http" or "cluster"."""
    others = f'`port` of the listener with kind = "{kind}" in the configuration.'
    setting = {
        "tcp": "--port, or `port` in the configuration.",
        "http": "`port` in the table [http] of the configuration; `enabled = false` does without.",
        "cluster": "--listen of `dovetail node`, or `port` in the table [cluster].",
    }.get(kind, others)
    return f"Choose another with {setting}"


def _bind_all(host: str, port: int, *, is_shared: bool) -> Sockets:
    if port > PORT_MAX:
        raise OSError(errno.EADDRNOTAVAIL, f"there is no port {port}")
    bound: Sockets = []
    missing = OSError(errno.EADDRNOTAVAIL, "no such address here")
    try:
        for family, (name, _, *more) in _addresses(host, port):
            try:
                address = (name, port_of(bound) if bound else port, *more)
                bound.append(_bound(family, address, is_shared=is_shared))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if not bound:
            raise missing
    except BaseException:
        close(bound)
        raise
    return bound


def _bound(
    family: socket.AddressFamily, address: tuple[Any, ...], *, is_shared: bool
) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier process that fade away are no obstacle. But a free port has to
        # be one that nobody has.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(bool(address[1])))
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        # Or who sets it as well could have the port too, until somebody listens.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        bound.close()
        raise
    return bound


def _addresses(host: str, port: int) -> Iterable[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Each once, in the resolver's order."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return dict.fromkeys((family, tuple(address)) for family, _, _, _, address in found)
