"""Delivers publications to sessions of this broker: the last step of dispatch. Pure.

A session gets a publication at the lower of both QoS: at QoS 0 straight into its link, at QoS 1 and
2 through its queue and window (session_sender.py). A link whose backlog is full gets no more at QoS
0 (back_pressure.py says what comes before that). Of a group one member gets it.

A session gets its part of a run as a whole: the bytes as they came, or as a kernel writes them for
it. If it cannot take that, it gets the messages one by one, and no other session is concerned.
"""

from collections.abc import Iterable

from dovetail.broker.delivery import Delivery, Share
from dovetail.broker.limits import RUN_DELIVERIES_PER_EFFORT
from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.outgoing_run import OutgoingRun, StoredRun
from dovetail.broker.route import Group
from dovetail.broker.session import Session
from dovetail.broker.shared_state import GROUP_SOURCE, SharedState
from dovetail.codec.run import (
    Numbers,
    Published,
    Run,
    packets_of,
    rewritten,
    rewritten_rows,
)
from dovetail.messages import Message

OutgoingMessages = list[tuple[Session, OutgoingMessage]]
"""The QoS 1 and 2 deliveries that a publication began."""

LocalEntry = tuple[Session, OutgoingMessage | OutgoingRun]
"""One of them, or a part of a run for a persistent session."""


class LocalDelivery:
    """The way from one broker's dispatch to its sessions."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._counters = shared.counters
        self._congestion_bytes = shared.limits.backlog_bytes_max // 2

    def send_run(self, deliveries: Iterable[Delivery], run: Run) -> bool:
        """Send a run at QoS 0. Return True if some receivers needed each packet by itself."""
        counters = self._counters
        congestion_bytes = self._congestion_bytes
        data, version, _, count, _ = run
        size = len(data)
        sent = 0
        other_data: bytes | None = None
        each: list[Delivery] | None = None
        for delivery in deliveries:
            link = delivery.session.link
            if link is None and not delivery.session.is_handle:
                counters.publishes_dropped += count
                continue
            if link is None or not (delivery.plain and link.plain):
                if each is None:
                    each = []
                each.append(delivery)
                continue
            if link.unsent > congestion_bytes and not link.has_room():
                counters.publishes_dropped += count
                continue
            sent += 1
            if link.version == version:
                link.send(data)
            else:
                if other_data is None:
                    other_data = rewritten(run, link.version, 0)
                link.send(other_data)
        counters.publishes_sent += count * sent
        counters.packets_sent += (count - 1) * sent  # the shell counts pieces
        counters.publish_bytes_sent += size * sent
        if each is None:
            return False
        self._send_each(each, run)
        return True

    def _send_each(self, deliveries: list[Delivery], run: Run) -> None:
        for part in packets_of(run):
            message = message_of(part)
            for delivery in deliveries:
                self.deliver(delivery, message, False, [])

    def send_shares(
        self, shares: Iterable[Share], stored: StoredRun, entries: list[LocalEntry]
    ) -> int:
        """Send to each session what it gets of a run, and return the effort.

        Add to `entries` what persistent sessions get: it has to be on disk.
        """
        run = stored.run
        size = len(run.data)
        congestion_bytes = self._congestion_bytes
        whole: dict[int, bytes] = {}  # the run at QoS 0, by version
        deliveries = effort = 0
        for share in shares:
            session, qos, rows, identifiers = share
            count = run.packets if rows is None else len(rows)
            if identifiers or not session.takes_run(count, size, qos, congestion_bytes):
                self._send_messages(share, stored, entries)
                effort += count
                continue
            deliveries += count
            if qos and session.expiry_seconds:
                entries.append((session, _offer(session, stored, rows)))
                continue
            link = session.link
            if link is None or (not qos and link.unsent > congestion_bytes and not link.has_room()):
                self._counters.publishes_dropped += count
                continue
            first_id = session.light_ids(count) if qos else 0
            if rows is not None:
                data = rewritten_rows(run, stored.starts, rows, link.version, qos, first_id)
            elif qos:
                data = rewritten(run, link.version, qos, first_id)
            else:
                if link.version not in whole:
                    whole[link.version] = rewritten(run, link.version, 0)
                data = whole[link.version]
            link.send_packets(data, count)
        return effort + deliveries // RUN_DELIVERIES_PER_EFFORT

    def _send_messages(self, share: Share, stored: StoredRun, entries: list[LocalEntry]) -> None:
        delivery = Delivery(share.session, share.qos, False, share.identifiers)
        for row in range(stored.packets) if share.rows is None else share.rows.tolist():
            messages: OutgoingMessages = []
            self.deliver(delivery, stored.message(row), False, messages)
            entries += messages

    def deliver(
        self, delivery: Delivery, message: Message, retain: bool, entries: OutgoingMessages
    ) -> None:
        """Deliver a message to one session, at the lower of both QoS [MQTT-3.8.4-8]."""
        session = delivery.session
        qos = min(message.qos, delivery.qos) or int(session.is_handle)
        if qos:
            entry = session.offer(message, qos, retain, delivery.identifiers)
            if entry is not None:
                entries.append((session, entry))
            return
        link = session.link
        if (
            link is None
            or (link.unsent > self._congestion_bytes and not link.has_room())
            or not link.send_publish(message, 0, retain, 0, delivery.identifiers, False)
        ):
            self._counters.publishes_dropped += 1

    def share(self, group: Group, message: Message, entries: OutgoingMessages) -> bool:
        """Deliver to one local member of a group (section 4.8.2). Return False if there is none."""
        member = group.pick(message.qos)
        if member is None:
            return False
        chosen = Delivery.of(member.session, (member,))
        known = len(entries)
        source, self._shared.source = self._shared.source, GROUP_SOURCE
        self.deliver(chosen, message, message.retain and chosen.retain_as_published, entries)
        self._shared.source = source
        for _, entry in entries[known:]:
            entry.group = group
        return True


def _offer(session: Session, stored: StoredRun, rows: Numbers | None) -> OutgoingRun:
    """Queue a run. If it has much that the session does not get, only what it gets is stored."""
    if rows is not None and len(rows) < stored.packets // 2:
        return session.offer_run(stored.narrowed(rows), None)
    return session.offer_run(stored, rows)


def message_of(part: Published, client_id: str = "") -> Message:
    """Return a packet of a run at QoS 0 as a message."""
    return Message(part.topic, part.payload, properties=part.properties, origin=client_id)
