"""What the server remembers of a client, and the QoS 1 and 2 exchanges with it. Pure.

Outgoing messages go through three states, each a place:

    queue     waits for a packet identifier: the window is full, or nobody is connected
    inflight  has one; PUBLISH was sent (or will be, when the journal has it), or PUBREL was
    gone      acknowledged

    offer -> queue -> [window] -> PUBLISH -> PUBACK  -> gone        QoS 1
                                  PUBLISH -> PUBREC -> PUBREL -> PUBCOMP -> gone    QoS 2

A session that ends with its connection never sends a message again, so of one that is passed on at
once it keeps the packet identifier only (`light`), and how far the exchange is.

Rules for persistent sessions:
- A QoS 2 PUBLISH leaves only when its packet identifier is on disk, and its PUBREL only when the
  PUBREC is: otherwise a restart would send it again under another identifier, or again at all.
- What is acknowledged to us is deleted without waiting: at worst it is asked for once more.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from dovetail.broker.clauses import Clause, split_key
from dovetail.broker.codec import encode_ack
from dovetail.broker.journal import DeliveryRow, SessionRow, SubscriptionRow
from dovetail.broker.packets import SESSION_NEVER_EXPIRES, PacketType, Will
from dovetail.config import HANDLE_PREFIX
from dovetail.errors import ReasonCode
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.narrowing import Asked
    from dovetail.broker.routes import Group
    from dovetail.broker.state import Shared

PACKET_ID_MAX = 65_535

ARRIVED_SEQUENCES = 1 << 40
"""Below are entries that came with the session from another broker: they go before all others."""

_FAILURE = 0x80  # reason codes from here on are refusals
_PUBREL = b"\x62\x02"
# What a light exchange waits for. The first two are its QoS.
_LIGHT_PUBACK, _LIGHT_PUBREC, _LIGHT_PUBCOMP = 1, 2, 3


class Receiver(Protocol):
    """A connection, as far as a session needs one."""

    version: int
    plain: bool
    unsent: int
    congested: bool

    def relieve(self) -> bool: ...

    def send(self, data: bytes) -> None: ...

    def send_publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        duplicate: bool,
    ) -> bool: ...


class Detour(Protocol):
    """Another broker had the session, or has it now (peering/detours.py)."""

    holds: bool

    def takes(
        self,
        session: "Session",
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> bool: ...

    def row(self) -> bytes: ...


class Subscription:
    """A filter of a session, with its options as they stood on the wire (section 3.8.3.1)."""

    __slots__ = ("clause", "filter", "identifier", "key", "options", "session")

    def __init__(self, session: "Session", key: str, options: int, identifier: int) -> None:
        self.session = session
        self.key = key
        """Its filter and, if it has a where-clause, that (clauses.py)."""
        self.filter, _ = split_key(key)
        self.clause: Clause | None = None
        """What it wants of its topics; None: everything, or nothing if spaces are not as they were
        when it was made."""
        self.options = options
        self.identifier = identifier

    @property
    def qos(self) -> int:
        return self.options & 3

    @property
    def no_local(self) -> bool:
        return bool(self.options & 4)

    @property
    def retain_as_published(self) -> bool:
        return bool(self.options & 8)

    @property
    def retain_handling(self) -> int:
        return self.options >> 4

    def row(self) -> SubscriptionRow:
        return SubscriptionRow(self.options, self.identifier)


class Outgoing:
    """A message on its way to a session."""

    __slots__ = (
        "first_batch",
        "group",
        "identifiers",
        "message",
        "packet_id",
        "qos",
        "released",
        "retain",
        "sequence",
    )

    def __init__(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], sequence: int
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.sequence = sequence
        self.packet_id = 0
        self.released = False
        self.first_batch = 0  # of the journal; 0: not on disk
        self.group: Group | None = None  # which picked this session; not on disk

    def row(self) -> DeliveryRow:
        return DeliveryRow(
            self.message.number,
            self.qos,
            self.retain,
            self.packet_id,
            self.released,
            self.identifiers,
        )


class Session:
    """Lives as long as section 4.1 says: beyond the connection if it has an expiry interval."""

    __slots__ = (
        "boxes",
        "client_id",
        "detour",
        "ended_at",
        "expiry_seconds",
        "filter_bytes",
        "incoming",
        "inflight",
        "is_handle",
        "is_news",
        "light",
        "link",
        "next_packet_id",
        "next_sequence",
        "number",
        "outstanding",
        "queue",
        "queued_bytes",
        "resending",
        "shared",
        "stamp",
        "stored",
        "subscriptions",
        "undecided",
        "user",
        "void_before",
        "was_kept",
        "will",
        "window",
    )

    def __init__(self, shared: "Shared", number: int, client_id: str) -> None:
        self.shared = shared
        self.number = number
        self.client_id = client_id
        self.is_handle = client_id.startswith(HANDLE_PREFIX)  # what has QoS 0 is kept too
        self.user: str | None = None
        self.expiry_seconds = 0
        self.ended_at: float | None = None
        self.will: Will | None = None
        self.stamp = 0  # of its last connection, among those of all brokers
        self.is_news = False  # its client may not have heard that it began without what there was
        self.void_before = 0  # if it began clean: the stamp of the connection that it did so with
        self.detour: Detour | None = None
        self.stored = False  # there is a row of it on disk
        self.was_kept = False  # and there was one that outlives the connection
        self.link: Receiver | None = None
        self.subscriptions: dict[str, Subscription] = {}  # by key
        self.filter_bytes = 0  # of their keys together
        self.boxes = 0  # of their clauses together; one for each that has none
        self.queue: deque[Outgoing] = deque()
        self.inflight: dict[int, Outgoing] = {}
        self.light: dict[int, int] = {}  # packet identifier -> what we wait for, see below
        self.resending: deque[Outgoing] = deque()
        self.outstanding = 0  # sent over this connection, and not acknowledged
        self.window = 0
        self.queued_bytes = 0
        self.incoming: set[int] = set()
        self.undecided: dict[int, Asked] = {}
        """Of these the publications that wait for matchers, and are not on disk."""
        self.next_packet_id = 1
        self.next_sequence = 1

    @property
    def persistent(self) -> bool:
        return self.expiry_seconds > 0

    @property
    def never_expires(self) -> bool:
        return self.expiry_seconds == SESSION_NEVER_EXPIRES

    # Out ---------------------------------------------------------------------------------------

    def offer(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> Outgoing | None:
        """A QoS 1 or 2 message for this session; None if it has expired, or its queue is full.

        Then it was dropped. What waits there and has expired gives way first.
        """
        detour = self.detour
        if detour is not None and not detour.takes(self, message, qos, retain, identifiers):
            return None
        return self._offer(message, qos, retain, identifiers)

    def arrive_late(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """What another broker still had for it."""
        self._offer(message, qos, retain, identifiers)

    def _offer(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> Outgoing | None:
        shared = self.shared
        if message.expires_at is not None and message.expires_at < shared.now:  # [MQTT-3.3.2-5]
            shared.counters.publishes_expired += 1
            return None
        size = message.size
        limits = shared.limits
        link = self.link
        if (
            len(self.queue) + len(self.inflight) + len(self.light) >= limits.queue_messages_max
            or self.queued_bytes + size > limits.queue_bytes_max
            or shared.gauges.queued_bytes + size > limits.queued_bytes_total_max
        ):
            if shared.expiring.drop(self, shared.now):
                return self._offer(message, qos, retain, identifiers)
            shared.counters.publishes_dropped += 1
            return None
        entry = Outgoing(message, qos, retain, identifiers, self.next_sequence)
        self.next_sequence += 1
        self.queued_bytes += size
        gauges = shared.gauges
        gauges.queued_messages += 1
        gauges.queued_bytes += size
        persistent = self.expiry_seconds > 0
        if persistent:
            entry.first_batch = shared.journal.open.number
            shared.journal.keep(message)
        if (
            link is not None
            and self.outstanding < self.window
            and not self.queue
            and not self.resending
            and not link.congested
            and not (self.detour is not None and self.detour.holds)
        ):
            self._start(entry, link)
        else:
            if persistent:
                shared.journal.save_delivery(self.number, entry.sequence, entry.row())
            self._enqueue(entry)
        return entry

    def _enqueue(self, entry: Outgoing) -> None:
        self.queue.append(entry)
        if entry.message.expires_at is not None:
            self.shared.expiring.note(self, entry.message.expires_at)

    def _start(self, entry: Outgoing, link: Receiver) -> None:
        packet_id = self.next_packet_id
        inflight = self.inflight
        while packet_id in inflight or packet_id in self.light:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self.next_packet_id = packet_id % PACKET_ID_MAX + 1
        entry.packet_id = packet_id
        inflight[packet_id] = entry
        self.outstanding += 1
        if entry.first_batch:
            journal = self.shared.journal
            journal.save_delivery(self.number, entry.sequence, entry.row())
            if entry.qos == 2:
                journal.when_stored(self._sender(entry, link, duplicate=False))
                return
        self._send(entry, link, duplicate=False)

    def _sender(
        self, entry: Outgoing, link: Receiver, *, duplicate: bool
    ) -> Callable[[bool], None]:
        """Sends a QoS 2 message when its packet identifier is on disk."""

        def send(stored: bool) -> None:
            # The connection may have changed since: then the new one sends it.
            if self.link is not link or self.inflight.get(entry.packet_id) is not entry:
                return
            if not stored:
                self.shared.journal.wait_on(send)
            elif not entry.released:
                self._send(entry, link, duplicate=duplicate)
                if self.queue or self.resending:
                    self.pump(self.shared.now)

        return send

    def _send(self, entry: Outgoing, link: Receiver, *, duplicate: bool) -> None:
        if not link.send_publish(
            entry.message, entry.qos, entry.retain, entry.packet_id, entry.identifiers, duplicate
        ):
            # Too large for this client: as if it had been delivered [MQTT-3.1.2-25].
            self.shared.counters.publishes_dropped += 1
            self._forget(self.inflight.pop(entry.packet_id))
            self.outstanding -= 1

    def pump(self, now: float) -> None:
        """Send what waits and fits into the window."""
        link = self.link
        if link is None:
            return
        while self.outstanding < self.window and not link.congested:
            if self.resending:
                entry = self.resending.popleft()
                if self.inflight.get(entry.packet_id) is not entry:
                    continue
                self.outstanding += 1
                # [MQTT-4.4.0-1], [MQTT-3.3.1-1]
                if entry.qos == 2 and entry.first_batch:
                    self.shared.journal.when_stored(self._sender(entry, link, duplicate=True))
                else:
                    self._send(entry, link, duplicate=True)
            elif self.queue:
                if (
                    self.detour is not None
                    and self.detour.holds
                    and self.queue[0].sequence >= ARRIVED_SEQUENCES
                ):
                    return
                entry = self.queue.popleft()
                expires_at = entry.message.expires_at
                if expires_at is not None and expires_at <= now:  # [MQTT-3.3.2-5]
                    self.shared.counters.publishes_expired += 1
                    self._forget(entry)
                    continue
                self._start(entry, link)
            else:
                return

    def drop_expired(self, now: float) -> float | None:
        """Take what has expired out of the queue; returns when the next of it will, if any."""
        expires_next: float | None = None
        kept: deque[Outgoing] = deque()
        for entry in self.queue:
            expires_at = entry.message.expires_at
            if expires_at is not None and expires_at <= now:
                self.shared.counters.publishes_expired += 1
                self._forget(entry)
                continue
            kept.append(entry)
            if expires_at is not None and (expires_next is None or expires_at < expires_next):
                expires_next = expires_at
        self.queue = kept
        return expires_next

    def takes_light(self, version: int, congestion_bytes: int) -> bool:
        """Can a plain frame be passed on to it at once, and forgotten but for its identifier?"""
        link = self.link
        return (
            link is not None
            and self.outstanding < self.window
            and not self.queue
            and not self.expiry_seconds
            and self.detour is None
            and link.plain
            and link.version == version
            and link.unsent <= congestion_bytes
            and not link.congested
        )

    def pass_on(self, head: bytes, tail: bytes, qos: int) -> None:
        """A frame that `takes_light` said yes to, without its packet identifier."""
        packet_id = self.next_packet_id
        light = self.light
        while packet_id in light or packet_id in self.inflight:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self.next_packet_id = packet_id % PACKET_ID_MAX + 1
        light[packet_id] = qos
        self.outstanding += 1
        link = self.link
        assert link is not None
        link.send(head + packet_id.to_bytes(2) + tail)

    def _finish_light(self, packet_id: int, now: float) -> None:
        del self.light[packet_id]
        self.outstanding -= 1
        if self.queue:
            self.pump(now)

    def acknowledged(self, packet_id: int, now: float) -> bool:
        """PUBACK; False if nothing waits for it."""
        if self.light.get(packet_id) == _LIGHT_PUBACK:
            self._finish_light(packet_id, now)
            return True
        entry = self.inflight.get(packet_id)
        if entry is None or entry.qos != 1:
            return False
        self._finish(entry, now)
        return True

    def received(self, packet_id: int, reason: int, now: float) -> None:
        """PUBREC: answered with PUBREL, unless it refuses."""
        link = self.link
        assert link is not None
        if self.light.get(packet_id) in (_LIGHT_PUBREC, _LIGHT_PUBCOMP):
            if reason >= _FAILURE:
                self._finish_light(packet_id, now)
            else:
                self.light[packet_id] = _LIGHT_PUBCOMP
                link.send(_PUBREL + packet_id.to_bytes(2))
            return
        entry = self.inflight.get(packet_id)
        if entry is None or entry.qos != 2:
            # [MQTT-4.3.3-4] holds for messages we sent; this one we do not know.
            if reason < _FAILURE:
                link.send(
                    encode_ack(
                        link.version,
                        PacketType.PUBREL,
                        packet_id,
                        ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,
                    )
                )
            return
        if reason >= _FAILURE:  # [MQTT-4.4.0-2]
            self._finish(entry, now)
            return
        if self.resending and entry in self.resending:  # of what we sent over another connection
            self.resending.remove(entry)
            self.outstanding += 1
        entry.released = True
        if entry.first_batch:
            self.shared.journal.save_delivery(self.number, entry.sequence, entry.row())
        self._release(entry, link)

    def _release(self, entry: Outgoing, link: Receiver) -> None:
        """PUBREL, when it is on disk that PUBREC has come."""
        data = encode_ack(link.version, PacketType.PUBREL, entry.packet_id)
        if not entry.first_batch:
            link.send(data)
            return
        journal = self.shared.journal

        def send(stored: bool) -> None:
            if self.link is link and self.inflight.get(entry.packet_id) is entry:
                if stored:
                    link.send(data)
                else:
                    journal.wait_on(send)

        journal.when_stored(send)

    def completed(self, packet_id: int, now: float) -> None:
        """PUBCOMP."""
        if self.light.get(packet_id) == _LIGHT_PUBCOMP:
            self._finish_light(packet_id, now)
            return
        entry = self.inflight.get(packet_id)
        if entry is not None and entry.released:
            self._finish(entry, now)

    def _finish(self, entry: Outgoing, now: float) -> None:
        """It is out of the window, which may have room for another."""
        del self.inflight[entry.packet_id]
        if self.resending and entry in self.resending:
            self.resending.remove(entry)
        else:
            self.outstanding -= 1
        self._forget(entry)
        if self.queue or self.resending:
            self.pump(now)

    def cancel(self, entry: Outgoing) -> None:
        """Take back what could not be stored, if it has not been sent."""
        if entry.packet_id:
            # Only what has to be on disk first has not been sent.
            waits = entry.qos == 2 and entry.first_batch
            if waits and self.inflight.get(entry.packet_id) is entry:
                self._finish(entry, self.shared.now)
        elif entry in self.queue:
            self.queue.remove(entry)
            self._forget(entry)

    def resume(self, link: Receiver, window: int, now: float) -> None:
        """A connection: unacknowledged messages go out again, in their order [MQTT-4.4.0-1]."""
        self.link = link
        self.window = window
        self.outstanding = 0
        self.resending.clear()
        for entry in self.inflight.values():
            if entry.released:
                self.outstanding += 1
                self._release(entry, link)
            else:
                self.resending.append(entry)
        self.pump(now)

    def restore(self, entry: Outgoing) -> None:
        """An entry that was found on disk; they come in the order of their sequence numbers."""
        if entry.packet_id:
            self.inflight[entry.packet_id] = entry
            self.next_packet_id = entry.packet_id % PACKET_ID_MAX + 1
        else:
            self._enqueue(entry)
        self.next_sequence = entry.sequence + 1
        entry.message.references += 1
        size = entry.message.size
        self.queued_bytes += size
        self.shared.gauges.queued_messages += 1
        self.shared.gauges.queued_bytes += size

    def arrive(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        *,
        packet_id: int,
        released: bool,
        sequence: int,
    ) -> None:
        """What came with the session from another broker. No limit keeps it out: it was let in."""
        entry = Outgoing(message, qos, retain, identifiers, sequence)
        self.queued_bytes += message.size
        self.shared.gauges.queued_messages += 1
        self.shared.gauges.queued_bytes += message.size
        if packet_id:
            entry.packet_id = packet_id
            entry.released = released
            self.inflight[packet_id] = entry
        else:
            at = len(self.queue)
            while at and self.queue[at - 1].sequence >= ARRIVED_SEQUENCES:
                at -= 1
            self.queue.insert(at, entry)
            if message.expires_at is not None:
                self.shared.expiring.note(self, message.expires_at)
        if self.persistent:
            entry.first_batch = self.shared.journal.open.number
            self.shared.journal.keep(message)
            self.shared.journal.save_delivery(self.number, sequence, entry.row())
        if self.link is not None:
            self.pump(self.shared.now)

    def requeue(self) -> None:
        """The client does not know of what was under way here: it is sent anew, or it has it."""
        for entry in reversed(list(self.inflight.values())):
            if entry.released:
                self._forget(entry)
                continue
            entry.packet_id = 0
            self.queue.appendleft(entry)
            if entry.first_batch:
                self.shared.journal.save_delivery(self.number, entry.sequence, entry.row())
        self.inflight.clear()
        for packet_id in list(self.incoming):
            self.release_incoming(packet_id)

    def _forget(self, entry: Outgoing) -> None:
        message = entry.message
        size = message.size
        self.queued_bytes -= size
        shared = self.shared
        shared.gauges.queued_messages -= 1
        shared.gauges.queued_bytes -= size
        if entry.first_batch:
            shared.journal.drop_delivery(self.number, entry.sequence, entry.first_batch)
            shared.journal.release(message)

    # In ----------------------------------------------------------------------------------------

    def hold_incoming(self, packet_id: int) -> None:
        """A QoS 2 PUBLISH has come: the same identifier again is the same message."""
        self.is_used()
        self.incoming.add(packet_id)
        if self.expiry_seconds:
            self.shared.journal.save_incoming(self.number, packet_id, held=True)

    def hold(self, packet_id: int, asked: "Asked | None") -> None:
        """The same of one that may not have gone on yet: it is on disk when that is."""
        if asked is None:
            self.hold_incoming(packet_id)
            return
        self.incoming.add(packet_id)
        self.undecided[packet_id] = asked

        def before() -> None:
            if self.undecided.get(packet_id) is asked:
                self.hold_incoming(packet_id)

        def after(_taken: bool) -> None:
            if self.undecided.get(packet_id) is asked:
                del self.undecided[packet_id]

        asked.before = before
        asked.also(after)

    def release_incoming(self, packet_id: int) -> bool:
        """PUBREL; False if the identifier is not known."""
        if packet_id not in self.incoming:
            return False
        self.incoming.remove(packet_id)
        if self.expiry_seconds:
            self.shared.journal.save_incoming(self.number, packet_id, held=False)
        return True

    # On disk -----------------------------------------------------------------------------------

    def is_used(self) -> None:
        """Its client builds on it, so it knows of it."""
        if self.is_news:
            self.is_news = False
            if self.stored:
                self.save()

    def save(self) -> None:
        """A session with nothing to keep has no row."""
        if not self.persistent:
            self._keep_in_memory_only()
        if not (self.persistent or self.will):
            if self.stored:
                self.stored = False
                self.shared.journal.drop_session(self.number)
            return
        self.stored = True
        self.was_kept = self.was_kept or self.persistent
        self.shared.journal.save_session(
            self.number,
            SessionRow(
                self.client_id,
                self.expiry_seconds,
                self.ended_at,
                self.user,
                None if self.will is None else self.shared.encode_will(self.will),
                stamp_to_row(self.stamp, is_news=self.is_news),
                b"" if self.detour is None else self.detour.row(),
                self.void_before,
            ),
        )

    def _keep_in_memory_only(self) -> None:
        """A kept session that will end with its connection: nothing of it waits for the disk."""
        journal = self.shared.journal
        for entry in (*self.inflight.values(), *self.queue):
            if entry.first_batch:
                journal.drop_delivery(self.number, entry.sequence, entry.first_batch)
                journal.release(entry.message)
                entry.first_batch = 0

    def shares(self) -> list[Outgoing]:
        """What groups picked this session for, and may give to another: it has not got it.

        QoS 2 that is under way is nobody else's [MQTT-4.8.2-5].
        """
        return [
            entry
            for entry in (*self.inflight.values(), *self.queue)
            if entry.group is not None and not (entry.packet_id and entry.qos == 2)
        ]

    def empty(self, but: Collection[Outgoing] = ()) -> None:
        """Everything that it held is given back, but some of what waits."""
        kept = set(but)
        for entry in (*self.inflight.values(), *self.queue):
            if entry not in kept:
                self._forget(entry)
        self.inflight.clear()
        self.light.clear()
        self.queue = deque(but)
        self.resending.clear()
        self.undecided.clear()
        for packet_id in list(self.incoming):
            self.release_incoming(packet_id)
        self.shared.expiring.forget(self)

    def discard(self) -> None:
        """The end of the session."""
        self.empty()
        if self.stored:
            self.stored = False
            self.shared.journal.drop_session(self.number)


def stamp_to_row(stamp: int, *, is_news: bool) -> int:
    """Stamps are -1 at least; the rest of the numbers is for sessions that are news."""
    return -2 - stamp if is_news else stamp


def stamp_from_row(row: int) -> tuple[int, bool]:
    """The stamp, and whether the session is news to its client."""
    return (-2 - row, True) if row < -1 else (row, False)
