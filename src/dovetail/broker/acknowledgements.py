"""Acknowledges the publications of a client, in their order. Pure.

    PUBLISH, QoS 1 -> (disk, other brokers) -> PUBACK
    PUBLISH, QoS 2 -> (disk, other brokers) -> PUBREC;  PUBREL -> (disk) -> PUBCOMP

An acknowledgement goes out when the publication is on disk, if a persistent session needs it, and
when every other broker that needs it has it. Neighbours that wait for the same batch of the journal
wait together. If the disk refuses it, the deliveries are cancelled and the client gets an error.

This module counts the publications in flight, and sends through the client's link. It does not know
where a publication goes (intake.py does).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dovetail import codec
from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.local_delivery import OutgoingMessages
from dovetail.broker.outgoing_run import OutgoingRun
from dovetail.broker.pending_publication import PendingPublication
from dovetail.broker.run_dispatch import RunOutcome
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, PacketType
from dovetail.codec.run import packet_ids_of, pubacks_of
from dovetail.errors import ClientError, ReasonCode

if TYPE_CHECKING:
    from dovetail.broker.peering.tickets import Ticket

_ACK_HEADS = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBCOMP: b"\x70\x02",
}
_NOT_STORED = "what cannot be stored is not acknowledged"
_FAILURE = 0x80


class _Answered(NamedTuple):
    """A packet that waits for its acknowledgement."""

    answer: PacketType
    packet_id: int
    entries: OutgoingMessages | None
    """The deliveries that end if the packet cannot be stored."""


class _PendingAcknowledgement:
    """Pending PUBACKs, PUBRECs or PUBCOMPs that wait for the same. `waiting` counts for how much.

    They may also be the PUBACKs of a run, which only wait for earlier ones.
    """

    __slots__ = ("answered", "batch", "data", "ends", "packets", "waiting")

    def __init__(self, waiting: int, batch: int = 0) -> None:
        self.waiting = waiting
        self.batch = batch
        """The batch of the journal that they wait for, if they wait for nothing else."""
        self.data: bytes | bytearray | None = None
        """The encoded packets; None if none is to be sent any more."""
        self.packets = 0
        """The number of packets in `data`."""
        self.ends = 0
        """The number of publications that stop counting against the client's window."""
        self.answered: list[_Answered] = []

    def add(self, answered: _Answered, data: bytes, ends: int) -> None:
        if self.data is None:
            self.data = data
        else:
            if isinstance(self.data, bytes):
                self.data = bytearray(self.data)
            self.data += data
        self.answered.append(answered)
        self.packets += 1
        self.ends += ends


