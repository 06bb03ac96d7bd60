"""From a topic to those who get it: subscriptions write tables here, publications read them.

A route says, for one set of filters, who gets what a matching topic carries. Topics that match the
same filters share one route object, so a run of packets on different topics to the same receivers
is seen as one. Routes are cached by topic until a subscription changes that could matter to them: a
filter without wildcards matters to one topic only.

In a cluster a route also names the other brokers that may have a receiver; which they are is asked
of their sketches (peering/), once for each topic. When one of those changes, it is asked about all
topics in the cache at once, and routes stay that its answer leaves as they are. Shared
subscriptions are no part of that: their members in the whole cluster are counted
(peering/groups.py), and a route has the pools that one of them is picked from.

The cache has two generations: when the young one is full it becomes the old one, and what is still
in use moves over. Topics that are seen once fall out behind.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.broker.datatypes import check_text
from dovetail.broker.session import Session, Subscription
from dovetail.config import ROUTE_TOPIC_BYTES_MAX, ROUTES_RECHECKED_MAX
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings import Mqtt
from dovetail.topics.names import SharedFilter, check_name, split_shared
from dovetail.topics.trie import FilterTrie

if TYPE_CHECKING:
    from dovetail.broker.peering.groups import Pool

Key = tuple[str, str]
"""Of a group: its name and its filter."""


class Delivery:
    """What one session gets of a matching publication (section 3.3.4).

    Once, at the highest QoS of its subscriptions, and with all their identifiers.
    """

    __slots__ = ("identifiers", "plain", "qos", "retain_as_published", "session")

    def __init__(self, session: Session, subscriptions: Sequence[Subscription]) -> None:
        self.session = session
        self.qos = max(subscription.qos for subscription in subscriptions)  # [MQTT-3.3.4-2]
        # [MQTT-3.3.4-3], [MQTT-3.3.4-4]
        self.identifiers = tuple(
            subscription.identifier for subscription in subscriptions if subscription.identifier
        )
        self.retain_as_published = any(
            subscription.retain_as_published for subscription in subscriptions
        )
        self.plain = not self.identifiers


class Group:
    """A shared subscription: each publication goes to one of its members (section 4.8.2)."""

    __slots__ = ("_counted", "_next", "_order", "connected", "kept", "key", "members")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.members: dict[int, Subscription] = {}
        self.connected = 0
        """Members whose client is there, as far as it was noted."""
        self.kept = 0
        """Those for whom a message can wait: with a session that is kept, at QoS 1 or 2."""
        self._counted: dict[int, tuple[bool, bool]] = {}
        self._order: tuple[Subscription, ...] | None = None
        self._next = 0

    def add(self, subscription: Subscription) -> None:
        self.members[subscription.session.number] = subscription
        self._order = None
        self.note(subscription.session)

    def remove(self, session: Session) -> None:
        del self.members[session.number]
        self._order = None
        self._count(session.number, (False, False))
        del self._counted[session.number]

    def note(self, session: Session) -> None:
        """Count a member as it is now."""
        member = self.members[session.number]
        is_kept = session.persistent and member.qos > 0
        self._count(session.number, (session.link is not None, is_kept))

    def _count(self, number: int, now: tuple[bool, bool]) -> None:
        before = self._counted.get(number, (False, False))
        self._counted[number] = now
        self.connected += now[0] - before[0]
        self.kept += now[1] - before[1]

    def pick(self, qos: int) -> Subscription | None:
        """In turn, those who are there before those who will be back."""
        if self._order is None:
            self._order = tuple(self.members.values())
        members = self._order
        count = len(members)
        self._next += 1
        later: Subscription | None = None
        for i in range(count):
            member = members[(self._next + i) % count]
            link = member.session.link
            if link is not None and not link.congested:
                return member
            if later is None and (link is not None or (qos and member.qos)):
                later = member
        return later


class Route:
    """Who gets a publication. Does not change: a new subscription makes new routes."""

    __slots__ = ("deliveries", "groups", "is_special", "own", "peers", "pools")

    def __init__(
        self,
        subscriptions: Iterable[Subscription],
        groups: tuple[Group, ...],
        peers: tuple[str, ...] = (),
        pools: "tuple[Pool, ...]" = (),
    ) -> None:
        by_session: dict[Session, list[Subscription]] = {}
        for subscription in subscriptions:
            by_session.setdefault(subscription.session, []).append(subscription)
        self.deliveries = tuple(Delivery(session, found) for session, found in by_session.items())
        self.groups = groups
        self.peers = peers
        self.pools = pools
        # What a session with No Local gets of its client's own publications [MQTT-3.8.3-3], by
        # client identifier: they may come from another broker, where the client was before.
        self.own: dict[str, Delivery | None] = {}
        for session, found in by_session.items():
            others = [subscription for subscription in found if not subscription.no_local]
            if len(others) < len(found):
                self.own[session.client_id] = Delivery(session, others) if others else None
        # One question for all that keeps packets from being passed on as they came.
        self.is_special = bool(groups or pools or self.own)

    @property
    def is_empty_here(self) -> bool:
        return not (self.deliveries or self.groups)

    def deliveries_from(self, client_id: str) -> Iterable[Delivery]:
        """What this client published goes to these."""
        if client_id not in self.own:
            return self.deliveries
        own = self.own[client_id]
        others = (one for one in self.deliveries if one.session.client_id != client_id)
        return others if own is None else (*others, own)


_Several = dict[int | str, Subscription | Group]  # by session number, or by the group's name
_Found = tuple[tuple[int, ...], tuple[str, ...], "tuple[Pool, ...]"]  # what makes a route


class Router:
    """The subscriptions of all sessions, and the routes that follow from them."""

    def __init__(self, limits: Mqtt) -> None:
        self.routes: dict[bytes, Route] = {}
        self.count = 0
        self._old_routes: dict[bytes, Route] = {}
        self._by_filters: dict[_Found, Route] = {}
        self._limits = limits
        self._trie: FilterTrie[Subscription | Group | _Several] = FilterTrie()
        self.groups: dict[Key, Group] = {}
        self._groups_of: dict[int, dict[str, Group]] = {}  # by session number, and by filter
        self.computed = 0
        self.search_peers: Callable[[Sequence[bytes]], Sequence[tuple[str, ...]]] | None = None
        """In a cluster: for each topic the brokers that may have a receiver."""
        self.search_peer: Callable[[str, Sequence[bytes]], Sequence[bool]] | None = None
        """In a cluster: for each topic whether this broker may have one."""
        self.filter_changed: Callable[[str, bool], None] | None = None
        """In a cluster: told of a filter with its first plain subscription, and after its last."""
        self.search_groups: Callable[[Sequence[bytes]], Sequence[tuple[Pool, ...]]] | None = None
        """In a cluster: for each topic the groups of all brokers that get it."""
        self.group_changed: Callable[[Group], None] | None = None
        """In a cluster: told of members that came, went, or changed."""

    # Tables -------------------------------------------------------------------------------------

    def subscribe(
        self, session: Session, topic_filter: str, options: int, identifier: int
    ) -> Subscription:
        """The session's subscription to this (valid) filter, new or with new options."""
        known = session.subscriptions.get(topic_filter)
        shared = split_shared(topic_filter)
        inner = topic_filter if shared is None else shared.filter
        if known is not None:  # [MQTT-3.8.4-3]
            known.options = options
            known.identifier = identifier
            if shared is not None:
                self.presence_changed(session)
            self.changed(inner)
            return known
        subscription = Subscription(session, topic_filter, options, identifier)
        session.subscriptions[topic_filter] = subscription
        session.filter_bytes += len(topic_filter.encode())
        self.count += 1
        if shared is None:
            self._put(inner, session.number, subscription)
        else:
            self._join(topic_filter, shared, subscription)
        self.changed(inner)
        return subscription

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """False if there was no such subscription."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        session.filter_bytes -= len(topic_filter.encode())
        self.count -= 1
        shared = split_shared(topic_filter)
        if shared is None:
            self._take(topic_filter, session.number)
            self.changed(topic_filter)
        else:
            self._leave(topic_filter, shared, session)
            self.changed(shared.filter)
        return True

    def _put(self, inner: str, key: int | str, entry: Subscription | Group) -> None:
        at = self._trie.setdefault(inner, entry)  # one entry is kept without a dict
        known = None if at is entry else at
        if self.filter_changed is not None and isinstance(key, int) and not _has_plain(known):
            self.filter_changed(inner, True)
        if isinstance(known, dict):
            known[key] = entry
        elif known is not None:
            self._trie[inner] = {_key_of(known): known, key: entry}

    def _take(self, inner: str, key: int | str) -> None:
        at = self._trie[inner]
        rest: _Several | None = None
        if isinstance(at, dict) and len(at) > 1:
            del at[key]
            rest = at
        else:
            del self._trie[inner]
        if self.filter_changed is not None and isinstance(key, int) and not _has_plain(rest):
            self.filter_changed(inner, False)

    def _join(self, topic_filter: str, shared: SharedFilter, subscription: Subscription) -> None:
        key = shared.group, shared.filter
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key)
            self._put(shared.filter, shared.group, group)
        group.add(subscription)
        self._groups_of.setdefault(subscription.session.number, {})[topic_filter] = group
        if self.group_changed is not None:
            self.group_changed(group)

    def _leave(self, topic_filter: str, shared: SharedFilter, session: Session) -> None:
        joined = self._groups_of[session.number]
        group = joined.pop(topic_filter)
        if not joined:
            del self._groups_of[session.number]
        group.remove(session)
        if not group.members:
            del self.groups[group.key]
            self._take(shared.filter, shared.group)
        if self.group_changed is not None:
            self.group_changed(group)

    def presence_changed(self, session: Session) -> None:
        """A client came or went: its session's groups have one more, or fewer, to pick from."""
        for group in self._groups_of.get(session.number, {}).values():
            group.note(session)
            if self.group_changed is not None:
                self.group_changed(group)

    def peers_changed(self, name: str | None = None) -> None:
        """What other brokers may have receivers for is not what it was; or what this one may."""
        search = self.search_peer
        count = len(self.routes) + len(self._old_routes)
        if name is None or search is None or count > ROUTES_RECHECKED_MAX:
            self.routes.clear()
            self._old_routes = {}
            return
        for routes in (self.routes, self._old_routes):
            if routes:
                topics = list(routes)
                for topic, may_match in zip(topics, search(name, topics), strict=True):
                    if may_match != (name in routes[topic].peers):
                        del routes[topic]

    def changed(self, inner: str) -> None:
        """Who gets what matches this filter has: routes that could have come from it go."""
        self._by_filters = {}
        if "+" in inner or "#" in inner:
            self.routes.clear()
            self._old_routes = {}
        else:
            topic = inner.encode()
            self.routes.pop(topic, None)
            self._old_routes.pop(topic, None)

    # Routes -------------------------------------------------------------------------------------

    def find(self, topic: bytes) -> Route:
        """The route of a topic; a ClientError if it is not a valid name."""
        route = self.routes.get(topic)
        if route is not None:
            return route
        self.check(topic)
        return self.route(topic)

    def route(self, topic: bytes) -> Route:
        """The same for a topic that was checked, or is our own: limits are for clients."""
        return self._resolve((topic,))[topic]

    def prepare(self, topics: Sequence[bytes]) -> None:
        """Find the routes of many topics at once; those that are not valid are left for `find`."""
        valid = []
        for topic in topics:
            try:
                self.check(topic)
            except ClientError:
                continue
            valid.append(topic)
        self._resolve(valid)

    def _resolve(self, topics: Sequence[bytes]) -> dict[bytes, Route]:
        """The routes of these (valid) topics, which are kept too."""
        old = self._old_routes
        found = {topic: old[topic] for topic in topics if topic in old}
        unknown = [topic for topic in topics if topic not in found] if found else topics
        if unknown:
            self.computed += len(unknown)
            by_filters = self._by_filters
            search = self.search_peers
            peers = [()] * len(unknown) if search is None else search(unknown)
            pools = (
                [()] * len(unknown) if self.search_groups is None else self.search_groups(unknown)
            )
            matched = self._trie.match_many(unknown)
            for topic, key in zip(unknown, zip(matched, peers, pools, strict=True), strict=True):
                route = by_filters.get(key)
                if route is None:
                    route = by_filters[key] = self._build(*key)
                found[topic] = route
        self._keep(found)
        return found

    def _keep(self, found: dict[bytes, Route]) -> None:
        half = max(self._limits.routes_max // 2, 1)
        if len(self.routes) + len(found) > half:
            self._old_routes = self.routes
            self.routes = {}
        # In any case: topics too long to be kept lead to routes, too.
        if len(self._by_filters) > half:
            self._by_filters = {}
        self.routes.update(
            (topic, route)
            for topic, route in islice(found.items(), half)
            if len(topic) <= ROUTE_TOPIC_BYTES_MAX
        )

    def _build(
        self, numbers: tuple[int, ...], peers: tuple[str, ...], pools: "tuple[Pool, ...]"
    ) -> Route:
        subscriptions: list[Subscription] = []
        groups: list[Group] = []
        for number in dict.fromkeys(numbers):
            at = self._trie.value(number)
            for entry in at.values() if isinstance(at, dict) else (at,):
                if isinstance(entry, Group):
                    groups.append(entry)
                else:
                    subscriptions.append(entry)
        return Route(subscriptions, tuple(groups), peers, pools)

    def matching(self, topic: bytes) -> list[Subscription | Group]:
        """Everything here that matches it, for people; routes do not go by this."""
        found: list[Subscription | Group] = []
        for at in self._trie.match(topic):
            found += at.values() if isinstance(at, dict) else (at,)
        return found

    def check(self, topic: bytes) -> None:
        """A ClientError if a client may not publish to it whatever the access rules say."""
        limits = self._limits
        if (
            not topic
            or len(topic) > limits.topic_bytes_max
            or not topic.isascii()
            or b"+" in topic
            or b"#" in topic
            or b"\0" in topic
        ):
            check_text(topic, "the topic name")  # what is no text is malformed, as in the codec
            check_name(topic)
            if len(topic) > limits.topic_bytes_max:
                raise ClientError(
                    ReasonCode.TOPIC_NAME_INVALID,
                    f"a topic name of {len(topic):,} bytes; at most {limits.topic_bytes_max:,} "
                    "are allowed here (mqtt.topic_bytes_max)",
                )
        if topic.count(b"/") >= limits.topic_levels_max:
            raise ClientError(
                ReasonCode.TOPIC_NAME_INVALID,
                f"a topic name of {topic.count(b'/') + 1:,} levels; at most "
                f"{limits.topic_levels_max:,} are allowed here (mqtt.topic_levels_max)",
            )


def _key_of(entry: Subscription | Group) -> int | str:
    if isinstance(entry, Subscription):
        return entry.session.number
    return entry.key[0]


def _has_plain(at: Subscription | Group | _Several | None) -> bool:
    """Does anybody subscribe to it without a group?"""
    if isinstance(at, dict):
        return any(isinstance(key, int) for key in at)
    return isinstance(at, Subscription)
