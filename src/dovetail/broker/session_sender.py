"""The outgoing half of a session: QoS 1 and 2 from the server to its client. Pure.

A message goes through three states:

    queue     it waits for a packet identifier: the window is full, or no client is connected
    inflight  it has an identifier; PUBLISH is sent or waits for the journal, or PUBREL is sent
    gone      it is acknowledged

    offer -> queue -> [window] -> PUBLISH -> PUBACK  -> gone        QoS 1
                                  PUBLISH -> PUBREC -> PUBREL -> PUBCOMP -> gone    QoS 2

An acknowledgement that is not the next one of its exchange ends the connection; a PUBREC may be
repeated. An acknowledgement of an identifier that the client cannot know changes nothing.

A session that ends with its connection never sends a message twice. So if it can send a message at
once, it keeps only the packet identifier and the state of the exchange (`light`).

Rules for persistent sessions:
- A QoS 2 PUBLISH goes out only when its packet identifier is on disk, and PUBREL only when the
  PUBREC is. Otherwise the broker could send the message again after a restart.
- An acknowledged message is deleted without waiting for the disk. At worst it is sent once more.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.broker.limits import REVIEWED_PER_PIECE
from dovetail.broker.outgoing_message import (
    ARRIVED_SEQUENCES,
    OutgoingMessage,
    SessionRedirect,
    SubscriberLink,
)
from dovetail.codec import encode_ack
from dovetail.codec.packets import PacketType
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.slices import Work

if TYPE_CHECKING:
    from dovetail.broker.shared_state import SharedState

PACKET_ID_MAX = 65_535

_FAILURE = 0x80  # reason codes from here on are refusals
_PUBREL = b"\x62\x02"
# The acknowledgement that a light exchange waits for. The first two values are its QoS.
_LIGHT_PUBACK, _LIGHT_PUBREC, _LIGHT_PUBCOMP = 1, 2, 3
_AWAITED = {
    _LIGHT_PUBACK: PacketType.PUBACK,
    _LIGHT_PUBREC: PacketType.PUBREC,
    _LIGHT_PUBCOMP: PacketType.PUBCOMP,
}


class SessionSender:
    """The base class of `Session` (session.py): queue, window and messages in flight.

    It is a base class, because a separate object would cost time for every message.
    """

    __slots__ = (
        "expiry_seconds",
        "has_ended",
        "inflight",
        "light",
        "link",
        "next_packet_id",
        "next_sequence",
        "number",
        "outstanding",
        "queue",
        "queued_bytes",
        "redirect",
        "resending",
        "shared",
        "window",
    )

    def __init__(self, shared: "SharedState", number: int) -> None:
        self.shared = shared
        self.number = number
        self.expiry_seconds = 0
        self.has_ended = False  # it has ended and receives nothing
        self.redirect: SessionRedirect | None = None
        self.link: SubscriberLink | None = None
        self.queue: deque[OutgoingMessage] = deque()
        self.inflight: dict[int, OutgoingMessage] = {}
        self.light: dict[int, int] = {}  # packet identifier -> the acknowledgement awaited
        self.resending: deque[OutgoingMessage] = deque()
        self.outstanding = 0  # sent over this connection, and not acknowledged
        self.window = 0
        self.queued_bytes = 0
        self.next_packet_id = 1
        self.next_sequence = 1

    def _offer(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> OutgoingMessage | None:
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
            if shared.message_expiry.drop(self, shared.now):
                return self._offer(message, qos, retain, identifiers)
            shared.counters.publishes_dropped += 1
            return None
        entry = OutgoingMessage(message, qos, retain, identifiers, self.next_sequence)
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
            and not (self.redirect is not None and self.redirect.holds)
        ):
            self._start(entry, link)
        else:
            if persistent:
                shared.journal.save_delivery(self.number, entry.sequence, entry.row())
            self._enqueue(entry)
        return entry

    def _enqueue(self, entry: OutgoingMessage) -> None:
        self.queue.append(entry)
        if entry.message.expires_at is not None:
            self.shared.message_expiry.note(self, entry.message.expires_at)

    def _start(self, entry: OutgoingMessage, link: SubscriberLink) -> None:
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
                journal.when_stored(self._send_when_stored(entry, link))
                return
        self._send(entry, link)

    def _send_when_stored(
        self, entry: OutgoingMessage, link: SubscriberLink
    ) -> Callable[[bool], None]:
        """Return a callback that sends a QoS 2 message when its identifier is on disk."""

        def send(stored: bool) -> None:
            # If the connection has changed since, the new one sends the message.
            if self.link is not link or self.inflight.get(entry.packet_id) is not entry:
                return
            if not stored:
                self.shared.journal.wait_on(send)
            elif not entry.released:
                self._send(entry, link)
                if self.queue or self.resending:
                    self.pump(self.shared.now)

        return send

    def _send(self, entry: OutgoingMessage, link: SubscriberLink) -> None:
        again = entry.sent  # [MQTT-3.3.1-1]
        entry.sent = True
        if not link.send_publish(
            entry.message, entry.qos, entry.retain, entry.packet_id, entry.identifiers, again
        ):
            # Too large for this client: it counts as delivered [MQTT-3.1.2-25].
            self.shared.counters.publishes_dropped += 1
            self._forget(self.inflight.pop(entry.packet_id))
            self.outstanding -= 1

    def pump(self, now: float) -> None:
        """Send queued messages while the window has room."""
        link = self.link
        if link is None:
            return
        while self.outstanding < self.window and not link.congested:
            if self.resending:
                entry = self.resending.popleft()
                if self.inflight.get(entry.packet_id) is not entry:
                    continue
                self.outstanding += 1
                if entry.qos == 2 and entry.first_batch:
                    self.shared.journal.when_stored(self._send_when_stored(entry, link))
                else:
                    self._send(entry, link)
            elif self.queue:
                if (
                    self.redirect is not None
                    and self.redirect.holds
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
        """Drop expired messages from the queue. Return the next expiry time, if any."""
        expires_next: float | None = None
        kept: deque[OutgoingMessage] = deque()
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

    def drop_queued(self, is_unwanted: Callable[[Message], bool]) -> Work:
        """Drop unwanted messages from the queue, in pieces."""
        found: set[OutgoingMessage] = set()
        for place, entry in enumerate([*self.queue], 1):
            if is_unwanted(entry.message):
                found.add(entry)
            if not place % REVIEWED_PER_PIECE:
                yield
        # Some may have been sent meanwhile, and are in flight.
        unwanted = [entry for entry in self.queue if entry in found] if found else []
        if unwanted:
            self.queue = deque(entry for entry in self.queue if entry not in found)
            self.shared.counters.publishes_dropped += len(unwanted)
        for place, entry in enumerate(unwanted, 1):
            self._forget(entry)
            if not place % REVIEWED_PER_PIECE:
                yield

    def can_pass_on(self, version: int, congestion_bytes: int) -> bool:
        """Can a plain packet be passed on at once, with only its identifier kept?"""
        link = self.link
        return (
            link is not None
            and self.outstanding < self.window
            and not self.queue
            and not self.expiry_seconds
            and self.redirect is None
            and link.plain
            and link.version == version
            and link.unsent <= congestion_bytes
            and not link.congested
        )

    def pass_on(self, head: bytes, tail: bytes, qos: int) -> None:
        """Send a packet that `can_pass_on` accepted, with a new packet identifier."""
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

    def handle_puback(self, packet_id: int, now: float) -> bool:
        """Handle PUBACK. Return False if the packet identifier is unknown."""
        if self.light.get(packet_id) == _LIGHT_PUBACK:
            self._finish_light(packet_id, now)
            return True
        entry = self.inflight.get(packet_id)
        if entry is None or entry.qos != 1:
            self._refuse_unexpected(PacketType.PUBACK, packet_id)
            return False
        self._finish(entry, now)
        return True

    def handle_pubrec(self, packet_id: int, reason: int, now: float) -> None:
        """Handle PUBREC: answer with PUBREL, unless it has a failure code."""
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
        if entry is None or entry.qos != 2 or not entry.sent:
            self._refuse_unexpected(PacketType.PUBREC, packet_id)
            # [MQTT-4.3.3-4] is about messages we sent; this one is unknown.
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
        if self.resending and entry in self.resending:  # sent over an earlier connection
            self.resending.remove(entry)
            self.outstanding += 1
        entry.released = True
        if entry.first_batch:
            self.shared.journal.save_delivery(self.number, entry.sequence, entry.row())
        self._release(entry, link)

    def _release(self, entry: OutgoingMessage, link: SubscriberLink) -> None:
        """Send PUBREL when the PUBREC is on disk."""
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

    def handle_pubcomp(self, packet_id: int, now: float) -> None:
        """Handle PUBCOMP."""
        if self.light.get(packet_id) == _LIGHT_PUBCOMP:
            self._finish_light(packet_id, now)
            return
        entry = self.inflight.get(packet_id)
        if entry is not None and entry.released:
            self._finish(entry, now)
        else:
            self._refuse_unexpected(PacketType.PUBCOMP, packet_id)

    def _refuse_unexpected(self, kind: PacketType, packet_id: int) -> None:
        """Raise ClientError if this message awaits another acknowledgement [MQTT-4.13.1-1].

        Otherwise it would occupy the window until the connection ends.
        """
        awaited = self.light.get(packet_id)
        entry = self.inflight.get(packet_id)
        if entry is not None and entry.sent:
            awaited = _LIGHT_PUBCOMP if entry.released else entry.qos
        if awaited is not None:
            raise ClientError(
                ReasonCode.PROTOCOL_ERROR,
                f"{kind.name} for packet identifier {packet_id}, "
                f"which waits for {_AWAITED[awaited].name}",
            )

    def _finish(self, entry: OutgoingMessage, now: float) -> None:
        """Forget an acknowledged message, and send the next one."""
        del self.inflight[entry.packet_id]
        if self.resending and entry in self.resending:
            self.resending.remove(entry)
        else:
            self.outstanding -= 1
        self._forget(entry)
        if self.queue or self.resending:
            self.pump(now)

    def cancel(self, entry: OutgoingMessage) -> None:
        """Cancel a message that could not be stored, if it has not been sent."""
        if entry.packet_id:
            if not entry.sent and self.inflight.get(entry.packet_id) is entry:
                self._finish(entry, self.shared.now)
        elif entry in self.queue:
            self.queue.remove(entry)
            self._forget(entry)

    def resume(self, link: SubscriberLink, window: int, now: float) -> None:
        """Begin on a new connection: resend unacknowledged messages in order [MQTT-4.4.0-1]."""
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

    def _forget(self, entry: OutgoingMessage) -> None:
        message = entry.message
        size = message.size
        self.queued_bytes -= size
        shared = self.shared
        shared.gauges.queued_messages -= 1
        shared.gauges.queued_bytes -= size
        if entry.first_batch:
            if not self.has_ended:  # otherwise its row goes with the session's
                shared.journal.drop_delivery(self.number, entry.sequence, entry.first_batch)
            shared.journal.release(message)
