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

from dovetail.broker.outgoing_message import (
    ARRIVED_SEQUENCES,
    OutgoingMessage,
    SessionRedirect,
    SubscriberLink,
)
from dovetail.broker.outgoing_queue import OutgoingQueue
from dovetail.broker.outgoing_run import OutgoingRun, StoredRun
from dovetail.codec import encode_ack
from dovetail.codec.packets import PacketType
from dovetail.codec.run import Numbers
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
        "_inflight",
        "expiry_seconds",
        "has_ended",
        "is_handle",
        "light",
        "link",
        "next_packet_id",
        "next_sequence",
        "number",
        "outstanding",
        "queue",
        "redirect",
        "resending",
        "runs_sent",
        "shared",
        "window",
    )

    def __init__(self, shared: "SharedState", number: int) -> None:
        self.shared = shared
        self.number = number
        self.expiry_seconds = 0
        self.is_handle = False  # it queues QoS 0 messages too
        self.has_ended = False  # it has ended and receives nothing
        self.redirect: SessionRedirect | None = None
        self.link: SubscriberLink | None = None
        self.queue = OutgoingQueue(shared, number)
        self._inflight: dict[int, OutgoingMessage] = {}
        self.light: dict[int, int | OutgoingRun] = {}
        """By packet identifier, the acknowledgement awaited, or the run with the message."""
        self.runs_sent: dict[OutgoingRun, None] = {}
        self.resending: deque[OutgoingMessage] = deque()
        self.outstanding = 0  # sent over this connection, and not acknowledged
        self.window = 0
        self.next_packet_id = 1
        self.next_sequence = 1

    # Runs ---------------------------------------------------------------------------------------

    @property
    def inflight(self) -> dict[int, OutgoingMessage]:
        """The messages in flight, by packet identifier. Runs are taken apart for it."""
        if self.runs_sent:
            self.take_apart()
        return self._inflight

    def take_apart(self) -> None:
        """Take the runs in flight apart, for the next connection to send single messages again."""
        if self.runs_sent:
            for run in [*self.runs_sent]:
                self._take_apart_sent(run)
            by_sequence = sorted(self._inflight.values(), key=_sequence_of)
            self._inflight = {entry.packet_id: entry for entry in by_sequence}

    @property
    def pending(self) -> int:
        """The number of messages that are queued or in flight."""
        return self.queue.count + len(self._inflight) + len(self.light)

    def _take_apart_sent(self, run: OutgoingRun) -> None:
        light = self.light
        entries = []
        for number, message in enumerate(run.messages()):
            packet_id = run.first_id + number
            if light.get(packet_id) is not run:
                continue
            del light[packet_id]
            # After a restart nobody knows what was acknowledged of a run. An identifier that
            # another message has was: it was free again.
            if packet_id not in self._inflight:
                entry = OutgoingMessage(message, 1, False, (), run.sequence + number)
                entry.packet_id = packet_id
                entry.sent = True
                self._inflight[packet_id] = entry
                entries.append(entry)
        del self.runs_sent[run]
        self.queue.replace(run, entries)

    def _forget_runs(self) -> None:
        """Forget all runs, and do not take them apart first."""
        for run in self.runs_sent:
            for packet_id in range(run.first_id, run.first_id + run.count):
                if self.light.get(packet_id) is run:
                    del self.light[packet_id]
            self.queue.forget_run(run)
        self.runs_sent.clear()
        self.queue.forget_runs()

    def offer_run(self, stored: StoredRun, rows: Numbers | None) -> OutgoingRun:
        """Send or queue a run that `takes_run` accepted for a persistent session."""
        count = stored.run.packets if rows is None else len(rows)
        run = OutgoingRun(stored, rows, 0, count, self.next_sequence)
        self.next_sequence += count
        self.queue.add_run(run)
        self.queue.append_run(run)
        self.pump(self.shared.now)
        return run

    def restore_run(self, run: OutgoingRun) -> None:
        """Take back a run from disk, in the order of sequences."""
        self.next_sequence = run.sequence + run.count
        run.stored.references += 1
        self.queue.count_in(run.size, run.count)
        if not run.first_id:
            self.queue.append_run(run)
            return
        ids = range(run.first_id, run.first_id + run.count)
        self.light.update(dict.fromkeys(ids, run))
        self.runs_sent[run] = None
        self.next_packet_id = ids[-1] % PACKET_ID_MAX + 1

    def cancel_run(self, run: OutgoingRun) -> None:
        """Cancel a run that could not be stored, as far as it has not been sent."""
        piece: OutgoingRun | None = run
        while piece is not None:
            for entry in piece.entries:
                self.cancel(entry)
            if not piece.first_id and piece in self.queue.waiting:
                self.queue.remove_run(piece)
            piece = piece.rest

    def _send_run(self, run: OutgoingRun, link: SubscriberLink) -> bool:
        """Send what fits of the first run in the queue. Return False if that is impossible."""
        ids = self._free_ids(min(run.count, self.window - self.outstanding))
        if not link.plain or not ids:
            return False
        self.queue.pop_run()
        if len(ids) < run.count:
            self.queue.put_back(run.split(len(ids)))
        run.first_id = ids[0]
        self.light.update(dict.fromkeys(ids, run))
        self.next_packet_id = ids[-1] % PACKET_ID_MAX + 1
        self.outstanding += run.count
        self.runs_sent[run] = None
        self.queue.save_run(run)
        link.send_packets(run.encoded(link.version), run.count)
        return True

    def _acknowledge_of_run(self, packet_id: int, run: OutgoingRun) -> None:
        del self.light[packet_id]
        self.outstanding -= 1
        run.unacknowledged -= 1
        self.shared.gauges.queued_messages -= 1
        if not run.unacknowledged:
            del self.runs_sent[run]
            self.queue.forget_run(run)

    # Single messages ------------------------------------------------------------------------------

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
            self.pending >= limits.queue_messages_max
            or self.queue.nbytes + size > limits.queue_bytes_max
            or shared.gauges.queued_bytes + size > limits.queued_bytes_total_max
        ):
            if shared.message_expiry.drop(self.queue, shared.now):
                return self._offer(message, qos, retain, identifiers)
            shared.counters.publishes_dropped += 1
            return None
        entry = OutgoingMessage(message, qos, retain, identifiers, self.next_sequence)
        self.next_sequence += 1
        queue = self.queue
        queue.add(entry, persistent=self.expiry_seconds > 0)
        if (
            link is not None
            and self.outstanding < self.window
            and not queue.waiting
            and not self.resending
            and not link.congested
            and not (self.redirect is not None and self.redirect.holds)
        ):
            self._start(entry, link)
        else:
            queue.save(entry)
            queue.append(entry)
        return entry

    def _start(self, entry: OutgoingMessage, link: SubscriberLink) -> None:
        packet_id = self.next_packet_id
        inflight = self._inflight
        while packet_id in inflight or packet_id in self.light:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self.next_packet_id = packet_id % PACKET_ID_MAX + 1
        entry.packet_id = packet_id
        inflight[packet_id] = entry
        self.outstanding += 1
        self.queue.save(entry)
        if entry.first_batch and entry.qos == 2:
            self.shared.journal.when_stored(self._send_when_stored(entry, link))
        else:
            self._send(entry, link)

    def _send_when_stored(
        self, entry: OutgoingMessage, link: SubscriberLink
    ) -> Callable[[bool], None]:
        """Return a callback that sends a QoS 2 message when its identifier is on disk."""

        def send(stored: bool) -> None:
            # If the connection has changed since, the new one sends the message.
            if self.link is not link or self._inflight.get(entry.packet_id) is not entry:
                return
            if not stored:
                self.shared.journal.wait_on(send)
            elif not entry.released:
                self._send(entry, link)
                self._go_on(self.shared.now)

        return send

    def _send(self, entry: OutgoingMessage, link: SubscriberLink) -> None:
        again = entry.sent  # [MQTT-3.3.1-1]
        entry.sent = True
        if not link.send_publish(
            entry.message, entry.qos, entry.retain, entry.packet_id, entry.identifiers, again
        ):
            # Too large for this client: it counts as delivered [MQTT-3.1.2-25].
            self.shared.counters.publishes_dropped += 1
            self.queue.forget(self._inflight.pop(entry.packet_id))
            self.outstanding -= 1

    def pump(self, now: float) -> None:
        """Send queued messages while the window has room."""
        link = self.link
        if link is None:
            return
        while self.outstanding < self.window and not link.congested:
            if self.resending:
                entry = self.resending.popleft()
                if self._inflight.get(entry.packet_id) is not entry:
                    continue
                self.outstanding += 1
                if entry.qos == 2 and entry.first_batch:
                    self.shared.journal.when_stored(self._send_when_stored(entry, link))
                else:
                    self._send(entry, link)
            elif not (waiting := self.queue.waiting) or not self._send_first(waiting[0], link, now):
                return

    def _send_first(
        self, entry: OutgoingMessage | OutgoingRun, link: SubscriberLink, now: float
    ) -> bool:
        """Send the first message or run of the queue. Return False if it has to wait."""
        if (
            self.redirect is not None
            and self.redirect.holds
            and entry.sequence >= ARRIVED_SEQUENCES
        ):
            return False
        if isinstance(entry, OutgoingRun):
            if self.redirect is not None or not self._send_run(entry, link):
                self.queue.take_first_apart()
            return True
        self.queue.waiting.popleft()
        expires_at = entry.message.expires_at
        if expires_at is not None and expires_at <= now:  # [MQTT-3.3.2-5]
            self.shared.counters.publishes_expired += 1
            self.queue.forget(entry)
        else:
            self._start(entry, link)
        return True

    def _go_on(self, now: float) -> None:
        if self.queue.waiting or self.resending:
            self.pump(now)

    def drop_queued(self, is_unwanted: Callable[[Message], bool]) -> Work:
        """Drop unwanted messages from the queue, in pieces."""
        return self.queue.drop_unwanted(is_unwanted, self.next_sequence)

    def can_pass_on(self, version: int, congestion_bytes: int) -> bool:
        """Can a plain packet be passed on at once, with only its identifier kept?"""
        link = self.link
        return (
            link is not None
            and self.outstanding < self.window
            and not self.queue.waiting
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
        while packet_id in light or packet_id in self._inflight:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self.next_packet_id = packet_id % PACKET_ID_MAX + 1
        light[packet_id] = qos
        self.outstanding += 1
        link = self.link
        assert link is not None
        link.send(head + packet_id.to_bytes(2) + tail)

    def takes_run(self, count: int, size: int, qos: int, congestion_bytes: int) -> bool:
        """Can so many plain packets be passed on at once, at this QoS (0 or 1)?"""
        link = self.link
        if not qos:
            return not self.is_handle if link is None else link.plain
        if self.expiry_seconds:
            return self._can_store(count, size)
        return (
            link is not None
            and link.plain
            and link.unsent <= congestion_bytes
            and not link.congested
            and self.outstanding + count <= self.window
            and not self.queue.waiting
            and self.redirect is None
            and bool(self._free_ids(count))
        )

    def _can_store(self, count: int, size: int) -> bool:
        """Has a persistent session room for a run? Otherwise each message needs a decision."""
        shared = self.shared
        limits = shared.limits
        return (
            not (self.is_handle or self.has_ended)
            and self.redirect is None
            and not shared.journal.refuses_more
            and self.pending + count <= limits.queue_messages_max
            and self.queue.nbytes + size <= limits.queue_bytes_max
            and shared.gauges.queued_bytes + size <= limits.queued_bytes_total_max
        )

    def _free_ids(self, count: int) -> range:
        """Return the next packet identifiers in a row, or none if some of them are in use."""
        first = self.next_packet_id
        if first + count > PACKET_ID_MAX:
            first = 1
        ids = range(first, first + count)
        for used in (self.light, self._inflight):
            if used and not used.keys().isdisjoint(ids):
                return range(0)
        return ids

    def light_ids(self, count: int) -> int:
        """Take packet identifiers for a run that `takes_run` accepted. Return the first."""
        ids = self._free_ids(count)
        self.next_packet_id = ids[-1] % PACKET_ID_MAX + 1
        self.light.update(dict.fromkeys(ids, _LIGHT_PUBACK))
        self.outstanding += count
        return ids[0]

    def _finish_light(self, packet_id: int, now: float) -> None:
        del self.light[packet_id]
        self.outstanding -= 1
        self._go_on(now)

    def handle_puback(self, packet_id: int, now: float) -> bool:
        """Handle PUBACK. Return False if the packet identifier is unknown."""
        awaited = self.light.get(packet_id)
        if awaited == _LIGHT_PUBACK:
            self._finish_light(packet_id, now)
            return True
        if isinstance(awaited, OutgoingRun):
            self._acknowledge_of_run(packet_id, awaited)
            self._go_on(now)
            return True
        entry = self._inflight.get(packet_id)
        if entry is None or entry.qos != 1:
            self._refuse_unexpected(PacketType.PUBACK, packet_id)
            return False
        self._finish(entry, now)
        return True

    def handle_pubacks(self, packet_ids: list[int], now: float) -> None:
        """Handle a run of PUBACKs."""
        light = self.light
        done = 0
        for packet_id in packet_ids:
            awaited = light.get(packet_id)
            if awaited == _LIGHT_PUBACK:
                del light[packet_id]
                done += 1
            elif isinstance(awaited, OutgoingRun):
                self._acknowledge_of_run(packet_id, awaited)
            else:
                self.outstanding -= done
                done = 0
                self.handle_puback(packet_id, now)
        self.outstanding -= done
        self._go_on(now)

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
        entry = self._inflight.get(packet_id)
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
        self.queue.save(entry)
        self._release(entry, link)

    def _release(self, entry: OutgoingMessage, link: SubscriberLink) -> None:
        """Send PUBREL when the PUBREC is on disk."""
        data = encode_ack(link.version, PacketType.PUBREL, entry.packet_id)
        if not entry.first_batch:
            link.send(data)
            return
        journal = self.shared.journal

        def send(stored: bool) -> None:
            if self.link is link and self._inflight.get(entry.packet_id) is entry:
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
        entry = self._inflight.get(packet_id)
        if entry is not None and entry.released:
            self._finish(entry, now)
        else:
            self._refuse_unexpected(PacketType.PUBCOMP, packet_id)

    def _refuse_unexpected(self, kind: PacketType, packet_id: int) -> None:
        """Raise ClientError if this message awaits another acknowledgement [MQTT-4.13.1-1].

        Otherwise it would occupy the window until the connection ends.
        """
        awaited = self.light.get(packet_id)
        if isinstance(awaited, OutgoingRun):
            awaited = _LIGHT_PUBACK
        entry = self._inflight.get(packet_id)
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
        del self._inflight[entry.packet_id]
        if self.resending and entry in self.resending:
            self.resending.remove(entry)
        else:
            self.outstanding -= 1
        self.queue.forget(entry)
        self._go_on(now)

    def cancel(self, entry: OutgoingMessage) -> None:
        """Cancel a message that could not be stored, if it has not been sent."""
        if entry.packet_id:
            if not entry.sent and self._inflight.get(entry.packet_id) is entry:
                self._finish(entry, self.shared.now)
        elif entry in self.queue.waiting:
            self.queue.waiting.remove(entry)
            self.queue.forget(entry)

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


def _sequence_of(entry: OutgoingMessage) -> int:
    return entry.sequence
