"""Delivers publications to sessions of this broker: the last step of dispatch. Pure.

A session gets a publication at the lower of both QoS: at QoS 0 straight into its link, at QoS 1 and
2 through its queue and window (session_sender.py). A congested link gets no more at QoS 0. Of a
group one member gets it.
"""

from collections.abc import Iterable

from dovetail.broker.delivery import Delivery
from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.route import Group
from dovetail.broker.session import Session
from dovetail.broker.shared_state import GROUP_SOURCE, SharedState
from dovetail.codec.run import Published, Run, packets_of, rewritten
from dovetail.messages import Message

OutgoingMessages = list[tuple[Session, OutgoingMessage]]
"""The QoS 1 and 2 deliveries that a publication began."""


class LocalDelivery:
    """The way from one broker's dispatch to its sessions."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._counters = shared.counters
        self._backlog_bytes_max = shared.limits.backlog_bytes_max

    def send_run(self, deliveries: Iterable[Delivery], run: Run) -> bool:
        """Send a run at QoS 0. Return True if some receivers needed each packet by itself."""
        counters = self._counters
        backlog_bytes_max = self._backlog_bytes_max
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
            if link.unsent > backlog_bytes_max and not link.flush_backlog():
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
            or (link.unsent > self._backlog_bytes_max and not link.flush_backlog())
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


def message_of(part: Published, client_id: str = "") -> Message:
    """Return a packet of a run at QoS 0 as a message."""
    return Message(part.topic, part.payload, properties=part.properties, origin=client_id)
