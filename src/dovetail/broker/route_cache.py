"""Caches routes by topic, until a table that they depend on changes. Pure.

The cache has two generations. When the young one is full it becomes the old one, and routes in use
move over. Topics that are seen once drop out. Topics that match the same filters share one route.

- A filter without wildcards concerns one topic; any other filter may concern all of them.
- When a peer's sketch changes, the cache asks the sketch about all cached topics at once, and keeps
  the routes whose answer is the same.
- Dropped routes are freed a few at a time, because there may be many.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from dovetail.attributes.space import Space
from dovetail.broker.limits import (
    ROUTE_TOPIC_BYTES_MAX,
    ROUTES_FREED_AT_ONCE,
    ROUTES_FREED_PER_ROUTE,
    ROUTES_RECHECKED_MAX,
)
from dovetail.broker.route import Route, clause_topic

if TYPE_CHECKING:
    from dovetail.broker.peering.groups import GroupPool

RouteParts = tuple[tuple[str, ...], "tuple[GroupPool, ...]", Space | None, tuple[str, ...], bool]
"""What a route has besides filters: peers, pools, space, peers with clauses, archived or not."""

RouteKey = tuple[
    tuple[int, ...], tuple[str, ...], "tuple[GroupPool, ...]", Space | None, tuple[str, ...], bool
]
"""The numbers of the filters that match a topic, and the other parts of its route."""

SearchPeer = Callable[[str, Sequence[bytes]], Sequence[bool]]
"""Returns for each topic whether this peer may have a receiver."""


class RouteCache:
    """The routes of topics that were published to lately."""

    def __init__(self, routes_max: int) -> None:
        self.young: dict[bytes, Route] = {}
        """Routes by topic. Publications look here first."""
        self._old: dict[bytes, Route] = {}
        self._by_filters: dict[RouteKey, Route] = {}
        self._dropped: list[dict[Any, Route]] = []
        self._half = max(routes_max // 2, 1)
        self.changes = 0
        """Rises when the tables change that routes depend on: earlier routes may be wrong then."""

    def __len__(self) -> int:
        return len(self.young) + len(self._old)

    @property
    def shared(self) -> int:
        """The number of routes that topics with the same filters share."""
        return len(self._by_filters)

    # In -----------------------------------------------------------------------------------------

    def old_routes(self, topics: Iterable[bytes]) -> dict[bytes, Route]:
        """Return the routes of those topics that are in the old generation."""
        old = self._old
        return {topic: old[topic] for topic in topics if topic in old}

    def route_with(self, key: RouteKey) -> Route | None:
        return self._by_filters.get(key)

    def share(self, key: RouteKey, route: Route) -> None:
        """Let topics with the same filters share this route."""
        if not route.is_heavy:
            self._by_filters[key] = route

    def put(self, found: dict[bytes, Route]) -> None:
        """Cache these routes, as many as half of the cache holds."""
        half = self._half
        if len(self.young) + len(found) > half:
            self._drop_later(self._old)
            self._old = self.young
            self.young = {}
        # Checked always: topics too long for the cache add routes here, too.
        if len(self._by_filters) > half:
            self._drop_later(self._by_filters)
            self._by_filters = {}
        if self._dropped:
            self._free(len(found) * ROUTES_FREED_PER_ROUTE)
        self.young.update(
            (topic, route)
            for topic, route in islice(found.items(), half)
            if len(topic) <= ROUTE_TOPIC_BYTES_MAX and not route.is_heavy
        )

    # Out ----------------------------------------------------------------------------------------

    def invalidate(self, topic_filter: str) -> None:
        """Drop the routes that may depend on this filter."""
        self.changes += 1
        if "+" in topic_filter or "#" in topic_filter:
            self.clear()
            return
        self._drop_later(self._by_filters)
        self._by_filters = {}
        topic = topic_filter.encode()
        self.young.pop(topic, None)
        self._old.pop(topic, None)

    def clear(self) -> None:
        """Drop all routes."""
        self.changes += 1
        if not (self.young or self._old or self._by_filters):
            return
        self._drop_later(self.young, self._old, self._by_filters)
        self.young = {}
        self._old = {}
        self._by_filters = {}

    def peer_changed(self, name: str, search: SearchPeer) -> None:
        """Drop the routes that changed with a peer's sketch."""
        if len(self) > ROUTES_RECHECKED_MAX:
            self.clear()
            return
        for routes in (self.young, self._old):
            if not routes:
                continue
            topics = list(routes)
            governed = [topic for topic in topics if routes[topic].space is not None]
            wants = search(name, [*map(clause_topic, governed)]) if governed else ()
            may_want = dict(zip(governed, wants, strict=True))
            for topic, may_match in zip(topics, search(name, topics), strict=True):
                route = routes[topic]
                if may_match != (name in route.peers) or (
                    topic in may_want
                    and (may_want[topic] or may_match) != (name in route.clause_peers)
                ):
                    del routes[topic]
                    self.changes += 1

    def _drop_later(self, *routes: dict[Any, Route]) -> None:
        self._dropped += [some for some in routes if len(some) > ROUTES_FREED_AT_ONCE]

    def _free(self, count: int) -> None:
        """Free this many dropped routes."""
        while self._dropped and count > 0:
            some = self._dropped[-1]
            for _ in range(min(count, len(some))):
                some.popitem()
                count -= 1
            if not some:
                self._dropped.pop()
