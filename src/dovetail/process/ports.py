"""Reserves ports by binding them, before anything listens there.

Rules:

- There is no test whether a port is free. It is bound, and if that fails, the next one.
- A host name may stand for several addresses (localhost: 127.0.0.1 and ::1). All of them are bound
  at one port, or none is.
- The system gives a bound port to nobody else. So two servers of one process, and two processes
  that start at the same time, get different ports.
- A parent process holds the ports of its nodes (`hold`) from before the first start until the last
  node has ended. The nodes bind the same ports beside it (`is_shared`). No other program can take
  them in between.
"""

import errno
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dovetail.limits import PORTS_TRIED_MAX

Sockets = list[socket.socket]
"""One socket for each address, all at one port."""

PORT_MAX = 65_535

# The name stands for an address that this machine lacks: localhost as ::1 without IPv6.
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def bind(host: str, port: int, *, is_shared: bool = False) -> Sockets:
    """Bind a port, 0 for any free one. An empty host means every address of this machine.

    `is_shared`: our parent process holds the port, or other processes listen there too.
    """
    if port:
        return _bind_all(host, port, is_shared=is_shared)
    # A port that is free at the first address may be taken at the next.
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
    """Bind a port or, if it is taken and `may_move`, a later one. Return also why it moved."""
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
    """Yield the ports to try where `count` are needed: from `port` on, then 0 for any."""
    last = port + count + PORTS_TRIED_MAX
    if port:
        yield from range(port, min(last, PORT_MAX + 1) if may_move else last)
    yield from [0] * count


def hold(host: str, port: int) -> Sockets:
    """Bind a port for child processes, which bind it with `is_shared`."""
    held = bind(host, port)
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return held


def prepare(sockets: Iterable[socket.socket]) -> None:
    """Set options of bound sockets. Call it right before they listen."""
    for bound in sockets:
        # Connections inherit it. So the next start can bind while old ones are in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def close(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.close()


def port_of(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


def explain(error: OSError) -> str:
    """Return why a port could not be bound, as words of a sentence."""
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another program"
    if error.errno == errno.EACCES:
        return "ports below 1024 need a privileged user"
    # Python adds the address to the message of a failed bind; our sentences name it already.
    return (error.strerror or str(error)).partition(" (while ")[0].lower()


def is_about_port(error: OSError) -> bool:
    """Return True if another port may work."""
    return error.errno in (errno.EADDRINUSE, errno.EACCES)


def advice(kind: str) -> str:
    """Return a hint with the setting of a port. `kind`: that of a listener, "http" or "cluster"."""
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
        # A chosen port may have connections of an earlier process in TIME_WAIT. A free port must
        # have none.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(bool(address[1])))
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        # Otherwise another program that sets it could bind the port too, until we listen.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        bound.close()
        raise
    return bound


def _addresses(host: str, port: int) -> Iterable[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Return the addresses of a host without duplicates, in the resolver's order."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return dict.fromkeys((family, tuple(address)) for family, _, _, _, address in found)
