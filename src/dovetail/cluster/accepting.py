"""The door of a node: other nodes' connections, from TCP through TLS to a proof.

Everything that a stranger can hold here is bounded: `handshakes_max` connections, each for
`handshake_seconds_max`, each with a frame of `HANDSHAKE_BYTES_MAX` at most. asyncio's own server
would do TLS with any number of them before we hear of one; so we accept by ourselves.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial

from dovetail.cluster.addresses import Address
from dovetail.cluster.link import Link, explain
from dovetail.cluster.links import ClusterLinks
from dovetail.config import PORTS_TRIED_MAX
from dovetail.errors import ConfigError

_BACKLOG = 128
_PAUSE_SECONDS = 1.0
"""After the machine had no room for another connection."""


class Door:
    """One socket that listens."""

    def __init__(
        self,
        links: ClusterLinks,
        context: ssl.SSLContext | None,
        make_link: Callable[[], Link],
        complain: Callable[[str, Link | None, str], None],
    ) -> None:
        """`complain` is told who has not come in, the link if there is one, and why."""
        self._links = links
        self._context = context
        self._make_link = make_link
        self._complain = complain
        self._loop = asyncio.get_running_loop()
        self._socket = _listen(links)
        self._task = self._loop.create_task(self._accept())
        self._guests: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return Address(self._links.host or host, port)

    def renew(self, context: ssl.SSLContext) -> None:
        """Connections from now on get this certificate."""
        self._context = context

    async def close(self) -> None:
        """Who has not proven itself yet is gone when this returns."""
        tasks = [self._task, *self._guests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._socket)
            except OSError as error:  # too many files, mostly
                self._complain("anybody", None, f"no connection can be taken: {explain(error)}")
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            who = str(address[0])
            if len(self._guests) >= self._links.handshakes_max:
                connection.close()
                self._complain(who, None, "too many connections are in their handshake")
                continue
            guest = self._loop.create_task(self._admit(connection, who))
            self._guests.add(guest)
            guest.add_done_callback(partial(self._admitted, connection))

    def _admitted(self, connection: socket.socket, guest: asyncio.Task[None]) -> None:
        self._guests.discard(guest)
        if guest.cancelled():
            connection.close()  # it may not even have begun

    async def _admit(self, connection: socket.socket, who: str) -> None:
        link = self._make_link()
        seconds = self._links.handshake_seconds_max
        try:
            async with asyncio.timeout(seconds):
                await self._loop.connect_accepted_socket(
                    lambda: link, connection, ssl=self._context
                )
                await link.settled.wait()
        except TimeoutError:
            link.abort(f"its handshake took more than {seconds:g} s")
        except OSError as error:
            link.abort(explain(error))
        finally:
            if not link.is_ready:
                link.give_up("we stop")
        if not link.is_ready:
            self._complain(who, link, link.why_gone)


def _listen(links: ClusterLinks) -> socket.socket:
    host, port = links.host, links.port
    is_dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
    ports = [port]
    if links.may_move and port:
        ports += [*range(port + 1, min(port + PORTS_TRIED_MAX, 65_536)), 0]
    for candidate in ports:
        try:
            listening = socket.create_server(
                (host, candidate), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE and candidate != ports[-1]:
                continue
            raise ConfigError(
                f"cannot listen for other nodes on {host or 'any address'}, port {candidate}: "
                f"{explain(error)}.",
                hint="--listen names another, or host and port in the table [cluster].",
            ) from None
        listening.setblocking(False)
        return listening
    raise AssertionError("the last port is any free one")