class Acknowledgements:
    """What one client still waits for."""

    __slots__ = ("_link", "_pending", "_shared", "receiving")

    def __init__(self, shared: SharedState, link: ClientLink) -> None:
        self._shared = shared
        self._link = link
        # An empty deque would be ten times as large.
        self._pending: list[_PendingAcknowledgement] = []
        self.receiving = 0
        """The client's publications at QoS 1 and 2 that are in flight."""

    def begin_receiving(self, session: Session, qos: int, packet_id: int) -> bool:
        """Count a QoS 1 or 2 publication. Return False if it came before."""
        limits = self._shared.limits
        if qos > limits.maximum_qos:  # [MQTT-3.2.2-11]
            raise ClientError(
                ReasonCode.QOS_NOT_SUPPORTED,
                f"QoS {qos}; at most {limits.maximum_qos} is supported here",
            )
        if qos == 2 and packet_id in session.incoming:
            self._acknowledge_again(session, packet_id)
            return False
        self.receiving += 1
        if self._link.version == MQTT_5 and self.receiving > limits.receive_max:  # [MQTT-3.3.4-7]
            raise ClientError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {limits.receive_max:,} unacknowledged publications",
            )
        return True

    def acknowledge(
        self,
        answer: PacketType,
        packet_id: int,
        reason: int,
        entries: OutgoingMessages | None,
        *,
        wait: bool,
        ticket: "Ticket | None" = None,
        why: str | None = None,
    ) -> None:
        """Send PUBACK, PUBREC or PUBCOMP once the disk and other brokers have the publication.

        Acknowledgements go out in the order of the packets they answer [MQTT-4.6.0-2].
        """
        if not (wait or self._pending or reason or ticket):
            # The fast path, for nearly all acknowledgements.
            if answer != PacketType.PUBREC and self.receiving:
                self.receiving -= 1
            self._link.send(_ACK_HEADS[answer] + packet_id.to_bytes(2))
            return
        session = self._link.session
        assert session is not None
        version = self._link.version
        journal = self._shared.journal
        batch = journal.open.number if wait and ticket is None else 0
        data = codec.encode_ack(version, answer, packet_id, reason)
        if why is not None:
            data = self._link.with_reason(Ack(answer, packet_id, reason), why, data)
        ends = int(answer != PacketType.PUBREC or reason >= _FAILURE)
        answered = _Answered(answer, packet_id, entries)
        if batch and self._pending and (last := self._pending[-1]).batch == batch:
            last.add(answered, data, ends)
            return
        pending = _PendingAcknowledgement(int(wait) + (ticket is not None), batch)
        pending.add(answered, data, ends)
        self._pending.append(pending)

        def settle(taken: bool) -> None:
            pending.waiting -= 1
            if not taken and pending.data is not None:
                self._cancel(pending, session)
            self._send_acks()

        if wait:
            journal.when_stored(settle)
        if ticket is not None:
            ticket.close(_forwarded(session, settle) if answer == PacketType.PUBREC else settle)
        if not pending.waiting:
            self._send_acks()

    def acknowledge_run(self, published: RunOutcome, pubacks: bytes) -> None:
        """Send the PUBACKs of a run once the disk and other brokers have it."""
        run, _, _, _, waits_for_disk, ticket = published
        if not (self._pending or waits_for_disk or ticket):
            self._shared.counters.packets_sent += run.packets - 1  # the shell counts pieces
            self._link.send(pubacks)
            return
        self.receiving += run.packets
        pending = _PendingAcknowledgement(int(waits_for_disk) + (ticket is not None))
        pending.data = pubacks
        pending.ends = pending.packets = run.packets
        self._pending.append(pending)

        def settle(taken: bool) -> None:
            pending.waiting -= 1
            if not taken and pending.data is not None:
                self._take_back_run(pending, published)
            self._send_acks()

        if waits_for_disk:
            self._shared.journal.when_stored(settle)
        if ticket is not None:
            ticket.close(settle)

    def refuse(self, qos: int, packet_id: int, reason: ReasonCode, why: str | None = None) -> None:
        if not qos:
            return
        answer = PacketType.PUBREC if qos == 2 else PacketType.PUBACK
        if self._link.version == MQTT_3_1_1 and qos == 2:
            # A 3.1.1 PUBREC cannot refuse, so PUBREL follows and needs its identifier.
            session = self._link.session
            assert session is not None
            session.hold_incoming(packet_id)
        self.acknowledge(answer, packet_id, reason, None, wait=False, why=why)

    def refuse_storage(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        if self._link.version == MQTT_5:
            self.refuse(qos, packet_id, reason)
        elif qos:
            # Without an acknowledgement a 3.1.1 client keeps the message.
            self._link.fail(reason, "a publication that cannot be stored")

    def release(self, packet_id: int) -> None:
        """Answer PUBREL with PUBCOMP."""
        session = self._link.session
        assert session is not None
        reason = 0  # [MQTT-4.3.3-11]
        if not session.release_incoming(packet_id):
            reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self.receiving += 1
        # Also for an unknown identifier: PUBREL may have come over another connection before.
        self.acknowledge(
            PacketType.PUBCOMP, packet_id, reason, None, wait=session.expiry_seconds > 0
        )

    def _acknowledge_again(self, session: Session, packet_id: int) -> None:
        """Send PUBREC for a repeated QoS 2 message [MQTT-4.3.3-10].

        Its first copy may have come over another connection.
        """
        publication = session.awaiting_matchers.get(packet_id)
        if publication is not None:
            self._acknowledge_later(session, packet_id, publication)
            return
        if not session.persistent:
            self.acknowledge(PacketType.PUBREC, packet_id, 0, None, wait=False)
            return
        journal = self._shared.journal
        pending = _PendingAcknowledgement(1)
        data = codec.encode_ack(self._link.version, PacketType.PUBREC, packet_id)
        pending.add(_Answered(PacketType.PUBREC, packet_id, None), data, 0)
        self._pending.append(pending)

        def act(stored: bool) -> None:
            known = packet_id in session.incoming
            if known and not stored:
                journal.wait_on(act)  # the message is on disk, or is settled before this
                return
            pending.waiting = 0
            if not known:
                self._cancel(pending, session)
            self._send_acks()

        journal.when_stored(act)

    def _acknowledge_later(
        self, session: Session, packet_id: int, publication: PendingPublication
    ) -> None:
        """Send PUBREC for a repeated message when the matchers have answered for it."""
        pending = _PendingAcknowledgement(1)
        data = codec.encode_ack(self._link.version, PacketType.PUBREC, packet_id)
        pending.add(_Answered(PacketType.PUBREC, packet_id, None), data, 0)
        self._pending.append(pending)

        def settle(taken: bool) -> None:
            pending.waiting = 0
            if not taken:
                self._cancel(pending, session)
            self._send_acks()

        publication.when_settled(settle)

    def _take_back_run(self, pending: _PendingAcknowledgement, published: RunOutcome) -> None:
        """Cancel a run that could not be stored, as if it had not come."""
        run = published.run
        for session, entry in published.entries:
            if isinstance(entry, OutgoingRun):
                session.cancel_run(entry)
            else:
                session.cancel(entry)
        pending.data = None
        if self._link.state is not LinkState.CONNECTED:
            return
        if self._link.version == MQTT_3_1_1:
            self._link.fail(ReasonCode.QUOTA_EXCEEDED, _NOT_STORED)
            return
        pending.data = b"".join(
            codec.encode_ack(
                self._link.version, PacketType.PUBACK, packet_id, ReasonCode.QUOTA_EXCEEDED
            )
            for packet_id in packet_ids_of(pubacks_of(run, None))
        )

    def _cancel(self, pending: _PendingAcknowledgement, own: Session) -> None:
        """Cancel publications that could not be stored, as if they had not come."""
        for answer, packet_id, entries in pending.answered:
            for session, entry in entries or ():
                session.cancel(entry)
            if answer == PacketType.PUBREC:
                own.release_incoming(packet_id)
        pending.data = None
        if self._link.state is not LinkState.CONNECTED:
            return
        if self._link.version == MQTT_3_1_1 or any(
            one.answer == PacketType.PUBCOMP for one in pending.answered
        ):
            self._link.fail(ReasonCode.QUOTA_EXCEEDED, _NOT_STORED)
            return
        pending.ends = pending.packets
        pending.data = b"".join(
            codec.encode_ack(self._link.version, answer, packet_id, ReasonCode.QUOTA_EXCEEDED)
            for answer, packet_id, _ in pending.answered
        )

    def _send_acks(self) -> None:
        """Send the acknowledgements before the first one that still waits."""
        while self._pending and not self._pending[0].waiting:
            pending = self._pending.pop(0)
            if self._link.state is not LinkState.CONNECTED or pending.data is None:
                continue
            # A repeated message counts once.
            self.receiving = max(self.receiving - pending.ends, 0)
            self._shared.counters.packets_sent += pending.packets - 1  # the shell counts pieces
            self._link.send(bytes(pending.data))


def _forwarded(session: Session, settle: Callable[[bool], None]) -> Callable[[bool], None]:
    """Return `settle` for a publication that the session counts until other brokers have it."""
    session.forwarding += 1

    def act(taken: bool) -> None:
        session.forwarding -= 1
        settle(taken)

    return act
