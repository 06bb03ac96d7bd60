"""The HTTP server of a node, in the node's own event loop.

The sockets are bound here and not by uvicorn, which ends the process when it cannot.
"""

import asyncio
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.process import ports
from dovetail.web.views import MatcherViews, Views

if TYPE_CHECKING:
    from dovetail.web.uvicorn_server import Server


class HttpServer:
    """Serves the pages of pages.py, or of a matcher. Port 0 takes a free one."""

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
        """One that `may_move` takes a port behind its own if that one is taken.

        `shares_port`: with who started us, and holds it.
        """
        self.moved_because: str | None = None
        self._may_move = may_move
        self._shares_port = shares_port
        self._polls_max = polls_max
        self._host = host
        self._port = port
        self._views = views
        self._sockets: ports.Sockets = []
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def bind(self) -> None:
        """Take the port. Nobody can connect yet."""
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
        """Open and import all that it needs. From here on only connections take descriptors."""
        if self._server is None:
            # In a thread: other nodes shall not wait for the imports.
            self._server = await asyncio.to_thread(self._make_server)

    async def start(self) -> tuple[str, int]:
        """Listen, and say where. Whoever connects from here on is answered."""
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
        """Take no more requests, finish those under way, and end. Again: nothing happens."""
        ports.close(self._sockets)
        self._sockets = []
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        await serving

    def _make_server(self) -> "Server":
        # Late, for commands that serve nothing.
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
