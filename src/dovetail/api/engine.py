"""What a broker and the engine of a space say to each other over HTTP, as msgpack.

An engine is a streaming query that looks at the where-clauses of a space in the brokers' stead. It
asks each broker for its clauses, and hands it what they want:

    POST /engine/subscriptions   Question -> Listed      again and again, also when all is calm
    POST /engine/deliveries      Handover -> Taken       answered when what has to be is on disk
"""

from typing import Annotated, Protocol

from msgspec import Meta, Struct

MEDIA_TYPE = "application/msgpack"

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Id = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Qos = Annotated[int, Meta(ge=0, le=2)]


class Question(Struct, frozen=True, array_like=True):
    """Which clauses are there in a space, since the last answer?"""

    space: str
    life: Number = 0
    """Of the last answer, and its version; 0: there was none."""
    version: Number = 0
    served: Number = 0
    """The broker's own publications up to this sequence have been handed to whom they belong."""


class Entry(Struct, frozen=True, array_like=True):
    """A subscription with a clause, or a group of them."""

    id: Id
    filter: str
    """Of a group without `$share/group/`."""
    where: str
    is_group: bool = False


class Listed(Struct, frozen=True, array_like=True):
    """What has changed."""

    broker: str
    life: Number
    version: Number
    is_whole: bool
    """It begins anew: what was listed before is void."""
    has_more: bool
    """Ask again at once."""
    served: Number
    """From where to go on, for an engine that has no word of its own."""
    put: list[Entry]
    gone: list[Id]


class Matched(Struct, frozen=True, array_like=True):
    """A publication, and who wants it of those that a broker has listed."""

    broker: str
    """Where it was published; `sequence` is its place in that broker's archive."""
    sequence: Number
    topic: bytes
    payload: bytes
    qos: Qos
    retain: bool
    properties: bytes
    expires_at: float | None
    client: str
    """Who published it."""
    ids: list[Id]


class Handover(Struct, frozen=True, array_like=True):
    """Publications for a broker's clients, in the order of their sequences."""

    engine: str
    """Names a history: what it has handed over once is not taken again."""
    space: str
    matched: list[Matched]
    is_moved: bool = False
    """For sessions that were listed elsewhere a moment ago: taken whatever was taken before."""
    ends: dict[str, Number] = {}
    """By broker: nothing up to this sequence will come any more."""


class Taken(Struct, frozen=True, array_like=True):
    """What became of them."""

    unknown: list[tuple[int, list[Id]]]
    """By place in `matched`: ids that are not here. They have moved, or gone."""


class Engine(Protocol):
    """What a broker does for one. A ClientError says why it does not."""

    async def tell(self, question: Question) -> Listed: ...

    async def take(self, handover: Handover) -> Taken: ...
