"""A subscription of a session: a filter, an optional where-clause, and options. Pure."""

from typing import TYPE_CHECKING

from dovetail.attributes.clauses import Clause, split_key
from dovetail.broker.store.journal import SubscriptionRow

if TYPE_CHECKING:
    from dovetail.broker.session import Session


class Subscription:
    """A filter of a session, with its options as they stood on the wire (section 3.8.3.1)."""

    __slots__ = ("clause", "filter", "identifier", "key", "options", "session")

    def __init__(self, session: "Session", key: str, options: int, identifier: int) -> None:
        self.session = session
        self.key = key
        """The filter, with the where-clause if there is one (attributes/clauses.py)."""
        self.filter, _ = split_key(key)
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
