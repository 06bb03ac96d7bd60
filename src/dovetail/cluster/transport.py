"""A node's connections with other nodes: dialed and accepted links, and the frames on them.

    connect_to ->  dialing -> handshake -> ready: on_connected, send ... on_lost -> dialing ...
                      ^____________________ pause, longer each time ____________________|

    a connection comes in -> TLS -> handshake -> ready: on_accepted, on_frame, Link.answer

Rules:

- A node sends on connections that it has dialed, and answers come back on them. So two nodes have
  two connections, one each way, and need not agree on one.
- `answer` sends on the connection that the peer has dialed, also without a question.
- Frames to a peer arrive in order or, once a connection is lost, not at all: `send` promises
  nothing. A caller that needs to know asks for an answer. A lost connection may still bring frames
  when the network is back, so the first frame of a later connection closes earlier ones.
- A dial target is dialed until it is forgotten. A seed is forgotten if its node turns out to be
  connected already.
- A name belongs to one process. Another process gets it when the first is gone or silent, or if it
  is at the same address and so must have replaced the first.
- Callbacks run inside the loop's turn and must not block. A PeerError from one closes the link.
"""

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random

from dovetail.cluster.acceptor import Acceptor
from dovetail.cluster.addresses import Address, is_loopback, network_of
from dovetail.cluster.dialer import DialTarget, RefusalLog, pause_seconds
from dovetail.cluster.frames import Frame
from dovetail.cluster.handshake import (
    INSTANCE_BYTES,
    NONCE_BYTES,
    Handshake,
    HandshakeRefusal,
    HandshakeRole,
    Hello,
    RefusalCode,
)
from dovetail.cluster.limits import (
    DIAL_FAILURES_QUIET,
    LOGGED_REFUSAL_SECONDS,
    LOGGED_REFUSALS_MAX,
    MEMBER_ADDRESSES_MAX,
)
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.peer_link import PeerLink, explain
from dovetail.cluster.secret import key_of
from dovetail.cluster.tls import LinkTls, channel_of
from dovetail.limits import CLUSTER_NODES_MAX
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")

_GOODBYE_SECONDS = 1.0
_NOT_OF_US = frozenset({RefusalCode.OURSELVES, RefusalCode.OTHER_NAME})
"""Refusals that say nothing about this node: the address belongs to another node now."""
_LINKS_MAX = 4 * CLUSTER_NODES_MAX
"""One link each way, and as many whose loss is not noticed yet."""
_LATE_PINGS = 4
"""If our own clock is late by so many pings, silence says nothing about peers."""


