"""Hears of filters, groups and where-clauses that come and go in the router's tables. Pure."""

from dovetail.attributes.clauses import Clause
from dovetail.broker.route import Group
from dovetail.broker.subscription import Subscription


class SubscriptionObserver:
    """Hears what comes and goes in the router's tables. An observer overrides what it needs."""

    def filter_changed(self, topic_filter: str, is_there: bool) -> None:
        """A filter has its first plain subscription, or lost its last."""

    def group_changed(self, group: Group) -> None:
        """Members of a group came, went or changed."""

    def clause_changed(self, entry: Subscription | Group, clause: Clause, is_there: bool) -> None:
        """A subscription or group with a clause came or went."""
