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

Subscriptions with a where-clause (clauses.py) are kept in one set for each filter, and a route has
the sets: who comes and goes in one costs no route. Other brokers' sketches know such filters by
another name, so that a route tells brokers that need every publication from those that need it only
if it has attributes. Where a stream looks at clauses (streamed.py), a route says so, and has all
the same what a broker needs to look at them itself.

The cache has two generations: when the young one is full it becomes the old one, and what is still
in use moves over. Topics that are seen once fall out behind. What falls out is freed bit by bit, as
other routes are found: there may be many.

A session may have so many subscriptions that they leave in slices (slices.py). From the moment that
it is over no route has it, though its filters are still in the tables.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from dovetail.attributes.space import Space
from dovetail.broker.clauses import Clause, boxes_of, key_of, split_key
from dovetail.broker.datatypes import check_text
from dovetail.broker.deliveries import Receivers, WantedBySubscriptions, receivers_of
from dovetail.broker.routes import Group, Key, Route, WantedByGroups, Wants
from dovetail.broker.session import Session
from dovetail.broker.slices import Work, in_one_go
from dovetail.broker.spaces import Spaces
from dovetail.broker.subscription import Subscription
from dovetail.config import (
    FILTERS_PER_PIECE,
    GROUPS_PER_PIECE,
    RECEIVERS_PER_PIECE,
    ROUTE_TOPIC_BYTES_MAX,
    ROUTES_FREED_AT_ONCE,
    ROUTES_FREED_PER_ROUTE,
    ROUTES_RECHECKED_MAX,
    SEARCH_STEPS_MAX,
    SEARCH_STEPS_PER_PIECE,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings import Mqtt
from dovetail.topics.names import SharedFilter, check_name, split_shared
from dovetail.topics.trie import FilterTrie

if TYPE_CHECKING:
    from dovetail.broker.peering.groups import Pool


CLAUSE_LEVEL = "$where\0"
"""Stands before filters with where-clauses in sketches. No client can subscribe to it."""

_Entry = Subscription | Group | WantedBySubscriptions | WantedByGroups
_Several = dict[int | str, _Entry]  # by session number, or by the name of a group, or a set's
# What makes a route besides filters: peers, pools, the space and peers with clauses, the archive.
_Rest = tuple[tuple[str, ...], "tuple[Pool, ...]", Space | None, tuple[str, ...], bool]
_Found = tuple[
    tuple[int, ...], tuple[str, ...], "tuple[Pool, ...]", Space | None, tuple[str, ...], bool
]
# Names that no group can have.
_CLAUSES = "\0"
_GROUP_CLAUSES = "\0\0"


class _Entries:
    """What was found for a topic, sorted out."""

    __slots__ = ("clauses", "count", "group_clauses", "groups", "subscriptions")

    def __init__(self) -> None:
        self.count = 0
        self.subscriptions: dict[Session, list[Subscription]] = {}
        self.groups: list[Group] = []
        self.clauses: list[WantedBySubscriptions] = []
        self.group_clauses: list[WantedByGroups] = []

    def add(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self.count += 1
            if isinstance(entry, Subscription):
                if not entry.session.is_over:
                    self.subscriptions.setdefault(entry.session, []).append(entry)
            elif isinstance(entry, Group):
                self.groups.append(entry)
            elif isinstance(entry, WantedBySubscriptions):
                self.clauses.append(entry)
            else:
                self.group_clauses.append(entry)


class Router:
    """The subscriptions of all sessions, and the routes that follow from them."""

    def __init__(self, limits: Mqtt, spaces: Spaces | None = None) -> None:
        self.routes: dict[bytes, Route] = {}
        self.count = 0
        self.changes = 0
        """Rises whenever a subscription comes, goes, or gets other options."""
        self.boxes = 0
        """Of all subscriptions; one without a clause counts as one."""
        self.spaces = spaces or Spaces()
        self.clauses: dict[str, WantedBySubscriptions] = {}
        """Subscriptions with clauses, by filter."""
        self._group_clauses: dict[str, WantedByGroups] = {}
        self._with_clause: dict[Subscription, None] = {}  # whether it means something now or not
        self._old_routes: dict[bytes, Route] = {}
        self._by_filters: dict[_Found, Route] = {}
        self._refuse: list[dict[Any, Route]] = []  # which nobody looks into any more
        self._limits = limits
        self._trie: FilterTrie[_Entry | _Several] = FilterTrie()
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
        self.is_archived: Callable[[bytes], bool] | None = None
        """With an archive: is a topic written there?"""
        self.may_stream = False
        """With an archive: publications may wait there for a stream."""
        self.clause_listed: Callable[[Subscription | Group, Clause, bool], None] | None = None
        """Told of subscriptions and groups with a clause that came or went."""
        self.clause_changed: Callable[[Subscription, Clause, bool], None] | None = None
        """In a cluster: told of subscriptions with a clause that came or went."""

    # Tables -------------------------------------------------------------------------------------

    def subscribe(self, session: Session, key: str, options: int, identifier: int) -> Subscription:
        """The session's subscription of this (valid) key, new or with new options."""
        known = session.subscriptions.get(key)
        topic_filter, text = split_key(key)
        shared = split_shared(topic_filter)
        inner = topic_filter if shared is None else shared.filter
        self.changes += 1
        if known is not None:  # [MQTT-3.8.4-3]
            known.options = options
            known.identifier = identifier
            if shared is not None:
                self._note(self._groups_of[session.number][key], session)
            if not text:
                self.changed(inner)
            elif shared is None and known.clause is not None:
                self.clauses[inner].options_changed(known)
            return known
        subscription = Subscription(session, key, options, identifier)
        session.subscriptions[key] = subscription
        session.filter_bytes += len(key.encode())
        self._count(session, key, 1)
        if text:
            subscription.clause = self.spaces.clause(inner, text)
            self._with_clause[subscription] = None
        if shared is not None:
            self._join(shared, text, subscription)
        elif text:
            self._put_clause(inner, subscription)
        else:
            self._put(inner, session.number, subscription)
            self.changed(inner)
        return subscription

    def unsubscribe(self, session: Session, key: str) -> bool:
        """False if there was no such subscription."""
        subscription = session.subscriptions.pop(key, None)
        if subscription is None:
            return False
        inner = self._remove(session, subscription)
        if inner:
            self.changed(inner)
        return True

    def _remove(self, session: Session, subscription: Subscription) -> str:
        """Out of the tables. Returns the filter whose routes are others now; empty: none are."""
        key = subscription.key
        self.changes += 1
        session.filter_bytes -= len(key.encode())
        self._count(session, key, -1)
        self._with_clause.pop(subscription, None)
        _, text = split_key(key)
        shared = split_shared(subscription.filter)
        if shared is not None:
            self._leave(shared, text, subscription)
            return shared.filter
        if text:
            is_last = self._take_clause(subscription.filter, subscription)
            return subscription.filter if is_last else ""
        self._take(subscription.filter, session.number)
        return subscription.filter

    def retire(self, session: Session) -> Work:
        """A session is over: all that it subscribed to goes."""
        subscriptions = session.subscriptions
        is_long = len(subscriptions) > FILTERS_PER_PIECE
        if is_long:
            self._forget_routes()  # those that are found from now on do not have it
        while subscriptions:
            for _ in range(min(len(subscriptions), FILTERS_PER_PIECE)):
                _, subscription = subscriptions.popitem()
                inner = self._remove(session, subscription)
                if inner and not is_long:
                    self.changed(inner)
            if subscriptions:
                yield

    def _count(self, session: Session, key: str, sign: int) -> None:
        boxes = sign * boxes_of(key)
        session.boxes += boxes
        self.boxes += boxes
        self.count += sign

    def change_spaces(self, spaces: Spaces) -> int:
        """Clauses mean what they mean now; returns how many subscriptions mean nothing any more.

        They stay, for the day when their space is back.
        """
        self.spaces = spaces
        self.changes += 1
        lost = 0
        moved: list[tuple[str, Subscription, Clause | None]] = []
        groups: dict[Group, tuple[str, Clause | None]] = {}
        for subscription in self._with_clause:
            shared = split_shared(subscription.filter)
            inner = subscription.filter if shared is None else shared.filter
            clause = subscription.clause
            if clause is None or clause.space != spaces.around(inner):
                clause = spaces.clause(inner, split_key(subscription.key)[1])
            lost += clause is None
            if clause is subscription.clause:
                continue
            if shared is None:
                moved.append((inner, subscription, clause))
            else:
                group = self._groups_of[subscription.session.number][subscription.key]
                groups[group] = inner, clause
                subscription.clause = clause
        # All of them go before one comes: a set has the clauses of one space.
        for inner, subscription, _ in moved:
            self._take_clause(inner, subscription)  # routes are forgotten below
        for group, (inner, _) in groups.items():
            self._take_group_clause(inner, group)
        for inner, subscription, clause in moved:
            subscription.clause = clause
            self._put_clause(inner, subscription)
        for group, (inner, clause) in groups.items():
            group.clause = clause
            self._put_group_clause(inner, group)
        self._by_filters = {}
        self.peers_changed()
        return lost

    def settle(self) -> None:
        """After many subscriptions at once: the next publications shall not wait for the index."""
        for of_subscriptions in self.clauses.values():
            of_subscriptions.settle()
        for of_groups in self._group_clauses.values():
            of_groups.settle()

    def _put_clause(self, inner: str, subscription: Subscription) -> None:
        clause = subscription.clause
        if clause is None:
            return
        known = self.clauses.get(inner)
        if known is None:
            known = self.clauses[inner] = WantedBySubscriptions(inner, clause.space)
            self._put(inner, _CLAUSES, known)
            if self.filter_changed is not None:
                self.filter_changed(f"{CLAUSE_LEVEL}/{inner}", True)
            self.changed(inner)
        subscription.filter = known.filter  # one text for all of them
        known.put(subscription, clause)
        if self.clause_changed is not None:
            self.clause_changed(subscription, clause, True)
        if self.clause_listed is not None:
            self.clause_listed(subscription, clause, True)

    def _take_clause(self, inner: str, subscription: Subscription) -> bool:
        """True if it was the last on its filter, and routes are others now."""
        if subscription.clause is None:
            return False
        known = self.clauses[inner]
        known.take(subscription)
        if self.clause_changed is not None:
            self.clause_changed(subscription, subscription.clause, False)
        if self.clause_listed is not None:
            self.clause_listed(subscription, subscription.clause, False)
        if not len(known):
            del self.clauses[inner]
            self._take(inner, _CLAUSES)
            if self.filter_changed is not None:
                self.filter_changed(f"{CLAUSE_LEVEL}/{inner}", False)
            return True
        return False

    def _put_group_clause(self, inner: str, group: Group) -> None:
        if group.clause is None:
            return
        known = self._group_clauses.get(inner)
        if known is None:
            known = self._group_clauses[inner] = WantedByGroups(inner, group.clause.space)
            self._put(inner, _GROUP_CLAUSES, known)
            self.changed(inner)
        known.put(group, group.clause)
        if self.clause_listed is not None:
            self.clause_listed(group, group.clause, True)

    def _take_group_clause(self, inner: str, group: Group) -> None:
        if group.clause is None:
            return
        known = self._group_clauses[inner]
        known.take(group)
        if self.clause_listed is not None:
            self.clause_listed(group, group.clause, False)
        if not len(known):
            del self._group_clauses[inner]
            self._take(inner, _GROUP_CLAUSES)

    def _put(self, inner: str, key: int | str, entry: _Entry) -> None:
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

    def _join(self, shared: SharedFilter, text: str, subscription: Subscription) -> None:
        key = shared.group, key_of(shared.filter, text)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key)
            group.clause = subscription.clause
            if text:
                self._put_group_clause(shared.filter, group)
            else:
                self._put(shared.filter, shared.group, group)
        group.add(subscription)
        self._groups_of.setdefault(subscription.session.number, {})[subscription.key] = group
        self.changed(shared.filter)
        if self.group_changed is not None:
            self.group_changed(group)

    def _leave(self, shared: SharedFilter, text: str, subscription: Subscription) -> None:
        session = subscription.session
        joined = self._groups_of[session.number]
        group = joined.pop(subscription.key)
        if not joined:
            del self._groups_of[session.number]
        group.remove(session)
        if not group.members:
            del self.groups[group.key]
            if text:
                self._take_group_clause(shared.filter, group)
            else:
                self._take(shared.filter, shared.group)
        if self.group_changed is not None:
            self.group_changed(group)

    def presence_changed(self, session: Session) -> Work:
        """A client came or went: its session's groups have one more, or fewer, to pick from."""
        joined = self._groups_of.get(session.number, {})
        for place, key in enumerate([*joined], 1):
            group = joined.get(key)
            if group is not None:  # it may have left meanwhile
                self._note(group, session)
            if not place % GROUPS_PER_PIECE:
                yield

    def _note(self, group: Group, session: Session) -> None:
        """Count a member as it is now."""
        group.note(session)
        if self.group_changed is not None:
            self.group_changed(group)

    def peers_changed(self, name: str | None = None) -> None:
        """What other brokers may have receivers for is not what it was; or what this one may."""
        search = self.search_peer
        count = len(self.routes) + len(self._old_routes)
        if name is None or search is None or count > ROUTES_RECHECKED_MAX:
            self._forget_routes()
            return
        for routes in (self.routes, self._old_routes):
            if not routes:
                continue
            topics = list(routes)
            governed = [topic for topic in topics if routes[topic].space is not None]
            wants = search(name, [*map(with_clauses, governed)]) if governed else ()
            may_want = dict(zip(governed, wants, strict=True))
            for topic, may_match in zip(topics, search(name, topics), strict=True):
                route = routes[topic]
                if may_match != (name in route.peers) or (
                    topic in may_want
                    and (may_want[topic] or may_match) != (name in route.clause_peers)
                ):
                    del routes[topic]

    def changed(self, inner: str) -> None:
        """Who gets what matches this filter has: routes that could have come from it go."""
        if "+" in inner or "#" in inner:
            self._forget_routes()
            return
        self._throw_away(self._by_filters)
        self._by_filters = {}
        topic = inner.encode()
        self.routes.pop(topic, None)
        self._old_routes.pop(topic, None)

    def _forget_routes(self) -> None:
        self._throw_away(self.routes, self._old_routes, self._by_filters)
        self.routes = {}
        self._old_routes = {}
        self._by_filters = {}

    def _throw_away(self, *routes: dict[Any, Route]) -> None:
        self._refuse += [some for some in routes if len(some) > ROUTES_FREED_AT_ONCE]

    def _free(self, count: int) -> None:
        """So many routes that were thrown away."""
        while self._refuse and count > 0:
            some = self._refuse[-1]
            for _ in range(min(count, len(some))):
                some.popitem()
                count -= 1
            if not some:
                self._refuse.pop()

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
        route = self._resolve((topic,), SEARCH_STEPS_PER_PIECE).get(topic)
        return in_one_go(self.search(topic)) if route is None else route

    def look_up(self, topic: bytes) -> Route | None:
        """The same as `find`, but None if finding it takes long: that is for `search`."""
        route = self.routes.get(topic)
        if route is not None:
            return route
        self.check(topic)
        return self._resolve((topic,), SEARCH_STEPS_PER_PIECE).get(topic)

    def prepare(self, topics: Sequence[bytes]) -> None:
        """Find the routes of many topics at once, if it does not take long.

        Those that are not valid are left for `look_up`, too.
        """
        valid = []
        for topic in topics:
            try:
                self.check(topic)
            except ClientError:
                continue
            valid.append(topic)
        self._resolve(valid, SEARCH_STEPS_MAX)

    def _resolve(self, topics: Sequence[bytes], steps_max: int) -> dict[bytes, Route]:
        """The routes of these (valid) topics, which are kept too, but for those that take long."""
        old = self._old_routes
        found = {topic: old[topic] for topic in topics if topic in old}
        unknown = [topic for topic in topics if topic not in found] if found else topics
        if unknown:
            self.computed += len(unknown)
            by_filters = self._by_filters
            matched = self._trie.match_some(unknown, steps_max)
            for topic, numbers, rest in zip(unknown, matched, self._search(unknown), strict=True):
                if numbers is None or self._are_many(numbers):
                    continue
                key = (numbers, *rest)
                route = by_filters.get(key)
                if route is None:
                    entries = _Entries()
                    entries.add(self._entries(numbers))
                    receivers = in_one_go(receivers_of(entries.subscriptions))
                    route = self._build(entries, receivers, *rest)
                    if not route.is_heavy:
                        by_filters[key] = route
                found[topic] = route
        self._keep(found)
        return found

    def _are_many(self, numbers: Iterable[int]) -> bool:
        """Are there many subscriptions to one of these filters?"""
        value = self._trie.value
        return any(
            isinstance(at := value(number), dict) and len(at) > RECEIVERS_PER_PIECE
            for number in numbers
        )

    def search(self, topic: bytes, *, is_kept: bool = True) -> Generator[None, None, Route]:
        """Find the route of a (valid) topic, in pieces, however many filters match it.

        It has all who have subscribed from the beginning to the end, and maybe some who came or
        went in between. Then it is good for what was published before, and is not kept.
        """
        changes = self.changes
        entries = _Entries()
        for numbers in self._trie.search(topic, SEARCH_STEPS_PER_PIECE):
            for entry in list(self._entries(numbers)):
                entries.add((entry,))
                if not entries.count % RECEIVERS_PER_PIECE:
                    yield
            yield
        receivers = yield from receivers_of(entries.subscriptions)
        (rest,) = self._search((topic,))
        route = self._build(entries, receivers, *rest)
        if is_kept and changes == self.changes:
            self._keep({topic: route})
        return route

    def rehearse(self, topic: bytes) -> Route:
        """The route of a (valid) topic, for people: nothing is kept of it."""
        return in_one_go(self.search(topic, is_kept=False))

    def _search(self, topics: Sequence[bytes]) -> Iterator[_Rest]:
        """What makes the routes of these topics, besides filters."""
        search = self.search_peers
        peers = [()] * len(topics) if search is None else search(topics)
        pools = [()] * len(topics) if self.search_groups is None else self.search_groups(topics)
        spaces = [self.spaces.governing(topic) for topic in topics]
        with_clauses = self._peers_with_clauses(topics, spaces)
        archives = self.is_archived
        archived = [False] * len(topics) if archives is None else [*map(archives, topics)]
        return zip(peers, pools, spaces, with_clauses, archived, strict=True)

    def _keep(self, found: dict[bytes, Route]) -> None:
        half = max(self._limits.routes_max // 2, 1)
        if len(self.routes) + len(found) > half:
            self._throw_away(self._old_routes)
            self._old_routes = self.routes
            self.routes = {}
        # In any case: topics too long to be kept lead to routes, too.
        if len(self._by_filters) > half:
            self._throw_away(self._by_filters)
            self._by_filters = {}
        if self._refuse:
            self._free(len(found) * ROUTES_FREED_PER_ROUTE)
        self.routes.update(
            (topic, route)
            for topic, route in islice(found.items(), half)
            if len(topic) <= ROUTE_TOPIC_BYTES_MAX and not route.is_heavy
        )

    def _peers_with_clauses(
        self, topics: Sequence[bytes], spaces: Sequence[Space | None]
    ) -> list[tuple[str, ...]]:
        """For each topic the brokers that may have clauses on it."""
        governed = [topic for topic, space in zip(topics, spaces, strict=True) if space is not None]
        if self.search_peers is None or not governed:
            return [()] * len(topics)
        found = dict(zip(governed, self.search_peers([*map(with_clauses, governed)]), strict=True))
        return [found.get(topic, ()) for topic in topics]

    def _build(
        self,
        entries: "_Entries",
        receivers: Receivers,
        peers: tuple[str, ...],
        pools: "tuple[Pool, ...]",
        space: Space | None,
        peers_with_clauses: tuple[str, ...],
        archived: bool,
    ) -> Route:
        with_clause = self._clauses_of(pools)
        wants = Wants(
            space,
            tuple(entries.clauses),
            tuple(entries.group_clauses),
            with_clause,
            peers_with_clauses,
        )
        plain = tuple(pool for pool in pools if not split_key(pool.key[1])[1])
        is_streamed = self.may_stream and space is not None and space.is_streamed
        return Route(
            receivers,
            tuple(entries.groups),
            peers,
            plain,
            wants,
            archived=archived,
            streamed=is_streamed,
        )

    def _clauses_of(self, pools: "tuple[Pool, ...]") -> "tuple[tuple[Clause, Pool], ...]":
        """The groups among these that have one which means something here."""
        found = []
        for pool in pools:
            inner, text = split_key(pool.key[1])
            clause = self.spaces.clause(inner, text) if text else None
            if clause is not None:
                found.append((clause, pool))
        return tuple(found)

    def _entries(self, numbers: Iterable[int]) -> Iterator[_Entry]:
        """Of the filters with these numbers in the trie."""
        for number in dict.fromkeys(numbers):
            at = self._trie.value(number)
            yield from at.values() if isinstance(at, dict) else (at,)

    def with_clauses(self, space: str) -> Iterator[tuple[Subscription | Group, Clause]]:
        """All that have one in this space."""
        for sets in (self.clauses.values(), self._group_clauses.values()):
            for one in sets:
                if one.space.name == space:
                    yield from ((entry, entry.clause) for entry in one if entry.clause is not None)

    def matching(self, topic: bytes) -> list[_Entry]:
        """Everything here that matches it, for people; routes do not go by this."""
        found: list[_Entry] = []
        for at in self._trie.match(topic):
            found += at.values() if isinstance(at, dict) else (at,)
        return [one for one in found if not (isinstance(one, Subscription) and one.session.is_over)]

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


def with_clauses(topic: bytes) -> bytes:
    """The topic that filters with clauses match in sketches."""
    return f"{CLAUSE_LEVEL}/".encode() + topic


def _key_of(entry: _Entry) -> int | str:
    if isinstance(entry, Subscription):
        return entry.session.number
    if isinstance(entry, Group):
        return entry.key[0]
    return _CLAUSES if isinstance(entry, WantedBySubscriptions) else _GROUP_CLAUSES


def _has_plain(at: _Entry | _Several | None) -> bool:
    """Does anybody subscribe to it without a group, or a clause?"""
    if isinstance(at, dict):
        return any(isinstance(key, int) for key in at)
    return isinstance(at, Subscription)
