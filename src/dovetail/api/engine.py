"""The messages between a broker and the engine of a space: msgpack over HTTP.

An engine is a streaming query that evaluates the where-clauses of a space for the brokers. It asks
each broker for its clauses, and sends it the publications that match:

    POST /engine/subscriptions   ClauseQuery -> ClauseChanges      repeated, even without changes
    POST /engine/deliveries      DeliveryBatch -> DeliveryReceipt  answered when all is on disk
"""

from typing import Annotated, Protocol

from msgspec import Meta, Struct

MEDIA_TYPE = "application/msgpack"

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Id = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Qos = Annotated[int, Meta(ge=0, le=2)]


class ClauseQuery(Struct, frozen=True, array_like=True):
    """Asks which clauses of a space have changed since the last answer."""

    space: str
    life: Number = 0
    """`life` and `version` of the last answer; 0: there was none."""
    version: Number = 0
    served: Number = 0
    """The publications of this broker up to this sequence have been delivered everywhere."""


class ClauseSubscription(Struct, frozen=True, array_like=True):
    """A subscription with a where-clause, or a group with one."""

    id: Id
    filter: str
    """The topic filter; that of a group comes without `$share/group/`."""
    where: str
    is_group: bool = False


class ClauseChanges(Struct, frozen=True, array_like=True):
    """The clauses that were added or removed."""

    broker: str
    life: Number
    version: Number
    is_whole: bool
    """The list starts again: discard the clauses of earlier answers."""
    has_more: bool
    """Ask again at once."""
    served: Number
    """The sequence from which an engine without a checkpoint continues."""
    put: list[ClauseSubscription]
    gone: list[Id]


class EngineMatch(Struct, frozen=True, array_like=True):
    """A publication, and the subscriptions of one broker that match it."""

    broker: str
    """The broker where it was published; `sequence` is its number in that broker's archive."""
    sequence: Number
    topic: bytes
    payload: bytes
    qos: Qos
    retain: bool
    properties: bytes
    expires_at: float | None
    client: str
    """The client that published it."""
    ids: list[Id]


class DeliveryBatch(Struct, frozen=True, array_like=True):
    """Publications for a broker's clients, in the order of their sequences."""

    engine: str
    """Identifies the history of an engine: the broker accepts each publication of it once."""
    space: str
    matched: list[EngineMatch]
    is_moved: bool = False
    """For sessions that moved here a moment ago: accept it whatever was accepted before."""
    ends: dict[str, Number] = {}
    """For each broker, the sequence up to which the engine sends nothing more."""


class DeliveryReceipt(Struct, frozen=True, array_like=True):
    """Which deliveries of a batch found no subscription."""

    unknown: list[tuple[int, list[Id]]]
    """Index into `matched`, and the ids that are not here any more: moved or ended."""


class EngineService(Protocol):
    """The requests that a broker serves for engines. It raises ClientError to refuse one."""

    async def list_clauses(self, query: ClauseQuery) -> ClauseChanges: ...

    async def deliver(self, batch: DeliveryBatch) -> DeliveryReceipt: ...
