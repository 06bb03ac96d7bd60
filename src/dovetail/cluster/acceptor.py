"""Accepts connections of other nodes, from TCP through TLS to a proof.

Everything that a stranger can use here is bounded: the number of connections
(process/connection_slots.py says which one gives way to a newcomer), their time
(`handshake_seconds_max`) and the size of a frame (`HANDSHAKE_BYTES_MAX`). Addresses of members have
their own slots, which strangers cannot take. asyncio's server would do TLS with any number of
strangers before we hear of one, so this module accepts connections itself.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from dovetail.cluster.addresses import Address, network_of
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.peer_link import PeerLink, explain
from dovetail.errors import ConfigError
from dovetail.limits import PORTS_TRIED_MAX
from dovetail.process.connection_slots import ConnectionSlots
from dovetail.process.descriptors import descriptor_limit, shares_of
from dovetail.process.ports import advice

_BACKLOG = 128
_PAUSE_SECONDS = 1.0
"""After the machine had no room for another connection."""
_EVICTED = "newer connections needed its slot"


class Acceptor:
    """One listening socket, and the handshakes of its connections."""

    def __init__(
        self,
        links: LinkSettings,
        context: ssl.SSLContext | None,
        make_link: Callable[[], PeerLink],
        is_member: Callable[[str], bool],
        report_rejection: Callable[[str, PeerLink | None, str], None],
    ) -> None:
        """`report_rejection` gets the host, the link if there is one, and the reason.

        `is_member` tells whether a node of the cluster is at this address (IPv6: this /64 prefix).
        """
        self._links = links
        self._context = context
        self._make_link = make_link
        self._is_member = is_member
        self._report_rejection = report_rejection
        self._loop = asyncio.get_running_loop()
        self._socket = _listen(links)
        members_max, strangers_max = links.member_handshakes_max, links.stranger_handshakes_max
        # Members may share one address, and so do those who flood it on one machine.
        self._members: ConnectionSlots[PeerLink] = ConnectionSlots(members_max, members_max)
        self._strangers: ConnectionSlots[PeerLink] = ConnectionSlots(
            strangers_max, links.stranger_handshakes_per_address_max
        )
        self._handshakes: dict[PeerLink, asyncio.Task[None]] = {}
        self._task = self._loop.create_task(self._accept())

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return Address(self._links.host or host, port)

    def renew(self, context: ssl.SSLContext) -> None:
        """Use this certificate for connections from now on."""
        self._context = context

    async def close(self) -> None:
        """Stop listening, and close all connections that are not authenticated yet."""
        tasks = [self._task, *self._handshakes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._socket)
            except OSError as error:  # too many files, mostly
                self._report_rejection(
                    "anybody", None, f"no connection can be taken: {explain(error)}"
                )
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            host = str(address[0])
            if connection.fileno() >= shares_of(descriptor_limit()).links:
                connection.close()
                self._report_rejection(host, None, "too many file descriptors are in use")
                continue
            self._take(connection, host)
            # More connections may wait already: let accepted ones continue their handshakes.
            await asyncio.sleep(0)

    def _take(self, connection: socket.socket, host: str) -> None:
        network = network_of(host)
        slots = self._members if self._is_member(network) else self._strangers
        for other in self._handshakes:
            if other.has_spoken:
                slots.speak(other)
        link = self._make_link()
        evicted = slots.enter(link, network)
        assert evicted is not link, "nobody is held here, so somebody always gives way"
        # One that has proven itself just now leaves its slot by itself.
        if evicted is not None and not evicted.is_ready:
            evicted.abort(_EVICTED)
            self._handshakes[evicted].cancel()
        task = self._loop.create_task(self._admit(link, connection, host))
        self._handshakes[link] = task

        def on_end(done: asyncio.Task[None]) -> None:
            del self._handshakes[link]
            slots.leave(link)
            if done.cancelled():
                connection.close()  # it may not even have begun
            if link.why_gone == _EVICTED:
                self._report_rejection(host, link, _EVICTED)

        task.add_done_callback(on_end)

    async def _admit(self, link: PeerLink, connection: socket.socket, host: str) -> None:
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
            self._report_rejection(host, link, link.why_gone)


def _listen(links: LinkSettings) -> socket.socket:
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
