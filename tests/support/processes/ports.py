"""Reserves TCP ports for a test, even while nobody listens there.

A reservation is a socket that is bound and does not listen. On Linux:

- The system chooses the port, so two reservations never collide, even in different processes.
- The system gives a bound port neither to a client as its own, nor to a server that asks for any
  free port.
- It holds for every address of this machine, of IPv4 and of IPv6.
- A server that sets SO_REUSEADDR or SO_REUSEPORT, as servers do, may bind and listen there, as
  often as it starts. A connection is refused while no server listens.

A reservation ends with `close`, or when no reference to it is left.
"""

import errno
import socket
import weakref

from support.clusters.closing_context import ClosingContext

_BLOCKS_TRIED_MAX = 100


class ReservedPort(ClosingContext):
    """Any free port, or `port`; an OSError means that another program has it."""

    def __init__(self, port: int = 0) -> None:
        bound = _bound(port)
        self.port = int(bound.getsockname()[1])
        self._end = weakref.finalize(self, bound.close)

    def close(self) -> None:
        self._end()


class ReservedPorts(ClosingContext):
    """`count` consecutive ports, from `first` on."""

    def __init__(self, count: int) -> None:
        for _ in range(_BLOCKS_TRIED_MAX):
            self._reserved = [ReservedPort()]
            self.first = self._reserved[0].port
            try:
                for port in range(self.first + 1, self.first + count):
                    self._reserved.append(ReservedPort(port))
            except (OSError, OverflowError):  # taken, or beyond the last
                self.close()
            else:
                return
        raise OSError(errno.EADDRINUSE, f"no {count} consecutive free ports")

    def close(self) -> None:
        for one in self._reserved:
            one.close()


def _bound(port: int) -> socket.socket:
    is_dual = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET)
    try:
        if is_dual:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("", port))
        # Not before: a port that another one has reserved has to be refused.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        bound.close()
        raise
    return bound
