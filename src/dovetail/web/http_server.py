"""The HTTP server of a node, in the node's own event loop.

This module binds the sockets, because uvicorn ends the process if it cannot.
"""

import asyncio
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.process import ports
from dovetail.web.views import MatcherViews, Views

if TYPE_CHECKING:
    from dovetail.web.uvicorn_server import EmbeddedServer


class HttpServer:
    """Serves the pages of a broker or a matcher. Port 0 takes any free port."""

    def __init__(
        self,
        host: str,
        port: int,
        views: Views | MatcherViews,
        polls_max: int = 0,
        *,
        may_move: bool = False,
        shares_port: bool = False,
    ) -> None:
        """`may_move`: if the port is taken, use a later one.

        `shares_port`: our parent process holds the port.
        """
        self.moved_because: str | None = None
        self._may_move = may_move
        self._shares_port = shares_port
        self._polls_max = polls_max
        self._host = host
        self._port = port
        self._views = views
        self._sockets: ports.Sockets = []
        self._server: EmbeddedServer | None = None
        self._serving: asyncio.Task[None] | None = None

    async def bind(self) -> None:
        """Bind the port. Nobody can connect yet."""
        host, port = self._host, self._port
        try:
            self._sockets, moved = await asyncio.to_thread(
                ports.take, host, port, may_move=self._may_move, is_shared=self._shares_port
            )
        except OSError as error:
            raise _refused(host, port, error) from None
        if moved is not None:
            self.moved_because = _refused(host, port, moved).message

    async def prepare(self) -> None:
        """Import all modules and open all files. From here on only connections take descriptors."""
        if self._server is None:
            # In a thread, so that other nodes do not wait for the imports.
            self._server = await asyncio.to_thread(self._make_server)

    async def start(self) -> tuple[str, int]:
        """Accept connections, and return the host and port."""
        if not self._sockets:
            await self.bind()
        await self.prepare()
        ports.prepare(self._sockets)
        try:
            for bound in self._sockets:
                bound.listen()
        except OSError as error:
            raise _refused(self._host, self._port, error) from None
        assert self._server is not None
        sockets, self._sockets = self._sockets, []
        self._serving = asyncio.create_task(self._server.serve(sockets), name="http")
        host, port = sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Accept no more requests, finish those under way, and end. Safe to call twice."""
        ports.close(self._sockets)
        self._sockets = []
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        await serving

    def _make_server(self) -> "EmbeddedServer":
        # Imported late: commands that serve nothing do not need it.
        from dovetail.web.matcher_pages import make_matcher_application
        from dovetail.web.pages import make_application
        from dovetail.web.uvicorn_server import make_server

        views = self._views
        application = (
            make_matcher_application(views)
            if isinstance(views, MatcherViews)
            else make_application(views)
        )
        return make_server(application, self._polls_max)


def _refused(host: str, port: int, error: OSError) -> DovetailError:
    return DovetailError(
        f"cannot serve HTTP on {host or '*'}:{port}: {ports.explain(error)}.",
        hint=ports.advice("http") if ports.is_about_port(error) else None,
    )
