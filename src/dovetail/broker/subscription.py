"""A subscription of a session: a filter, an optional where-clause, and options. Pure."""

from typing import TYPE_CHECKING, NamedTuple

from dovetail.attributes.clauses import Clause, boxes_of, split_key
from dovetail.broker.store.journal import SubscriptionRow
from dovetail.topics.names import SharedFilter, split_shared

if TYPE_CHECKING:
    from dovetail.broker.session import Session


class SubscriptionKey(NamedTuple):
    """The key of a subscription, taken apart once."""

    key: str
    filter: str
    clause: str
    """Its where-clause; empty if there is none."""
    shared: SharedFilter | None
    inner: str
    """The filter without the group of a shared subscription."""
    nbytes: int
    boxes: int
    """The boxes that it counts as."""


def take_apart(key: str) -> SubscriptionKey:
    topic_filter, clause = split_key(key)
    shared = split_shared(topic_filter)
    inner = topic_filter if shared is None else shared.filter
    boxes = boxes_of(key) if clause else 1
    return SubscriptionKey(key, topic_filter, clause, shared, inner, len(key.encode()), boxes)


class Subscription:
    """A filter of a session, with its options as they stood on the wire (section 3.8.3.1)."""

    __slots__ = ("clause", "filter", "identifier", "key", "options", "session")

    def __init__(self, session: "Session", key: str, options: int, identifier: int) -> None:
        self.session = session
        self.key = key
        """The filter, with the where-clause if there is one (attributes/clauses.py)."""
        self.filter = split_key(key)[0]
        self.clause: Clause | None = None
        """Its where-clause; None if it has none, or if no space knows the clause now."""
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
