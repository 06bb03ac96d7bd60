"""A node of any role in a live cluster: drives gossip with real connections.

    transport                  gossip                    the subclass for a role
      connections        ->      introductions     ->      _came_up, _went_down
      frames             ->      GOSSIP            ->      _handle_frame: all other frames
                                 presence          ->      _is_live, _has_left, _is_forgotten

Rules:

- A node starts with some addresses (`join`). It dials them and every node it hears of.
- A node tells its role in the handshake, and gossips it before its address. A node whose role is
  not known yet is ignored.
- A connected node counts as alive, whatever gossip says.
- A node that has left and keeps nothing is forgotten after LEFT_FORGET_SECONDS, so that a node
  that only restarts stays known.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import inf
from random import Random
from typing import get_args

from dovetail.api.reports import NodeRole, NodeStatus
from dovetail.cluster import gossip
from dovetail.cluster.addresses import Address, parse_address
from dovetail.cluster.frames import Frame
from dovetail.cluster.gossip import Gossip, Presence, PresenceEvent
from dovetail.cluster.handshake import Hello
from dovetail.cluster.limits import LEFT_FORGET_SECONDS, PHI_SUSPECT
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.node_settings import NodeSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.transport import Transport
from dovetail.errors import ConfigError
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")

GOSSIP = 48
"""The kind of frames with gossip."""

ROLE = "role"
ADDRESS = "address"
"""Keys of gossip records."""

_ROLES: dict[bytes, NodeRole] = {role.encode(): role for role in get_args(NodeRole)}
_WORDS = {
    Presence.ALIVE: "is alive",
    Presence.DEAD: "is not heard any more",
    Presence.LEFT: "has left",
}
_TURN_SECONDS = 0.05


class NodeAgent(ABC):
    """One life of a node."""

    def __init__(
        self, settings: NodeSettings, links: LinkSettings, *, incarnation: int, random: Random
    ) -> None:
        """`links` are those of the settings, perhaps with larger bounds."""
        self._settings = settings
        self._random = random
        self._loop = asyncio.get_running_loop()
        self.gossip = Gossip(
            links.name,
            incarnation,
            self._loop.time(),
            random,
            forget_seconds=settings.forget_seconds,
        )
        self.transport = Transport(
            links,
            incarnation=incarnation,
            on_frame=self._received,
            on_connected=self._connected,
            on_lost=self._lost,
            on_accepted=self._accepted,
            join=self._join,
            check=self._check,
            random=random,
        )
        self._introduced: dict[str, tuple[int, NodeRole]] = {}
        """By name: the incarnation and role in the last handshake."""
        self._without_role: set[str] = set()
        """Nodes whose role is not known yet."""
        self._refused: dict[str, tuple[bytes, str]] = {}
        """Nodes that are refused: the process's instance, and the reason."""
        self._bad_addresses: dict[str, str] = {}
        """Invalid addresses that were logged, by name."""
        self._left_at: dict[str, float] = {}
        self._silent: set[str] = set()
        """Nodes that were logged as not heard any more."""
        self._timer: asyncio.TimerHandle | None = None
        self._gossip_at = 0.0

    # For the subclass of a role -------------------------------------------------------------------

    @abstractmethod
    def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
        """Handle a frame that is not gossip."""

    def _join(self, frames: list[Frame]) -> list[Frame]:
        """Join frames of one read that are cheaper together."""
        return frames

    @abstractmethod
    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        """A connection to the node came up."""

    @abstractmethod
    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        """The connection was lost. `is_alive` is what gossip says."""

    @abstractmethod
    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        """The node's presence or its records have changed."""

    @abstractmethod
    def _has_left(self, name: str, role: NodeRole) -> None: ...

    @abstractmethod
    def _is_forgotten(self, name: str) -> None: ...

    def _is_relevant(self, name: str, role: NodeRole) -> bool:  # noqa: ARG002
        """Does this node matter to us?"""
        return True

    @abstractmethod
    def _address_known(self, name: str, role: NodeRole, address: Address) -> None:
        """Gossip has the node's address; it is dialed there next."""

    def _may_be_forgotten(self) -> Iterable[str]:
        """Return the nodes that have left and need not be remembered."""
        return [name for name in self._left_at if self.gossip.keeps_nothing(name)]

    @abstractmethod
    def _gossip_answered(self, role: NodeRole) -> None:
        """A node of this role has sent what it knows of all nodes."""

    # Its life -------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        await self.transport.start()
        # In this order: a node that knows the address knows the role.
        self.gossip.put(ROLE, self.transport.links.role.encode())
        self.gossip.put(ADDRESS, str(self.transport.address).encode())

    def _dial_seeds(self) -> bool:
        """Dial the seeds of the settings. False: there are none."""
        seeds = [address for address in self._settings.join if address != self.transport.address]
        for address in seeds:
            self.transport.connect_to(None, address)
        return bool(seeds)

    async def _await_others(self, ready: asyncio.Event) -> bool:
        """Wait until ready. False: the time is over.

        A ConfigError if a node of the cluster refuses us and no other lets us in. If this node
        started alone, clients would take it for the cluster.
        """
        try:
            async with asyncio.timeout(self._settings.join_seconds_max):
                await ready.wait()
        except TimeoutError:
            refusal = self.transport.refusal
            if refusal is not None and not self.transport.connected:
                raise ConfigError(f"the cluster does not let this node in: {refusal}.") from None
            return False
        return True

    async def _say_goodbye(self, *, keeps: bool) -> None:
        """Leave, so that others need not detect it by our silence."""
        if self._timer is not None:
            self._timer.cancel()
        for name, message in self.gossip.leave(keeps=keeps):
            self.transport.send(name, GOSSIP, gossip.encode(message))
        await self.transport.stop()

    # Who is there ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.gossip.name

    def role_of(self, name: str) -> NodeRole | None:
        """Return the node's role; None: it is not known yet."""
        state = self.gossip.state(name)
        value = None if state is None else state.value(ROLE)
        if value is not None:
            return _ROLES.get(value)
        incarnation, role = self._introduced.get(name, (-1, None))
        return role if state is None or incarnation >= state.incarnation else None

    def state_of(self, name: str) -> NodeStatus:
        presence = self.gossip.presence(name)
        if presence is Presence.LEFT:
            return "left"
        is_connected = name in self.transport.connected
        if presence is not Presence.ALIVE:
            return "suspect" if is_connected else "dead"
        is_late = self.gossip.phi(name, self._loop.time()) > PHI_SUSPECT
        return "alive" if is_connected and not is_late else "suspect"

    # Turns ----------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._timer = self._loop.call_later(_TURN_SECONDS, self._turn)
        now = self._loop.time()
        if now >= self._gossip_at:
            self._gossip_at = now + self.gossip.interval_seconds * self._random.uniform(0.95, 1.05)
            self._forget_those_who_left()
            for name, message in self.gossip.tick(now):
                self.transport.send(name, GOSSIP, gossip.encode(message))
            self._handle_events()

    def _handle_events(self) -> None:
        """Handle what gossip has found out."""
        for event in self.gossip.take_events():
            self._handle_event(event)
        incarnation = self.gossip.table.own.incarnation
        if incarnation != self.transport.incarnation:
            self.transport.incarnation = incarnation

    def _forget_those_who_left(self) -> None:
        now = self._loop.time()
        for name in [*self._may_be_forgotten()]:
            waited = now - self._left_at.get(name, -inf)  # -inf: it left in our last life
            if waited > LEFT_FORGET_SECONDS:
                self._left_at.pop(name, None)
                self.gossip.forget(name, now)
        self._handle_events()

    def _handle_event(self, event: PresenceEvent) -> None:
        name = event.name
        if event.presence is None:
            self.transport.forget(name)
            self._silent.discard(name)
            self._without_role.discard(name)
            self._left_at.pop(name, None)
            self._bad_addresses.pop(name, None)
            self._is_forgotten(name)
            self._introduced.pop(name, None)
            return
        # Gossip picks nodes at random, and may miss one that is connected to us all the time.
        is_heard = event.presence is Presence.DEAD and name in self.transport.connected
        is_alive = event.presence is Presence.ALIVE or is_heard
        if name in self._refused:
            return  # we treat it as absent
        role = self.role_of(name)
        if role is None:
            self._without_role.add(name)
            return
        if not self._is_relevant(name, role):
            return
        is_new = event.is_new or name in self._without_role
        self._without_role.discard(name)
        if is_new or not is_alive:
            log.info("%s %s", name, _WORDS[event.presence], extra=about(name))
            self._silent.discard(name)
        if is_alive:
            self._log_heard_again(name)
        elif event.presence is Presence.DEAD:
            self._silent.add(name)
        self._is_live(name, role, is_alive)
        if is_alive:
            self._left_at.pop(name, None)
            self._dial(name, role)
        elif event.presence is Presence.LEFT:
            self.transport.forget(name)
            self._left_at[name] = self._loop.time()
            self._has_left(name, role)

    def _log_heard_again(self, name: str) -> None:
        if name in self._silent:
            self._silent.discard(name)
            log.info("%s is heard again", name, extra=about(name))

    def _dial(self, name: str, role: NodeRole) -> None:
        state = self.gossip.state(name)
        text = None if state is None else state.value(ADDRESS)
        address = None if text is None else self._address(name, text.decode(errors="replace"))
        if address is not None:
            self._address_known(name, role, address)
            self.transport.connect_to(name, address)

    def _address(self, name: str, text: str) -> Address | None:
        """Parse an address from gossip. None, and a log line, if it is invalid.

        The node itself may still dial us, and then tells its address in the handshake.
        """
        try:
            return parse_address(text)
        except ConfigError as error:
            if self._bad_addresses.get(name) != text:
                self._bad_addresses[name] = text
                log.warning(
                    "ignored an invalid address of %s: %s",
                    name,
                    error.message,
                    extra=about(name),
                )
            return None

    # Callbacks of the transport -------------------------------------------------------------------

    def _check(self, hello: Hello) -> str | None:
        """Return why this process is refused, or None. A restarted process gets another chance."""
        instance, why = self._refused.get(hello.name, (b"", ""))
        return why if instance == hello.instance else None

    def _refuse(self, link: PeerLink, why: str) -> None:
        """Refuse a node that would be mistaken for another one."""
        name = link.name
        log.error("%s is refused: %s", name, why, extra=about(name))
        self._refused[name] = (link.hello.instance, why)
        self.transport.forget(name)
        # Its records must not come back through other nodes either.
        self.gossip.disown(name, self._loop.time())
        self._introduced.pop(name, None)

    def _introduce(self, hello: Hello) -> None:
        self._refused.pop(hello.name, None)
        self._introduced[hello.name] = (hello.incarnation, hello.role)
        self.gossip.introduce(hello.name, hello.incarnation, self._loop.time())
        self._handle_events()

    def _connected(self, name: str, hello: Hello) -> None:
        self._log_heard_again(name)
        self._introduce(hello)
        self._came_up(name, hello.role, hello.address)
        digests = self.gossip.table.digests()
        self.transport.send(name, GOSSIP, gossip.encode(gossip.GossipSyn(digests)))

    def _accepted(self, hello: Hello) -> None:
        self._introduce(hello)
        self.transport.connect_to(hello.name, hello.address)

    def _lost(self, name: str) -> None:
        # The connection was a sign of life. From now on only gossip counts.
        presence = self.gossip.presence(name)
        if presence is Presence.DEAD and name not in self._silent:
            self._silent.add(name)
            log.info("%s %s", name, _WORDS[presence], extra=about(name))
        _, role = self._introduced[name]
        self._went_down(name, role, is_alive=presence is Presence.ALIVE)

    def _received(self, link: PeerLink, kind: int, body: bytes) -> None:
        if kind == GOSSIP:
            self._handle_gossip(link, body)
        else:
            self._handle_frame(link, kind, body)

    def _handle_gossip(self, link: PeerLink, body: bytes) -> None:
        message = gossip.decode(body)
        answer = self.gossip.receive(message, self._loop.time())
        self._handle_events()
        if answer is not None:
            encoded = gossip.encode(answer)
            if link.is_dialed:
                self.transport.send(link.name, GOSSIP, encoded)
            else:
                link.answer(GOSSIP, encoded)
        if isinstance(message, gossip.GossipAck):
            self._gossip_answered(link.hello.role)