class Transport:
    """The links of one node. `incarnation` may be raised at any time; new links use it."""

    def __init__(
        self,
        links: LinkSettings,
        *,
        incarnation: int,
        on_frame: Callable[[PeerLink, int, bytes], None],
        on_connected: Callable[[str, Hello], None],
        on_lost: Callable[[str], None],
        on_accepted: Callable[[Hello], None] = lambda _: None,
        join: Callable[[list[Frame]], list[Frame]] = lambda frames: frames,
        check: Callable[[Hello], str | None] = lambda _: None,
        random: Random,
        token_bytes: Callable[[int], bytes] = secrets.token_bytes,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`check` returns why an authenticated node is refused, or None.

        `on_accepted` reports a node that has dialed us; to send to it, dial it, too. `on_lost`
        follows each `on_connected`, except for forgotten peers and after `stop`. `join` may join
        frames of one read before `on_frame` gets them.
        """
        self.links = links
        self.incarnation = incarnation
        self._on_frame = on_frame
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._on_accepted = on_accepted
        self.join = join
        self._check_of_node = check
        self._random = random
        self._token_bytes = token_bytes
        self._loop = asyncio.get_running_loop()
        self.clock = clock or self._loop.time
        self._tls = LinkTls(links) if links.certificate else None
        self._key = key_of(links.secret, links.cluster)
        self._instance = token_bytes(INSTANCE_BYTES)
        self._acceptor: Acceptor | None = None
        self._is_stopped = False
        self._dials: set[DialTarget] = set()
        self._links: set[PeerLink] = set()
        self._dialed: dict[str, PeerLink] = {}
        self._accepted: dict[str, dict[PeerLink, None]] = {}
        self._members: dict[str, None] = {}
        """Addresses where nodes of the cluster are, or were, oldest first."""
        self._dirty: list[PeerLink] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusal_log = RefusalLog(LOGGED_REFUSALS_MAX, LOGGED_REFUSAL_SECONDS)
        self.refusal: str | None = None
        """The last refusal since a node let us in, as a sentence."""
        self._ticked_at = self.clock()
        self._ticker: asyncio.TimerHandle | None = None

    # For its user ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. `connect_to` dials nodes."""
        context = None if self._tls is None else self._tls.accepting
        self._acceptor = Acceptor(
            self.links, context, lambda: PeerLink(self), self._members.__contains__, self._refused
        )
        self._ticked_at = self.clock()
        self._ticker = self._loop.call_later(self.links.ping_seconds, self._tick)

    @property
    def address(self) -> Address:
        """The address where others dial this node."""
        assert self._acceptor is not None, "not started"
        return self.links.advertise or self._acceptor.address

    @property
    def connected(self) -> frozenset[str]:
        """The nodes that frames can be sent to."""
        return frozenset(self._dialed)

    def connect_to(self, name: str | None, address: Address) -> None:
        """Dial a node, and again whenever the connection is lost, until it is forgotten.

        A seed has no name. If the node is dialed already, its new address counts from the next
        attempt on. A pause before that attempt ends.
        """
        self._remember_member_address(address.host)
        dial = (self._dial_of(name) if name is not None else None) or self._seed_at(address, name)
        if dial is None:
            if len(self._dials) >= CLUSTER_NODES_MAX:
                log.warning("%s is not dialed: there are too many nodes", address)
                return
            assert not self._is_stopped
            dial = DialTarget(name, address)
            self._dials.add(dial)
            dial.task = self._start(self._maintain(dial))
            return
        dial.name = name or dial.name
        if dial.address != address:
            dial.address = address
            dial.wake.set()

    def forget(self, peer: str | Address) -> None:
        """Stop dialing a node, and close the connection. A seed is named by its address."""
        dial = self._dial_of(peer) if isinstance(peer, str) else self._seed_at(peer)
        if dial is None:
            return
        link = self._link_of(dial)
        self._drop_dial(dial)
        if link is not None:
            del self._dialed[link.name]
            link.close("it was forgotten")

    def send(self, name: str, kind: int, body: bytes) -> bool:
        """Send a frame. False: there is no connection, or the peer's backlog is full."""
        link = self._dialed.get(name)
        return link is not None and link.send(kind, body)

    def renew(self, tls: LinkTls) -> None:
        """Use these certificates for new connections. Open ones stay."""
        assert self._tls is not None, "links without TLS stay so"
        self._tls = tls
        if self._acceptor is not None:
            self._acceptor.renew(tls.accepting)

    def answer(self, name: str, kind: int, body: bytes) -> bool:
        """Send a frame on the connection that this peer has opened.

        False: there is none, or the frame does not fit.
        """
        found = [link for link in self._accepted.get(name, ()) if link.is_open]
        if not found:
            return False
        # A peer that lost a connection uses its next one.
        return max(found, key=lambda link: link.heard_at).answer(kind, body)

    def hang_up(self, name: str, why: str) -> None:
        """Close the connections that this peer has opened. It dials again, and starts afresh."""
        for link in [*self._accepted.get(name, ())]:
            link.close(why)

    def unsent_bytes(self, name: str) -> int:
        """Return how many bytes wait for this peer to read them."""
        link = self._dialed.get(name)
        return 0 if link is None else link.unsent_bytes

    def heard_at(self, name: str) -> float | None:
        """Return when the peer was last heard, on either connection. None: there is none.

        Both sides ping, so a live peer is heard every `ping_seconds`.
        """
        found = [link.heard_at for link in self._links_with(name)]
        return max(found) if found else None

    async def stop(self) -> None:
        """Close all links, after sending what peers read soon. No callback runs any more."""
        self._is_stopped = True
        if self._ticker is not None:
            self._ticker.cancel()
        if self._acceptor is not None:
            await self._acceptor.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in [*self._links]:
            link.close("we stop")
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                for link in [*self._links]:
                    await link.gone.wait()
        for link in [*self._links]:
            link.give_up("we stop")

    # Dialing --------------------------------------------------------------------------------------

    async def _maintain(self, dial: DialTarget) -> None:
        """Keep a connection with this target until it is forgotten."""
        links = self.links
        while dial in self._dials:
            link = await self._dial_once(dial)
            if link is not None:
                ready_at = self.clock()
                await link.gone.wait()
                if self.clock() - ready_at >= links.steady_seconds:
                    dial.failures = 0
            seconds = pause_seconds(
                dial.failures, links.dial_seconds_min, links.dial_seconds_max, self._random
            )
            dial.failures += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await dial.wake.wait()
            dial.wake.clear()

    async def _dial_once(self, dial: DialTarget) -> PeerLink | None:
        """Dial once. Return a link that is ready, or log the failure and return None."""
        link = PeerLink(self, dial)
        tls = self._tls
        try:
            async with asyncio.timeout(self.links.handshake_seconds_max):
                await self._loop.create_connection(
                    lambda: link,
                    *dial.address,
                    ssl=None if tls is None else tls.dialing,
                    server_hostname=None if tls is None else dial.address.host,
                )
                await link.settled.wait()
        except TimeoutError:
            link.abort(f"no answer in {self.links.handshake_seconds_max:g} s")
        except (OSError, UnicodeError) as error:  # idna raises the latter for impossible names
            link.abort(explain(error))
        except Exception:  # a bug, and no reason to give the peer up
            log.exception("cannot dial %s", dial)
        finally:
            if not link.is_ready:
                link.give_up("it was forgotten")
        if link.is_ready:
            return link
        refusal = None if link.handshake is None else link.handshake.refusal
        if refusal is not None and refusal.code not in _NOT_OF_US:
            self.refusal = refusal.sentence
        if link.handshake is None and dial.failures < DIAL_FAILURES_QUIET:
            log.debug("cannot connect to %s: %s", dial, link.why_gone)
        elif self._should_log(str(dial), link, link.why_gone):
            log.warning(
                "cannot connect to %s: %s", dial, link.why_gone, extra=about(str(dial.address))
            )
        return None

    # For links ------------------------------------------------------------------------------------

    def opened(self, link: PeerLink, secure: ssl.SSLObject | None) -> Handshake:
        self._links.add(link)
        links = self.links
        address = self.address
        hello = Hello(
            cluster=links.cluster,
            name=links.name,
            incarnation=self.incarnation,
            host=address.host,
            port=address.port,
            instance=self._instance,
            nonce=self._token_bytes(NONCE_BYTES),
            role=links.role,
        )
        channel = b""
        if self._tls is not None and secure is not None:
            channel = channel_of(secure) if link.is_dialed else self._tls.channel
        return Handshake(
            HandshakeRole.DIALER if link.is_dialed else HandshakeRole.ACCEPTOR,
            hello,
            self._key,
            channel=channel,
            expected_name=None if link.dial is None else link.dial.name,
            needs_secret=not links.secret and not is_loopback(link.address.host),
            check=self._check,
        )

    def wake(self, link: PeerLink) -> None:
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(link)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            link.flush()

    def ready(self, link: PeerLink) -> None:
        self._remember_member_address(link.address.host)
        if self._is_stopped:
            link.close("we stop")
        elif link.dial is not None:
            self._dialed_ready(link.dial, link)
        else:
            self._accepted_ready(link)

    def _dialed_ready(self, dial: DialTarget, link: PeerLink) -> None:
        name = link.name
        earlier = self._dialed.get(name)
        if dial not in self._dials:
            link.close("it was forgotten")
        elif dial.name not in {None, name}:  # it got its name while it was dialing
            link.close(f"it is not {dial.name}")
        elif earlier is not None and earlier.dial is not None:
            # Two dials have led to the same node: one is enough, and it goes by its name.
            earlier.dial.name = earlier.dial.name or dial.name
            self._drop_dial(dial)
            link.close("it is connected already")
        else:
            self._dialed[name] = link
            self.refusal = None
            log.info("connected to %s at %s", name, link.address, extra=about(name))
            self._on_connected(name, link.hello)

    def _accepted_ready(self, link: PeerLink) -> None:
        # A peer that lost a connection dials again before we notice: both links stay for a while.
        self._accepted.setdefault(link.name, {})[link] = None
        dial = self._dial_of(link.name)
        if dial is not None and link.name not in self._dialed:
            dial.wake.set()  # it is there: no need to wait
        self._on_accepted(link.hello)

    def received(self, link: PeerLink, kind: int, body: bytes) -> None:
        if self._is_stopped:
            return
        if not link.is_dialed and len(self._accepted[link.name]) > 1:
            self._close_earlier(link)
        self._on_frame(link, kind, body)

    def _close_earlier(self, link: PeerLink) -> None:
        """Close the connections that this peer opened before: what they still bring is late."""
        for earlier in [*self._accepted[link.name]]:
            if earlier is link:
                return
            earlier.abort("the peer uses a later connection")
            self._lose(earlier)

    def gone(self, link: PeerLink) -> None:
        self._links.discard(link)
        self._lose(link)

    def _lose(self, link: PeerLink) -> None:
        """Remove a link that cannot be used any more."""
        if not link.is_ready:
            return
        name = link.name
        accepted = self._accepted.get(name, {})
        accepted.pop(link, None)
        if not accepted:
            self._accepted.pop(name, None)
        if self._dialed.get(name) is link:
            del self._dialed[name]
            if not self._is_stopped:
                log.info("lost %s at %s: %s", name, link.address, link.why_gone, extra=about(name))
                self._on_lost(name)

    def _check(self, hello: Hello) -> HandshakeRefusal | None:
        """Return why an authenticated node is refused, or None."""
        name = hello.name
        if (why := self._check_of_node(hello)) is not None:
            return HandshakeRefusal(RefusalCode.NOT_TAKEN, why)
        if len(self._links) > _LINKS_MAX:
            return HandshakeRefusal(RefusalCode.NOT_TAKEN, f"{self.links.name} has too many peers")
        others = [link for link in self._links_with(name) if link.hello.instance != hello.instance]
        silent_from = self.clock() - self.links.silence_seconds_max
        for link in others:
            if link.hello.address != hello.address and link.heard_at > silent_from:
                sentence = f"the name {name} is in use by the node at {link.hello.address}"
                return HandshakeRefusal(RefusalCode.NAME_IN_USE, sentence)
        for link in others:
            link.abort(f"another process has taken its place at {hello.address}")
            self._lose(link)
        return None

    # Time -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        ping_seconds = self.links.ping_seconds
        self._ticker = self._loop.call_later(ping_seconds, self._tick)
        now = self.clock()
        is_late = now - self._ticked_at > _LATE_PINGS * ping_seconds
        self._ticked_at = now
        for link in [*self._links]:
            if is_late:
                link.excuse(now)
            link.judge(now)
            link.ping()

    # Small things ---------------------------------------------------------------------------------

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _remember_member_address(self, host: str) -> None:
        """Remember the address of a member: connections from there get the members' slots.

        It stays when the node leaves, since a restarting node leaves, too.
        """
        network = network_of(host)
        self._members.pop(network, None)
        self._members[network] = None
        if len(self._members) > MEMBER_ADDRESSES_MAX:
            del self._members[next(iter(self._members))]

    def _dial_of(self, name: str) -> DialTarget | None:
        link = self._dialed.get(name)
        if link is not None:
            return link.dial
        return next((dial for dial in self._dials if dial.name == name), None)

    def _seed_at(self, address: Address, name: str | None = None) -> DialTarget | None:
        """Return the seed with this address that is, or may be, the node of that name."""
        for dial in self._dials:
            if dial.name is None and dial.address == address:
                link = self._link_of(dial)
                if link is None or name is None or link.name == name:
                    return dial
        return None

    def _link_of(self, dial: DialTarget) -> PeerLink | None:
        return next((link for link in self._dialed.values() if link.dial is dial), None)

    def _links_with(self, name: str) -> list[PeerLink]:
        dialed = self._dialed.get(name)
        return [*self._accepted.get(name, ()), *(() if dialed is None else (dialed,))]

    def _drop_dial(self, dial: DialTarget) -> None:
        self._dials.discard(dial)
        if dial.task is not None:
            dial.task.cancel()

    def _refused(self, who: str, link: PeerLink | None, why: str) -> None:
        if self._should_log(who, link, why):
            log.warning("rejected the connection from %s: %s", who, why)

    def _should_log(self, who: str, link: PeerLink | None, why: str) -> bool:
        refusal = None if link is None or link.handshake is None else link.handshake.refusal
        if refusal is not None and refusal.code == RefusalCode.OURSELVES:
            log.debug("%s: %s", who, why)
            return False  # every node may have the same list of seeds, itself among them
        return self._refusal_log.is_news(who, why, self.clock())
