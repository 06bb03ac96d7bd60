"""Connects a broker's mesh with the live cluster: gossip and links of `cluster/agent.py`.

    transport, gossip (cluster/)               mesh (here)
      connections                        ->      which peers can get frames
      frames                             ->      all but gossip and queries
      liveness                           ->      which peers a SUBACK waits for

A broker remembers the addresses of its last life. It lets clients in when it knows the
subscriptions and retained messages of the brokers that are there.

The mesh has brokers only. The matcher client (`mesh.matcher_client`) hears of matchers: they send
no sketch, nothing is spooled for them, and no subscription waits for them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Protocol

from dovetail.api.reports import NodeRole
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.peering.admin_queries import AdminQueries
from dovetail.broker.peering.limits import PEER_FRAME_EXTRA_BYTES
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.peer_messages import CopiedFolderError, join_runs
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.reporter import Reporter
from dovetail.broker.store.journal import LeaveState
from dovetail.cluster.addresses import Address
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.frames import Frame
from dovetail.cluster.handshake import Hello
from dovetail.cluster.node_settings import NodeSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.errors import PeerError
from dovetail.matcher.segment_tables import MATCHER
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")


class MatcherObserver(Protocol):
    """Hears of matchers: the mesh's `matcher_client`, or a test."""

    def matcher_is_up(self, name: str) -> None: ...

    def matcher_is_down(self, name: str) -> None: ...

    def receive_record(self, name: str, record: bytes | None) -> None: ...

    def matcher_answered(self, name: str, kind: int, body: bytes) -> None: ...


