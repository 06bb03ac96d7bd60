"""A broker's place in a live cluster: what `cluster/agent.py` finds out, told to the mesh.

    transport, gossip (cluster/)               mesh (here)
      who is connected                   ->      to whom frames can go
      frames                             ->      all but gossip and questions
      who is alive                       ->      for whom who subscribes waits

A broker remembers the addresses of its last life. It lets clients in when it knows what is
subscribed to at the brokers that are there.

The mesh is of brokers. Matchers are told to who asks them (`mesh.narrowing`): no sketch is expected
of them, nobody waits for them, and nothing is owed to them or kept of them.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Protocol

from dovetail.api.reports import NodeRole
from dovetail.broker.net.server import Server
from dovetail.broker.peering.admin_queries import Asking
from dovetail.broker.peering.limits import PEER_FRAME_EXTRA_BYTES
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.peer_messages import CopiedFolderError
from dovetail.broker.reporter import Reporter
from dovetail.broker.store.journal import Left
from dovetail.cluster.addresses import Address
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.handshake import Hello
from dovetail.cluster.node_settings import ClusterPart
from dovetail.cluster.peer_link import Link
from dovetail.errors import PeerError
from dovetail.matcher.segment_tables import MATCHER
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")


class MatcherNews(Protocol):
    """What becomes of matchers, told to who asks them: the mesh's `narrowing`, or a test."""

    def matcher_is_up(self, name: str) -> None: ...

    def matcher_is_down(self, name: str) -> None: ...

    def matcher_tells(self, name: str, record: bytes | None) -> None: ...

    def matcher_answered(self, name: str, kind: int, body: bytes) -> None: ...


