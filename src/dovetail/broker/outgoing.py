"""A message on its way to a session, and what it meets: a connection, or another broker. Pure."""

from typing import TYPE_CHECKING, Protocol

from dovetail.broker.journal import DeliveryRow
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.routes import Group
    from dovetail.broker.session import Session

ARRIVED_SEQUENCES = 1 << 40
"""Below are entries that came with the session from another broker: they go before all others."""


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
        "sent",
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
        self.sent = False  # may the client know it under this packet identifier?
        self.released = False
        self.first_batch = 0  # of the journal; 0: not on disk
        self.group: Group | None = None  # which picked this session; not on disk

    @property
    def may_be_shared(self) -> bool:
        """Did a group pick its session, and may it give it to another that has not got it?

        QoS 2 that is under way is nobody else's [MQTT-4.8.2-5].
        """
        return self.group is not None and not (self.packet_id and self.qos == 2)

    def row(self) -> DeliveryRow:
        return DeliveryRow(
            self.message.number,
            self.qos,
            self.retain,
            self.packet_id,
            self.released,
            self.identifiers,
        )


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
