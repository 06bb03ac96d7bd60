"""What a broker knows of the others: who they are, and what they subscribe to. Pure.

The router searches these tables for each new topic, and they drop the routes that they change. They
also observe the router, so that the other brokers hear of our subscriptions.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from dovetail.broker.peering.group_exchange import GroupExchange
from dovetail.broker.peering.groups import GroupPool, GroupPools
from dovetail.broker.peering.peers import Peers
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.route import Group
from dovetail.broker.route_cache import RouteCache
from dovetail.broker.shared_state import SharedState
from dovetail.broker.subscription_observer import SubscriptionObserver


class ClusterMembership(NamedTuple):
    """What makes a broker one of a cluster."""

    name: str
    stream: int
    """Identifies the data folder."""
    incarnation: int
    """Identifies this run of the process."""
    seed: int
    """Identifies the cluster."""
    send: Callable[[str, int, bytes], bool]
    """Sends a frame to a peer. It promises nothing."""


class PeerTables(SubscriptionObserver):
    """The tables of one broker about its peers. Implements `PeerLookup`."""

    def __init__(
        self,
        shared: SharedState,
        membership: ClusterMembership,
        routes: RouteCache,
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when there is something to send to peers at the end of the turn."""
        send = membership.send
        self._routes = routes
        self._wake = wake
        self.stamps = Stamps(membership.stream, shared)
        self.sketch_exchange = SketchExchange(
            seed=membership.seed,
            lineage=membership.incarnation,
            send=send,
            changed=self._routes_changed,
        )
        self.groups = GroupPools(routes.invalidate, random)
        self.group_exchange = GroupExchange(
            shared, self.groups, lineage=membership.incarnation, send=send
        )
        self.peers = Peers(shared, send=send, expect=self.sketch_exchange.expect)

    def _routes_changed(self, name: str | None) -> None:
        if name is None:
            self._routes.clear()
        else:
            self._routes.peer_changed(name, self.sketch_exchange.search_peer)

    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[str, ...]]:
        return self.sketch_exchange.search(topics)

    def search_groups(self, topics: Sequence[bytes]) -> Sequence[tuple[GroupPool, ...]]:
        return self.groups.search(topics)

    def filter_changed(self, topic_filter: str, is_there: bool) -> None:
        self.sketch_exchange.filter_changed(topic_filter, is_there)
        self._wake()  # peers hear of it at the end of the turn, and SUBACK waits for that

    def group_changed(self, group: Group) -> None:
        self.group_exchange.group_changed(group)
        self._wake()
