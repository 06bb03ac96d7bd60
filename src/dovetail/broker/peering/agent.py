"""A broker's place in a live cluster: gossip and the mesh, driven by real connections.

    transport (cluster/)          gossip (cluster/)            mesh (here)
      who is connected      ->      who is met        ->         to whom frames can go
      frames                ->      GOSSIP            ->         all others
                                    who is alive      ->         for whom who subscribes waits

A node is told some addresses (`join`), or remembers those of its last life. It dials them and
whoever it hears of, and lets clients in when it knows what is subscribed to at the nodes that are
there.
"""

import asyncio
import logging
from dataclasses import replace
from math import inf
from random import Random

from dovetail.broker.journal import Left
from dovetail.broker.peering.asking import Asking
from dovetail.broker.peering.bodies import ANSWER, QUESTION, CopiedFolderError
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.part import ClusterPart
from dovetail.broker.reporting import Reporter
from dovetail.broker.server import Server
from dovetail.cluster import gossip
from dovetail.cluster.addresses import Address, parse_address
from dovetail.cluster.gossip import Event, Gossip, Presence
from dovetail.cluster.handshake import Hello
from dovetail.cluster.link import Link
from dovetail.cluster.transport import Transport
from dovetail.config import LEFT_FORGET_SECONDS, PEER_FRAME_EXTRA_BYTES
from dovetail.errors import ConfigError

log = logging.getLogger("dovetail.cluster")

GOSSIP = 48
"""The kind of frame."""

_ADDRESS = "address"
_WORDS = {
    Presence.ALIVE: "is alive",
    Presence.DEAD: "is not heard any more",
    Presence.LEFT: "has left",
}
_TURN_SECONDS = 0.05


