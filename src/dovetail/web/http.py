"""The HTTP server of a node, in the node's own event loop.

The sockets are bound here and not by uvicorn, which ends the process when it cannot.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from dovetail.config import PORTS_TRIED_MAX
from dovetail.errors import DovetailError
from dovetail.web.views import MatcherViews, Views

if TYPE_CHECKING:
    from dovetail.web.serving import Server

# An address that a name stands for and that this machine has not: localhost as ::1 without IPv6.
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class HttpServer:
    """Serves the pages of pages.py, or of a matcher. Port 0 takes a free one."""

    def __init__(
        self, host: str, port: int, views: Views | MatcherViews, polls_max: int = 0
    ) -> None:
        self._polls_max = polls_max
        self._host = host
        self._port = port
        self._views = views
        self._sockets: list[socket.socket] = []
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def bind(self) -> None:
        """Take the port. Nobody can connect yet."""
        self._sockets = await asyncio.to_thread(_bind, self._host, self._port)

    async def start(self) -> tuple[str, int]:
        """Listen, and say where. Whoever connects from here on is answered."""
        if not self._sockets:
            await self.bind()
        try:
            for bound in self._sockets:
                bound.listen()
        except OSError as error:
            raise _refused(self._host, self._port, error) from None
        # In a thread: the imports take a third of a second, and MQTT clients shall not wait.
        self._server = await asyncio.to_thread(self._make_server)
        sockets, self._sockets = self._sockets, []
        self._serving = asyncio.create_task(self._server.serve(sockets), name="http")
        host, port = sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Take no more requests, finish those under way, and end. Again: nothing happens."""
        _close(self._sockets)
        self._sockets = []
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        await serving

    def _make_server(self) -> "Server":
        from dovetail.web.matcher_pages import make_matcher_application
        from dovetail.web.pages import make_application
        from dovetail.web.serving import make_server

        views = self._views
        application = (
            make_matcher_application(views)
            if isinstance(views, MatcherViews)
            else make_application(views)
        )
        return make_server(application, self._polls_max)


async def bound_server(
    make: Callable[[int], HttpServer],
    port: int,
    *,
    may_move: bool,
    own: Collection[int] = (),
) -> tuple[HttpServer, str | None]:
    """At its port or, if it may move, at the next that is free; and why it has moved.

    `own`: ports of ours where nobody listens yet, so that the system would let us have them too.
    """
    http = make(port)
    try:
        await http.bind()
    except DovetailError as error:
        if not may_move:
            raise
        why = error.message
    else:
        return http, None
    for candidate in range(port + 1, port + PORTS_TRIED_MAX):
        if candidate in own:
            continue
        http = make(candidate)
        with suppress(DovetailError):
            await http.bind()
            return http, why
    http = make(0)
    await http.bind()
    return http, why


def _bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address that the host's name stands for, all at one port."""
    bound: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, "no such address here")
    try:
        for family, address in _addresses(host, port):
            chosen = bound[0].getsockname()[1] if bound else port
            try:
                bound.append(_bound(family, address, chosen))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if not bound:
            raise missing
    except OSError as error:
        _close(bound)
        raise _refused(host, port, error) from None
    return bound


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address, port))
    except BaseException:
        bound.close()
        raise
    return bound


def _refused(host: str, port: int, error: OSError) -> DovetailError:
    return DovetailError(
        f"cannot serve HTTP on {host or '*'}:{port}: {_reason(error)}.",
        hint="The settings host and port under [http] say where; "
        "enabled = false there does without.",
    )


def _reason(error: OSError) -> str:
    """Python adds the address to the message of a failed bind; we have named it already."""
    if error.errno == errno.EADDRINUSE:
        return "another program has this port"
    return (error.strerror or str(error)).partition(" (while ")[0]


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Each once, in the resolver's order. An empty host is every address of this machine."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _close(sockets: list[socket.socket]) -> None:
    for opened in sockets:
        opened.close()
