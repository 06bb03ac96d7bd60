"""A message on its way to a session, and the protocols of its receiver and its redirect. Pure."""

from typing import TYPE_CHECKING, Protocol

from dovetail.broker.store.journal import DeliveryRow
from dovetail.errors import ReasonCode
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.route import Group
    from dovetail.broker.session import Session

ARRIVED_SEQUENCES = 1 << 40
"""The first sequence for messages offered here. Entries below it came from another broker with the
session, and are sent first."""


class OutgoingMessage:
    """A QoS 1 or 2 message on its way to a session."""

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
        self.sent = False  # the client may know it under this packet identifier
        self.released = False
        self.first_batch = 0  # of the journal; 0: not on disk
        self.group: Group | None = None  # the group that picked this session; not on disk

    @property
    def may_be_shared(self) -> bool:
        """May it go to another member of its group?

        A QoS 2 message in flight stays with its session [MQTT-4.8.2-5].
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


class SubscriberLink(Protocol):
    """A connection as a session uses it."""

    version: int
    plain: bool
    unsent: int
    congested: bool

    def flush_backlog(self) -> None: ...

    def has_room(self) -> bool: ...

    def send(self, data: bytes) -> None: ...

    def send_packets(self, data: bytes, count: int) -> None: ...

    def send_publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        duplicate: bool,
    ) -> bool: ...

    def disconnect(self, reason: ReasonCode) -> None: ...


class SessionRedirect(Protocol):
    """The redirect of a session that another broker had or has (peering/roaming/redirect.py)."""

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
