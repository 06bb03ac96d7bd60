"""A node's place in a live cluster, whatever its role: gossip, driven by real connections.

    transport                  gossip                    the role, which builds on this
      who is connected   ->      who is met        ->      _came_up, _went_down
      frames             ->      GOSSIP            ->      _take: all others
                                 who is alive      ->      _is_live, _has_left, _is_forgotten

Rules:

- A node is told some addresses (`join`). It dials them and whoever it hears of, of any role.
- A node says its role when it is met, and by gossip before it says where it is. One whose role is
  not known yet is left alone.
- A node that is connected is alive, whatever gossip has heard.
- One that has left and keeps nothing is forgotten after a while, so that one that is only started
  anew stays known.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import inf
from random import Random
from typing import get_args

from dovetail.api.reports import NodeRole, State
from dovetail.cluster import gossip
from dovetail.cluster.addresses import Address, parse_address
from dovetail.cluster.gossip import Event, Gossip, Presence
from dovetail.cluster.handshake import Hello
from dovetail.cluster.limits import LEFT_FORGET_SECONDS, PHI_SUSPECT
from dovetail.cluster.link_settings import ClusterLinks
from dovetail.cluster.node_settings import ClusterPart
from dovetail.cluster.peer_link import Link
from dovetail.cluster.transport import Transport
from dovetail.errors import ConfigError
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")

GOSSIP = 48
"""The kind of frame."""

ROLE = "role"
ADDRESS = "address"
"""Records of gossip."""

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
        self, part: ClusterPart, links: ClusterLinks, *, incarnation: int, random: Random
    ) -> None:
        """`links`: those of the part, or with more room."""
        self._part = part
        self._random = random
        self._loop = asyncio.get_running_loop()
        self.gossip = Gossip(
            links.name,
            incarnation,
            self._loop.time(),
            random,
            forget_seconds=part.forget_seconds,
        )
        self.transport = Transport(
            links,
            incarnation=incarnation,
            on_frame=self._received,
            on_connected=self._connected,
            on_lost=self._lost,
            on_accepted=self._accepted,
            check=self._check,
            random=random,
        )
        self._met: dict[str, tuple[int, NodeRole]] = {}
        """The roles of those who were met, and in which life."""
        self._unnamed: set[str] = set()
        """Those whose role is not known yet."""
        self._refused: dict[str, tuple[bytes, str]] = {}
        """Nodes that are not taken: which process that was, and why."""
        self._bad_addresses: dict[str, str] = {}
        """What the log has said of them."""
        self._left_at: dict[str, float] = {}
        self._silent: set[str] = set()
        """Those of whom the log says that they are not heard any more."""
        self._timer: asyncio.TimerHandle | None = None
        self._gossip_at = 0.0

    # What a role does about others ----------------------------------------------------------------

    @abstractmethod
    def _take(self, link: Link, kind: int, body: bytes) -> None:
        """A frame that is not gossip."""

    @abstractmethod
    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        """There is a connection to it."""

    @abstractmethod
    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        """The connection is lost. `is_alive`: as far as gossip knows."""

    @abstractmethod
    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        """What gossip says, or that it has told something new."""

    @abstractmethod
    def _has_left(self, name: str, role: NodeRole) -> None: ...

    @abstractmethod
    def _is_forgotten(self, name: str) -> None: ...

    def _heeds(self, name: str, role: NodeRole) -> bool:  # noqa: ARG002
        """Or is it nobody to us?"""
        return True

    @abstractmethod
    def _is_at(self, name: str, role: NodeRole, address: Address) -> None:
        """It may be dialed there."""

    def _may_be_forgotten(self) -> Iterable[str]:
        """Those who have left, and whom nobody has to remember."""
        return [name for name in self._left_at if self.gossip.keeps_nothing(name)]

    @abstractmethod
    def _has_been_told(self, role: NodeRole) -> None:
        """Somebody of this role has told what it knows of all nodes."""

    # Its life -------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        await self.transport.start()
        # In this order: whoever knows the address knows the role.
        self.gossip.put(ROLE, self.transport.links.role.encode())
        self.gossip.put(ADDRESS, str(self.transport.address).encode())

    def _seek(self) -> bool:
        """Dial those whom we were told of. False: there is nobody."""
        seeds = [address for address in self._part.join if address != self.transport.address]
        for address in seeds:
            self.transport.connect_to(None, address)
        return bool(seeds)

    async def _await_others(self, ready: asyncio.Event) -> bool:
        """False after a while.

        But a node that is refused by whoever answers does not begin at all: it would be taken for
        the cluster.
        """
        try:
            async with asyncio.timeout(self._part.join_seconds_max):
                await ready.wait()
        except TimeoutError:
            refusal = self.transport.refusal
            if refusal is not None and not self.transport.connected:
                raise ConfigError(f"the cluster does not let this node in: {refusal}.") from None
            return False
        return True

    async def _say_goodbye(self, *, keeps: bool) -> None:
        """So that nobody has to find out by our silence."""
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
        """None: it is not known yet."""
        state = self.gossip.state(name)
        told = None if state is None else state.value(ROLE)
        if told is not None:
            return _ROLES.get(told)
        incarnation, role = self._met.get(name, (-1, None))
        return role if state is None or incarnation >= state.incarnation else None

    def state_of(self, name: str) -> State:
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
            self._heed()

    def _heed(self) -> None:
        """What gossip has found out."""
        for event in self.gossip.take_events():
            self._heed_one(event)
        incarnation = self.gossip.table.own.incarnation
        if incarnation != self.transport.incarnation:
            self.transport.incarnation = incarnation

    def _forget_those_who_left(self) -> None:
        now = self._loop.time()
        for name in [*self._may_be_forgotten()]:
            waited = now - self._left_at.get(name, -inf)  # or it was in our last life
            if waited > LEFT_FORGET_SECONDS:
                self._left_at.pop(name, None)
                self.gossip.forget(name, now)
        self._heed()

    def _heed_one(self, event: Event) -> None:
        name = event.name
        if event.presence is None:
            self.transport.forget(name)
            self._silent.discard(name)
            self._unnamed.discard(name)
            self._left_at.pop(name, None)
            self._bad_addresses.pop(name, None)
            self._is_forgotten(name)
            self._met.pop(name, None)
            return
        # Gossip goes by chance, and may not have heard of a node that talks to us all the time.
        is_heard = event.presence is Presence.DEAD and name in self.transport.connected
        is_alive = event.presence is Presence.ALIVE or is_heard
        if name in self._refused:
            return  # to us it is not there, and so cannot go
        role = self.role_of(name)
        if role is None:
            self._unnamed.add(name)
            return
        if not self._heeds(name, role):
            return
        is_new = event.is_new or name in self._unnamed
        self._unnamed.discard(name)
        if is_new or not is_alive:
            log.info("%s %s", name, _WORDS[event.presence], extra=about(name))
            self._silent.discard(name)
        if is_alive:
            self._is_heard(name)
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

    def _is_heard(self, name: str) -> None:
        if name in self._silent:
            self._silent.discard(name)
            log.info("%s is heard again", name, extra=about(name))

    def _dial(self, name: str, role: NodeRole) -> None:
        state = self.gossip.state(name)
        text = None if state is None else state.value(ADDRESS)
        address = None if text is None else self._address(name, text.decode(errors="replace"))
        if address is not None:
            self._is_at(name, role, address)
            self.transport.connect_to(name, address)

    def _address(self, name: str, text: str) -> Address | None:
        """None, and a line in the log, for what is none: whoever told us may have it from others.

        The node itself may still come to us, and then says where it is.
        """
        try:
            return parse_address(text)
        except ConfigError as error:
            if self._bad_addresses.get(name) != text:
                self._bad_addresses[name] = text
                log.warning(
                    "ignored what is said of where %s is: %s",
                    name,
                    error.message,
                    extra=about(name),
                )
            return None

    # The transport's side -------------------------------------------------------------------------

    def _check(self, hello: Hello) -> str | None:
        """Why this node is not taken. Another process of that name has another chance."""
        instance, why = self._refused.get(hello.name, (b"", ""))
        return why if instance == hello.instance else None

    def _refuse(self, link: Link, why: str) -> None:
        """A node that would be taken for another one."""
        name = link.name
        log.error("%s is refused: %s", name, why, extra=about(name))
        self._refused[name] = (link.hello.instance, why)
        self.transport.forget(name)
        # What it says of itself must not come back through others either.
        self.gossip.disown(name, self._loop.time())
        self._met.pop(name, None)

    def _meet(self, hello: Hello) -> None:
        self._refused.pop(hello.name, None)
        self._met[hello.name] = (hello.incarnation, hello.role)
        self.gossip.introduce(hello.name, hello.incarnation, self._loop.time())
        self._heed()

    def _connected(self, name: str, hello: Hello) -> None:
        self._is_heard(name)
        self._meet(hello)
        self._came_up(name, hello.role, hello.address)
        digests = self.gossip.table.digests()
        self.transport.send(name, GOSSIP, gossip.encode(gossip.Ask(digests)))

    def _accepted(self, hello: Hello) -> None:
        self._meet(hello)
        self.transport.connect_to(hello.name, hello.address)

    def _lost(self, name: str) -> None:
        # The connection was a sign of life; what remains is what others say.
        presence = self.gossip.presence(name)
        if presence is Presence.DEAD and name not in self._silent:
            self._silent.add(name)
            log.info("%s %s", name, _WORDS[presence], extra=about(name))
        _, role = self._met[name]
        self._went_down(name, role, is_alive=presence is Presence.ALIVE)

    def _received(self, link: Link, kind: int, body: bytes) -> None:
        if kind == GOSSIP:
            self._take_gossip(link, body)
        else:
            self._take(link, kind, body)

    def _take_gossip(self, link: Link, body: bytes) -> None:
        message = gossip.decode(body)
        answer = self.gossip.receive(message, self._loop.time())
        self._heed()
        if answer is not None:
            encoded = gossip.encode(answer)
            if link.is_dialed:
                self.transport.send(link.name, GOSSIP, encoded)
            else:
                link.answer(GOSSIP, encoded)
        if isinstance(message, gossip.Tell):
            self._has_been_told(link.hello.role)