class BrokerAgent(NodeAgent):
    """The agent of a broker. It starts before clients connect, and stops before the server."""

    def __init__(
        self,
        settings: NodeSettings,
        packet_bytes_max: int,
        make_server: Callable[[ClusterMembership], BrokerServer],
        *,
        stream: int,
        incarnation: int,
        random: Random,
    ) -> None:
        """Make the transport, and with `make_server` the server that uses it.

        Packets of clients have at most `packet_bytes_max` bytes. `stream` identifies the data
        folder, and `incarnation` this run.
        """
        links = settings.links
        # A frame holds the largest packet of a client, and what goes with it.
        frame_bytes_max = packet_bytes_max + PEER_FRAME_EXTRA_BYTES
        links = replace(
            links,
            frame_bytes_max=max(links.frame_bytes_max, frame_bytes_max),
            backlog_bytes_max=max(links.backlog_bytes_max, 2 * frame_bytes_max),
        )
        super().__init__(settings, links, incarnation=incarnation, random=random)
        membership = ClusterMembership(
            links.name, stream, incarnation, settings.seed, self.transport.send
        )
        self.server = make_server(membership)
        assert self.server.broker.mesh is not None
        self.mesh: Mesh = self.server.broker.mesh
        self.matcher_client: MatcherObserver = self.mesh.matcher_client
        self.reporter = Reporter(self.server.broker, links.name, self.server.clock())
        self.queries = AdminQueries(self.reporter, self.mesh, self)
        self._matchers: dict[str, bytes | None] = {}
        """The records that the matcher client got last, by matcher."""
        self._remembered: frozenset[str] = frozenset()
        """The brokers of our last life."""
        self._has_broker_answer = False
        self._is_synchronous = asyncio.Event()

    # Its life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the other brokers. Return when clients may connect: at once if there are none."""
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
        has_seeds = self._dial_seeds()
        self._turn()
        if (known or has_seeds) and not await self._await_others(self._is_synchronous):
            missing = sorted(set(self.mesh.names()) - self.transport.connected)
            log.warning(
                "started without these brokers after %g s; publications for them are spooled: %s",
                self._settings.join_seconds_max,
                ", ".join(missing) or "none is known",
            )

    async def stop(self) -> None:
        """Leave the cluster. The server stops after us, and its last batch spools what is left."""
        await self._say_goodbye(keeps=self.mesh.leave_state() is not LeaveState.WITH_NOTHING)
        for name in self.mesh.names():
            self.mesh.peer_is_down(name)

    def _turn(self) -> None:
        super()._turn()
        self.server.update_clock()
        late = self.mesh.tick(self.server.shared.now)
        if late:
            log.warning(
                "%d subscriptions were acknowledged before all other brokers knew of them", late
            )
        self.mesh.flush()
        self.server.schedule_commit()

    # Who is there ---------------------------------------------------------------------------------

    def _is_relevant(self, name: str, role: NodeRole) -> bool:
        is_known = name in self.mesh.names()
        if role == "matcher":
            if is_known:
                return False  # its name is a broker's, which may come back
            is_known = name in self._matchers
        # Unknown, it had left before we came, and nobody waits for it.
        return is_known or not self.gossip.keeps_nothing(name)

    def _may_be_forgotten(self) -> Iterable[str]:
        brokers = self.mesh.names()
        left = [name for name in self.mesh.peers.left if self.mesh.needs_nothing(name)]
        return [*left, *(name for name in super()._may_be_forgotten() if name not in brokers)]

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        if role == "matcher":
            self._update_matcher(name, is_alive=is_alive)
            return
        if name in self._matchers:
            self._forget_matcher(name)  # an earlier life of it
        self.mesh.peer_is_live(name, is_alive)

    def _address_known(self, name: str, role: NodeRole, address: Address) -> None:
        if role != "matcher":
            self.mesh.peer_is_at(name, str(address))

    def _has_left(self, name: str, role: NodeRole) -> None:
        if role == "matcher":
            self.matcher_client.matcher_is_down(name)
            return
        self.mesh.peer_is_down(name)
        keeps_nothing = self.gossip.keeps_nothing(name)
        self.mesh.peer_has_left(
            name, LeaveState.WITH_NOTHING if keeps_nothing else LeaveState.WITH_SESSIONS
        )

    def _is_forgotten(self, name: str) -> None:
        if name in self._matchers:
            self._forget_matcher(name)
            log.info("forgot %s, a matcher", name, extra=about(name))
        else:
            lost = self.mesh.forget(name)
            log.warning(
                "forgot %s and dropped %d publications for it", name, lost, extra=about(name)
            )

    def _update_matcher(self, name: str, *, is_alive: bool) -> None:
        state = self.gossip.state(name)
        record = state.value(MATCHER) if is_alive and state is not None else None
        if self._matchers.get(name) != record:
            self.matcher_client.receive_record(name, record)
        self._matchers[name] = record

    def _forget_matcher(self, name: str) -> None:
        self._update_matcher(name, is_alive=False)
        del self._matchers[name]

    # The transport's side -------------------------------------------------------------------------

    def _check(self, hello: Hello) -> str | None:
        if hello.role == "matcher" and hello.name in self.mesh.names():
            return f"{hello.name} is the name of a broker, which may come back"
        return super()._check(hello)

    def _refuse(self, link: PeerLink, why: str) -> None:
        """Refuse a broker whose data folder is a copy of another."""
        name = link.name
        super()._refuse(link, f"{why}; one of them needs an empty folder")
        self.mesh.peer_is_down(name)
        self.mesh.peer_is_live(name, False)
        if name in self._remembered or name in self.mesh.sketch_exchange.bank:
            # Another broker had this name. It may return for what we have spooled.
            self.gossip.remember(name, self._loop.time())
        else:
            self.mesh.forget(name)

    def _connected(self, name: str, hello: Hello) -> None:
        self.server.update_clock()
        super()._connected(name, hello)
        self.server.schedule_commit()

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        if role == "matcher":
            self._update_matcher(name, is_alive=True)
            self.matcher_client.matcher_is_up(name)
            return
        self.mesh.peer_is_at(name, str(address))
        self.mesh.peer_is_up(name)

    def _lost(self, name: str) -> None:
        self.server.update_clock()
        super()._lost(name)
        self.server.schedule_commit()

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        if role == "matcher":
            self.matcher_client.matcher_is_down(name)
            self._update_matcher(name, is_alive=is_alive)
            return
        self.mesh.peer_is_down(name)
        self.mesh.peer_is_live(name, is_alive)

    def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
        if self.queries.takes(link, kind, body):
            return
        self.server.update_clock()
        if link.hello.role == "matcher":
            self._take_from_matcher(link, kind, body)
        elif link.is_dialed:
            self.mesh.answered(link.name, kind, body)
        else:
            try:
                self.mesh.receive(link.name, kind, body, link.answer)
            except CopiedFolderError as error:
                self._refuse(link, error.message)
                raise
        self.server.schedule_commit()
        self._check_synchronous()

    def _join(self, frames: list[Frame]) -> list[Frame]:
        return join_runs(frames)

    def _take_from_matcher(self, link: PeerLink, kind: int, body: bytes) -> None:
        if not link.is_dialed:
            raise PeerError(f"a frame of kind {kind}, for which a matcher has to be asked")
        self.matcher_client.matcher_answered(link.name, kind, body)

    def _gossip_answered(self, role: NodeRole) -> None:
        """Count answers of brokers only: a matcher that has just started may know of no brokers."""
        self._has_broker_answer = self._has_broker_answer or role == "broker"
        self._check_synchronous()

    def _check_synchronous(self) -> None:
        """Let clients in when we know the others' subscriptions and retained messages."""
        if (
            self._has_broker_answer
            and not self._is_synchronous.is_set()
            and self.mesh.is_synchronous
            and self.mesh.is_complete
        ):
            self._is_synchronous.set()