class Agent:
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
        self._part = part
        self._server = server
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
        self.mesh: Mesh = server.broker.join(
            name=links.name,
            stream=stream,
            incarnation=incarnation,
            seed=part.seed,
            send=self.transport.send,
        )
        server.mesh = self.mesh
        self.asking = Asking(reporter, self.mesh, self.gossip, self.transport)
        self._refused: dict[str, tuple[bytes, str]] = {}
        """Nodes whose data folder is a copy: which process that was, and why it is refused."""
        self._remembered: frozenset[str] = frozenset()
        """Those of our last life."""
        self._bad_addresses: dict[str, str] = {}
        """What the log has said of them."""
        self._left_at: dict[str, float] = {}
        self._silent: set[str] = set()
        """Those of whom the log says that they are not heard any more."""
        self._has_heard = False
        self._is_synchronous = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._gossip_at = 0.0

    # Its life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the others. Returns when clients may come, which is at once where nobody is."""
        await self.transport.start()
        self.gossip.put(_ADDRESS, str(self.transport.address).encode())
        addresses = self.mesh.peers.addresses
        found = [(name, self._address(name, text)) for name, text in addresses.items() if text]
        known = [(name, address) for name, address in found if address is not None]
        self._remembered = frozenset(self.mesh.names())
        for name in self._remembered:
            has_left = name in self.mesh.peers.left
            self.gossip.remember(name, self._loop.time(), has_left=has_left)
        self._forget_those_who_left()
        seeds = [address for address in self._part.join if address != self.transport.address]
        for name, address in known:
            self.transport.connect_to(name, address)
        for address in seeds:
            self.transport.connect_to(None, address)
        self._turn()
        if known or seeds:
            await self._synchronize()

    async def _synchronize(self) -> None:
        """Without the others after a while.

        But a node that is refused by whoever answers does not begin at all: its clients would take
        it for the cluster.
        """
        seconds = self._part.join_seconds_max
        try:
            async with asyncio.timeout(seconds):
                await self._is_synchronous.wait()
        except TimeoutError:
            refusal = self.transport.refusal
            if refusal is not None and not self.transport.connected:
                raise ConfigError(f"the cluster does not let this node in: {refusal}.") from None
            missing = sorted(set(self.mesh.names()) - self.transport.connected)
            log.warning(
                "began without the others after %g s; what is published here for them is kept (%s)",
                seconds,
                ", ".join(missing) or "none is known",
            )

    async def stop(self) -> None:
        """Say goodbye, so that nobody has to find out by our silence.

        What peers are owed goes to disk with the last batch of the server, which stops after this.
        """
        if self._timer is not None:
            self._timer.cancel()
        keeps = self.mesh.leaves() is not Left.WITH_NOTHING
        for name, message in self.gossip.leave(keeps=keeps):
            self.transport.send(name, GOSSIP, gossip.encode(message))
        await self.transport.stop()
        for name in self.mesh.names():
            self.mesh.peer_is_down(name)

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
        self._server.now()
        late = self.mesh.tick(self._server.shared.now)
        if late:
            log.warning(
                "%d subscriptions were acknowledged before all other brokers knew of them", late
            )
        self.mesh.flush()
        self._server.rows_may_wait()

    def _heed(self) -> None:
        """What gossip has found out."""
        for event in self.gossip.take_events():
            self._heed_one(event)
        incarnation = self.gossip.table.own.incarnation
        if incarnation != self.transport.incarnation:
            self.transport.incarnation = incarnation

    def _forget_those_who_left(self) -> None:
        """Some time after, so that one that is only started anew stays known."""
        now = self._loop.time()
        for name in [*self.mesh.peers.left]:
            waited = now - self._left_at.get(name, -inf)  # or it was in our last life
            if waited > LEFT_FORGET_SECONDS and self.mesh.needs_nothing(name):
                self._left_at.pop(name, None)
                self.gossip.forget(name, now)
        self._heed()

    def _heed_one(self, event: Event) -> None:
        name = event.name
        if event.presence is None:
            lost = self.mesh.forget(name)
            self.transport.forget(name)
            self._silent.discard(name)
            self._left_at.pop(name, None)
            self._bad_addresses.pop(name, None)
            log.warning("forgot %s; it was owed %d publications", name, lost)
            return
        # Gossip goes by chance, and may not have heard of a node that talks to us all the time.
        is_heard = event.presence is Presence.DEAD and name in self.transport.connected
        is_alive = event.presence is Presence.ALIVE or is_heard
        if name in self._refused:
            return  # to us it is not there, and so cannot go
        keeps_nothing = self.gossip.keeps_nothing(name)
        if keeps_nothing and name not in self.mesh.names():
            return  # it had left before we came, and nobody is waiting for it
        if event.is_new or not is_alive:
            log.info("%s %s", name, _WORDS[event.presence])
            self._silent.discard(name)
        if is_alive:
            self._is_heard(name)
        elif event.presence is Presence.DEAD:
            self._silent.add(name)
        self.mesh.peer_is_live(name, is_alive)
        if is_alive:
            self._dial(name)
        elif event.presence is Presence.LEFT:
            self.transport.forget(name)
            self.mesh.peer_is_down(name)
            self._left_at[name] = self._loop.time()
            self.mesh.peer_has_left(
                name, Left.WITH_NOTHING if keeps_nothing else Left.WITH_SESSIONS
            )

    def _is_heard(self, name: str) -> None:
        if name in self._silent:
            self._silent.discard(name)
            log.info("%s is heard again", name)

    def _dial(self, name: str) -> None:
        state = self.gossip.state(name)
        text = None if state is None else state.value(_ADDRESS)
        address = None if text is None else self._address(name, text.decode(errors="replace"))
        if address is not None:
            self.mesh.peer_is_at(name, str(address))
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
                log.warning("ignored what is said of where %s is: %s", name, error.message)
            return None

    # The transport's side -------------------------------------------------------------------------

    def _check(self, hello: Hello) -> str | None:
        """Why this node is not taken. Another process of that name has another chance."""
        instance, why = self._refused.get(hello.name, (b"", ""))
        return why if instance == hello.instance else None

    def _refuse(self, link: Link, why: str) -> None:
        """A node that would be taken for another one."""
        name = link.name
        log.error("%s is refused: %s; one of them needs an empty folder", name, why)
        self._refused[name] = (link.hello.instance, f"{why}; one of them needs an empty folder")
        self.transport.forget(name)
        self.mesh.peer_is_down(name)
        self.mesh.peer_is_live(name, False)
        # What it says of itself must not come back through others either.
        self.gossip.disown(name, self._loop.time())
        if name in self._remembered or name in self.mesh.exchange.bank:
            # There was another broker of this name, which may come back to what it is owed.
            self.gossip.remember(name, self._loop.time())
        else:
            self.mesh.forget(name)

    def _connected(self, name: str, hello: Hello) -> None:
        self._refused.pop(name, None)
        self._is_heard(name)
        self._server.now()
        self.gossip.introduce(name, hello.incarnation, self._loop.time())
        self._heed()
        self.mesh.peer_is_at(name, str(hello.address))
        self.mesh.peer_is_up(name)
        digests = self.gossip.table.digests()
        self.transport.send(name, GOSSIP, gossip.encode(gossip.Ask(digests)))
        self._server.rows_may_wait()

    def _accepted(self, hello: Hello) -> None:
        self._refused.pop(hello.name, None)
        self.gossip.introduce(hello.name, hello.incarnation, self._loop.time())
        self._heed()
        self.transport.connect_to(hello.name, hello.address)

    def _lost(self, name: str) -> None:
        self._server.now()
        self.mesh.peer_is_down(name)
        # The connection was a sign of life; what remains is what others say.
        presence = self.gossip.presence(name)
        if presence is Presence.DEAD and name not in self._silent:
            self._silent.add(name)
            log.info("%s %s", name, _WORDS[presence])
        self.mesh.peer_is_live(name, presence is Presence.ALIVE)
        self._server.rows_may_wait()

    def _received(self, link: Link, kind: int, body: bytes) -> None:
        if kind == GOSSIP:
            self._take_gossip(link, body)
            return
        if kind == QUESTION and not link.is_dialed:
            self.asking.receive(link, body)
            return
        if kind == ANSWER and link.is_dialed:
            self.asking.answered(link.name, body)
            return
        self._server.now()
        if link.is_dialed:
            self.mesh.answered(link.name, kind, body)
        else:
            try:
                self.mesh.receive(link.name, kind, body, link.answer)
            except CopiedFolderError as error:
                self._refuse(link, error.message)
                raise
        self._server.rows_may_wait()
        self._look()

    def _look(self) -> None:
        """Do we know all that is subscribed to at the nodes that are there, and retained?"""
        if (
            self._has_heard
            and not self._is_synchronous.is_set()
            and self.mesh.is_synchronous
            and self.mesh.is_complete
        ):
            self._is_synchronous.set()

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
            self._has_heard = True
            self._look()
