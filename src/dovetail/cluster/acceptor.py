"""The door of a node: other nodes' connections, from TCP through TLS to a proof.

Everything that a stranger can hold here is bounded: so many connections
(process/connection_slots.py says which one gives way to a newcomer), each for
`handshake_seconds_max`, each with a frame of `HANDSHAKE_BYTES_MAX` at most. Addresses of members
have slots of their own, which strangers cannot take. asyncio's own server would do TLS with any
number of them before we hear of one; so we accept by ourselves.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from dovetail.cluster.addresses import Address, network_of
from dovetail.cluster.link_settings import ClusterLinks
from dovetail.cluster.peer_link import Link, explain
from dovetail.errors import ConfigError
from dovetail.limits import PORTS_TRIED_MAX
from dovetail.process.connection_slots import Slots
from dovetail.process.descriptors import limit_now, shares_of
from dovetail.process.ports import advice

_BACKLOG = 128
_PAUSE_SECONDS = 1.0
"""After the machine had no room for another connection."""
_EVICTED = "newer connections needed its slot"


class Door:
    """One socket that listens."""

    def __init__(
        self,
        links: ClusterLinks,
        context: ssl.SSLContext | None,
        make_link: Callable[[], Link],
        is_member: Callable[[str], bool],
        complain: Callable[[str, Link | None, str], None],
    ) -> None:
        """`complain` is told who has not come in, the link if there is one, and why.

        `is_member`: is a node of the cluster at this address, of IPv6 at this /64 prefix?
        """
        self._links = links
        self._context = context
        self._make_link = make_link
        self._is_member = is_member
        self._complain = complain
        self._loop = asyncio.get_running_loop()
        self._socket = _listen(links)
        members_max, strangers_max = links.member_handshakes_max, links.stranger_handshakes_max
        # Members may share one address, and so do those who flood it on one machine.
        self._members: Slots[Link] = Slots(members_max, members_max)
        self._strangers: Slots[Link] = Slots(
            strangers_max, links.stranger_handshakes_per_address_max
        )
        self._guests: dict[Link, asyncio.Task[None]] = {}
        self._task = self._loop.create_task(self._accept())

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return Address(self._links.host or host, port)

    def renew(self, context: ssl.SSLContext) -> None:
        """Connections from now on get this certificate."""
        self._context = context

    async def close(self) -> None:
        """Who has not proven itself yet is gone when this returns."""
        tasks = [self._task, *self._guests.values()]
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
            host = str(address[0])
            if connection.fileno() >= shares_of(limit_now()).links:
                connection.close()
                self._complain(host, None, "too many file descriptors are in use")
                continue
            self._take(connection, host)
            # More may wait already: those who are in go on with their handshakes meanwhile.
            await asyncio.sleep(0)

    def _take(self, connection: socket.socket, host: str) -> None:
        network = network_of(host)
        slots = self._members if self._is_member(network) else self._strangers
        for known in self._guests:
            if known.has_spoken:
                slots.speak(known)
        link = self._make_link()
        evicted = slots.enter(link, network)
        assert evicted is not link, "nobody is held here, so somebody always gives way"
        # One that has proven itself just now leaves its slot by itself.
        if evicted is not None and not evicted.is_ready:
            evicted.abort(_EVICTED)
            self._guests[evicted].cancel()
        task = self._loop.create_task(self._admit(link, connection, host))
        self._guests[link] = task

        def left(done: asyncio.Task[None]) -> None:
            del self._guests[link]
            slots.leave(link)
            if done.cancelled():
                connection.close()  # it may not even have begun
            if link.why_gone == _EVICTED:
                self._complain(host, link, _EVICTED)

        task.add_done_callback(left)

    async def _admit(self, link: Link, connection: socket.socket, host: str) -> None:
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
            self._complain(host, link, link.why_gone)


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
                (host, candidate),
                family=family,
                backlog=_BACKLOG,
                dualstack_ipv6=is_dual,
                reuse_port=links.shares_port,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE and candidate != ports[-1]:
                continue
            raise ConfigError(
                f"cannot listen for other nodes on {host or 'any address'}, port {candidate}: "
                f"{explain(error)}.",
                hint=advice("cluster"),
            ) from None
        listening.setblocking(False)
        return listening
    raise AssertionError("the last port is any free one")