class Agent(NodeAgent):
    """Starts before clients are let in, and stops before the server does."""

    def __init__(
        self,
        part: ClusterPart,
        server: Server,
        reporter: Reporter,
        *,
        stream: int,
        incarnation: int,
        random: Random,
    ) -> None:
        links = part.links
        # A frame holds what a client may send, and what goes with it.
        frame_bytes_max = server.shared.limits.packet_bytes_max + PEER_FRAME_EXTRA_BYTES
        links = replace(
            links,
            frame_bytes_max=max(links.frame_bytes_max, frame_bytes_max),
            backlog_bytes_max=max(links.backlog_bytes_max, 2 * frame_bytes_max),
        )
        super().__init__(part, links, incarnation=incarnation, random=random)
        self._server = server
        self.mesh: Mesh = server.broker.join(
            name=links.name,
            stream=stream,
            incarnation=incarnation,
            seed=part.seed,
            send=self.transport.send,
        )
        server.mesh = self.mesh
        self.narrowing: MatcherNews = self.mesh.narrowing
        self.asking = Asking(reporter, self.mesh, self)
        self._matchers: dict[str, bytes | None] = {}
        """Their records, as they were last told to who asks them."""
        self._remembered: frozenset[str] = frozenset()
        """Those of our last life."""
        self._has_heard = False
        self._is_synchronous = asyncio.Event()

    # Its life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the others. Returns when clients may come, which is at once where nobody is."""
        await self._listen()
        addresses = self.mesh.peers.addresses
        found = [(name, self._address(name, text)) for name, text in addresses.items() if text]
        known = [(name, address) for name, address in found if address is not None]
        self._remembered = frozenset(self.mesh.names())
        for name in self._remembered:
            has_left = name in self.mesh.peers.left
            self.gossip.remember(name, self._loop.time(), has_left=has_left)
        self._forget_those_who_left()
        for name, address in known:
            self.transport.connect_to(name, address)
        has_seeds = self._seek()
        self._turn()
        if (known or has_seeds) and not await self._await_others(self._is_synchronous):
            missing = sorted(set(self.mesh.names()) - self.transport.connected)
            log.warning(
                "began without the others after %g s; what is published here for them is kept (%s)",
                self._part.join_seconds_max,
                ", ".join(missing) or "none is known",
            )

    async def stop(self) -> None:
        """What peers are owed goes to disk with the last batch of the server, stopped after us."""
        await self._say_goodbye(keeps=self.mesh.leaves() is not Left.WITH_NOTHING)
        for name in self.mesh.names():
            self.mesh.peer_is_down(name)

    def _turn(self) -> None:
        super()._turn()
        self._server.now()
        late = self.mesh.tick(self._server.shared.now)
        if late:
            log.warning(
                "%d subscriptions were acknowledged before all other brokers knew of them", late
            )
        self.mesh.flush()
        self._server.rows_may_wait()

    # Who is there ---------------------------------------------------------------------------------

    def _heeds(self, name: str, role: NodeRole) -> bool:
        is_known = name in self.mesh.names()
        if role == "matcher":
            if is_known:
                return False  # its name is a broker's, which may come back
            is_known = name in self._matchers
        # Or it had left before we came, and nobody is waiting for it.
        return is_known or not self.gossip.keeps_nothing(name)

    def _may_be_forgotten(self) -> Iterable[str]:
        brokers = self.mesh.names()
        left = [name for name in self.mesh.peers.left if self.mesh.needs_nothing(name)]
        return [*left, *(name for name in super()._may_be_forgotten() if name not in brokers)]

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        if role == "matcher":
            self._tell_of_matcher(name, is_alive=is_alive)
            return
        if name in self._matchers:
            self._forget_matcher(name)  # an earlier life of it
        self.mesh.peer_is_live(name, is_alive)

    def _is_at(self, name: str, role: NodeRole, address: Address) -> None:
        if role != "matcher":
            self.mesh.peer_is_at(name, str(address))

    def _has_left(self, name: str, role: NodeRole) -> None:
        if role == "matcher":
            self.narrowing.matcher_is_down(name)
            return
        self.mesh.peer_is_down(name)
        keeps_nothing = self.gossip.keeps_nothing(name)
        self.mesh.peer_has_left(name, Left.WITH_NOTHING if keeps_nothing else Left.WITH_SESSIONS)

    def _is_forgotten(self, name: str) -> None:
        if name in self._matchers:
            self._forget_matcher(name)
            log.info("forgot %s, a matcher", name, extra=about(name))
        else:
            lost = self.mesh.forget(name)
            log.warning("forgot %s; it was owed %d publications", name, lost, extra=about(name))

    def _tell_of_matcher(self, name: str, *, is_alive: bool) -> None:
        state = self.gossip.state(name)
        record = state.value(MATCHER) if is_alive and state is not None else None
        if self._matchers.get(name) != record:
            self.narrowing.matcher_tells(name, record)
        self._matchers[name] = record

    def _forget_matcher(self, name: str) -> None:
        self._tell_of_matcher(name, is_alive=False)
        del self._matchers[name]

    # The transport's side -------------------------------------------------------------------------

    def _check(self, hello: Hello) -> str | None:
        if hello.role == "matcher" and hello.name in self.mesh.names():
            return f"{hello.name} is the name of a broker, which may come back"
        return super()._check(hello)

    def _refuse(self, link: Link, why: str) -> None:
        """A broker whose data folder is a copy."""
        name = link.name
        super()._refuse(link, f"{why}; one of them needs an empty folder")
        self.mesh.peer_is_down(name)
        self.mesh.peer_is_live(name, False)
        if name in self._remembered or name in self.mesh.exchange.bank:
            # There was another broker of this name, which may come back to what it is owed.
            self.gossip.remember(name, self._loop.time())
        else:
            self.mesh.forget(name)

    def _connected(self, name: str, hello: Hello) -> None:
        self._server.now()
        super()._connected(name, hello)
        self._server.rows_may_wait()

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        if role == "matcher":
            self._tell_of_matcher(name, is_alive=True)
            self.narrowing.matcher_is_up(name)
            return
        self.mesh.peer_is_at(name, str(address))
        self.mesh.peer_is_up(name)

    def _lost(self, name: str) -> None:
        self._server.now()
        super()._lost(name)
        self._server.rows_may_wait()

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        if role == "matcher":
            self.narrowing.matcher_is_down(name)
            self._tell_of_matcher(name, is_alive=is_alive)
            return
        self.mesh.peer_is_down(name)
        self.mesh.peer_is_live(name, is_alive)

    def _take(self, link: Link, kind: int, body: bytes) -> None:
        if self.asking.takes(link, kind, body):
            return
        self._server.now()
        if link.hello.role == "matcher":
            self._take_of_matcher(link, kind, body)
        elif link.is_dialed:
            self.mesh.answered(link.name, kind, body)
        else:
            try:
                self.mesh.receive(link.name, kind, body, link.answer)
            except CopiedFolderError as error:
                self._refuse(link, error.message)
                raise
        self._server.rows_may_wait()
        self._look()

    def _take_of_matcher(self, link: Link, kind: int, body: bytes) -> None:
        if not link.is_dialed:
            raise PeerError(f"a frame of kind {kind}, for which a matcher has to be asked")
        self.narrowing.matcher_answered(link.name, kind, body)

    def _has_been_told(self, role: NodeRole) -> None:
        """A matcher that has just begun, too, may not know of other brokers that are there."""
        self._has_heard = self._has_heard or role == "broker"
        self._look()

    def _look(self) -> None:
        """Do we know all that is subscribed to at the brokers that are there, and retained?"""
        if (
            self._has_heard
            and not self._is_synchronous.is_set()
            and self.mesh.is_synchronous
            and self.mesh.is_complete
        ):
            self._is_synchronous.set()
