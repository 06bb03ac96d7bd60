"""Maps a topic to its route: subscriptions write tables here, publications read them. Pure.

A route has the receivers of all topics that match the same filters. Such topics share one route
object, so the broker can join a run of packets on different topics. Routes are cached by topic
until a subscription changes that could concern them (route_cache.py).

In a cluster a route also names the other brokers that may have a receiver. Their sketches
(peering/peer_tables.py) say which, once for each topic. Shared subscriptions do not use sketches:
every broker knows the groups of the cluster (peering/groups.py), and a route has the pools to pick
a member from.

Observers hear of filters, groups and clauses that come and go: the exchange with other brokers, the
matcher client, and the log of clauses that a stream follows.

Subscriptions with a where-clause (attributes/clauses.py) are in one set per filter, and a route has
the sets. So a change in a set invalidates no route. Sketches have such filters under another name:
a route distinguishes brokers that need every publication from brokers that need only those with
attributes.
Where a stream evaluates the clauses (engine_backlog.py), the route says so, and still has all that
the broker needs to evaluate them itself.

A session may have so many subscriptions that they are removed in slices (slices.py). Once a session
has ended no new route has it, even while its filters are still in the tables.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.attributes.clauses import Clause, key_of, split_key
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import ArchivedTopics, NoArchive
from dovetail.broker.delivery import Receivers, SubscriptionClauses, receivers_of
from dovetail.broker.limits import (
    FILTERS_PER_PIECE,
    GROUPS_PER_PIECE,
    RECEIVERS_PER_PIECE,
    SEARCH_STEPS_MAX,
    SEARCH_STEPS_PER_PIECE,
)
from dovetail.broker.other_brokers import NoPeers, PeerLookup
from dovetail.broker.route import (
    CLAUSE_LEVEL,
    AttributeRoute,
    Group,
    GroupClauses,
    GroupKey,
    Route,
    clause_topic,
)
from dovetail.broker.route_cache import RouteCache, RouteParts
from dovetail.broker.session import Session
from dovetail.broker.subscription import Subscription, SubscriptionKey, take_apart
from dovetail.broker.subscription_observer import SubscriptionObserver
from dovetail.codec.datatypes import check_text
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings import MqttSettings
from dovetail.slices import Work, run_to_end
from dovetail.topics.names import SharedFilter, check_name, split_shared
from dovetail.topics.trie import FilterTrie

if TYPE_CHECKING:
    from dovetail.broker.peering.groups import GroupPool


_Entry = Subscription | Group | SubscriptionClauses | GroupClauses
_EntryTable = dict[int | str, _Entry]  # by session number, or by the name of a group, or a set's
# Names that no group can have.
_CLAUSES = "\0"
_GROUP_CLAUSES = "\0\0"


class _MatchedEntries:
    """The table entries that match a topic, by kind."""

    __slots__ = ("clauses", "count", "group_clauses", "groups", "subscriptions")

    def __init__(self) -> None:
        self.count = 0
        self.subscriptions: dict[Session, list[Subscription]] = {}
        self.groups: list[Group] = []
        self.clauses: list[SubscriptionClauses] = []
        self.group_clauses: list[GroupClauses] = []

    def add(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self.count += 1
            if isinstance(entry, Subscription):
                if not entry.session.has_ended:
                    self.subscriptions.setdefault(entry.session, []).append(entry)
            elif isinstance(entry, Group):
                self.groups.append(entry)
            elif isinstance(entry, SubscriptionClauses):
                self.clauses.append(entry)
            else:
                self.group_clauses.append(entry)


class Router:
    """The subscriptions of all sessions, and the routes that follow from them."""

    def __init__(
        self,
        limits: MqttSettings,
        spaces: SpaceRegistry | None = None,
        cache: RouteCache | None = None,
        peers: PeerLookup | None = None,
        archive: ArchivedTopics | None = None,
    ) -> None:
        self.cache = RouteCache(limits.routes_max) if cache is None else cache
        self.count = 0
        self.changes = 0
        """Rises whenever a subscription comes, goes, or gets other options."""
        self.boxes = 0
        """The number of boxes of all subscriptions; one without a clause counts as one."""
        self.spaces = spaces or SpaceRegistry()
        self.archive = archive or NoArchive()
        self.clauses: dict[str, SubscriptionClauses] = {}
        """Subscriptions with clauses, by filter."""
        self._group_clauses: dict[str, GroupClauses] = {}
        self._with_clause: dict[Subscription, None] = {}  # also those without a space now
        self._limits = limits
        self.peers = peers or NoPeers()
        self._observers: list[SubscriptionObserver] = []
        self._unplaced: list[Subscription] = []
        self._trie: FilterTrie[_Entry | _EntryTable] = FilterTrie()
        self.groups: dict[GroupKey, Group] = {}
        self._groups_of: dict[int, dict[str, Group]] = {}  # by session number, and by filter
        self.computed = 0

    def observe(self, observer: SubscriptionObserver) -> None:
        """Tell this observer of every later change."""
        self._observers.append(observer)

    # Tables -------------------------------------------------------------------------------------

    def subscribe(self, session: Session, key: str, options: int, identifier: int) -> Subscription:
        """Add a subscription with this (valid) key, or change its options. Return it."""
        subscription = self.put(session, take_apart(key), options, identifier)
        self.place()
        return subscription

    def put(
        self, session: Session, parts: SubscriptionKey, options: int, identifier: int
    ) -> Subscription:
        """Begin to subscribe. `place` has to follow before anything else happens."""
        key, _, text, shared, inner, nbytes, boxes = parts
        known = session.subscriptions.get(key)
        self.changes += 1
        if known is not None:  # [MQTT-3.8.4-3]
            known.options = options
            known.identifier = identifier
            if shared is not None:
                self._update_group(self._groups_of[session.number][key], session)
            if not text:
                self.cache.invalidate(inner)
            elif shared is None and known.clause is not None:
                self.clauses[inner].options_changed(known)
            return known
        subscription = Subscription(session, key, options, identifier)
        session.subscriptions[key] = subscription
        session.filter_bytes += nbytes
        session.boxes += boxes
        self.boxes += boxes
        self.count += 1
        if text:
            subscription.clause = self.spaces.clause(inner, text)
            self._with_clause[subscription] = None
        if shared is not None:
            self._join(shared, text, subscription)
        elif text:
            self._put_clause(inner, subscription)
        else:
            self._unplaced.append(subscription)
        return subscription

    def place(self) -> None:
        """Put new plain subscriptions into the tables, all at once, and drop their routes."""
        unplaced, self._unplaced = self._unplaced, []
        if not unplaced:
            return
        filters = [subscription.filter.encode() for subscription in unplaced]
        for subscription, at in zip(
            unplaced, self._trie.setdefault_many(filters, unplaced), strict=True
        ):
            self._add(subscription.filter, subscription.session.number, subscription, at)
            self.cache.invalidate(subscription.filter)

    def unsubscribe(self, session: Session, key: str) -> bool:
        """Remove a subscription. Return False if there is none."""
        subscription = session.subscriptions.pop(key, None)
        if subscription is None:
            return False
        inner = self._remove(session, subscription)
        if inner:
            self.cache.invalidate(inner)
        return True

    def _remove(self, session: Session, subscription: Subscription) -> str:
        """Remove a subscription from the tables.

        Return the filter whose routes change, or an empty text if none do.
        """
        key = subscription.key
        self.changes += 1
        _, _, text, shared, _, nbytes, boxes = take_apart(key)
        session.filter_bytes -= nbytes
        session.boxes -= boxes
        self.boxes -= boxes
        self.count -= 1
        self._with_clause.pop(subscription, None)
        if shared is not None:
            self._leave(shared, text, subscription)
            return shared.filter
        if text:
            is_last = self._take_clause(subscription.filter, subscription)
            return subscription.filter if is_last else ""
        self._take(subscription.filter, session.number)
        return subscription.filter

    def retire(self, session: Session) -> Work:
        """Remove all subscriptions of an ended session, in pieces."""
        subscriptions = session.subscriptions
        is_long = len(subscriptions) > FILTERS_PER_PIECE
        if is_long:
            self.cache.clear()  # new routes do not have an ended session
        while subscriptions:
            for _ in range(min(len(subscriptions), FILTERS_PER_PIECE)):
                _, subscription = subscriptions.popitem()
                inner = self._remove(session, subscription)
                if inner and not is_long:
                    self.cache.invalidate(inner)
            if subscriptions:
                yield

    def change_spaces(self, spaces: SpaceRegistry) -> int:
        """Replace the spaces, and return how many subscriptions have no valid clause now.

        They stay in the tables until their space is back.
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
            if clause is None or clause.space != spaces.space_of_filter(inner):
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
        # Remove all before adding one: a set has the clauses of one space.
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
        self.cache.clear()
        return lost

    def settle(self) -> None:
        """Build the indexes after many changes, so that the next publication does not wait."""
        for of_subscriptions in self.clauses.values():
            of_subscriptions.update_index()
        for of_groups in self._group_clauses.values():
            of_groups.update_index()

    def _put_clause(self, inner: str, subscription: Subscription) -> None:
        clause = subscription.clause
        if clause is None:
            return
        known = self.clauses.get(inner)
        if known is None:
            known = self.clauses[inner] = SubscriptionClauses(inner, clause.space)
            self._put(inner, _CLAUSES, known)
            self._filter_changed(f"{CLAUSE_LEVEL}/{inner}", True)
            self.cache.invalidate(inner)
        subscription.filter = known.filter  # one text for all of them
        known.add(subscription, clause)
        self._clause_changed(subscription, clause, True)

    def _take_clause(self, inner: str, subscription: Subscription) -> bool:
        """Remove a clause. Return True if it was the last on its filter: then routes change."""
        if subscription.clause is None:
            return False
        known = self.clauses[inner]
        known.remove(subscription)
        self._clause_changed(subscription, subscription.clause, False)
        if not len(known):
            del self.clauses[inner]
            self._take(inner, _CLAUSES)
            self._filter_changed(f"{CLAUSE_LEVEL}/{inner}", False)
            return True
        return False

    def _put_group_clause(self, inner: str, group: Group) -> None:
        if group.clause is None:
            return
        known = self._group_clauses.get(inner)
        if known is None:
            known = self._group_clauses[inner] = GroupClauses(inner, group.clause.space)
            self._put(inner, _GROUP_CLAUSES, known)
            self.cache.invalidate(inner)
        known.add(group, group.clause)
        self._clause_changed(group, group.clause, True)

    def _take_group_clause(self, inner: str, group: Group) -> None:
        if group.clause is None:
            return
        known = self._group_clauses[inner]
        known.remove(group)
        self._clause_changed(group, group.clause, False)
        if not len(known):
            del self._group_clauses[inner]
            self._take(inner, _GROUP_CLAUSES)

    def _put(self, inner: str, key: int | str, entry: _Entry) -> None:
        self._add(inner, key, entry, self._trie.setdefault(inner, entry))

    def _add(self, inner: str, key: int | str, entry: _Entry, at: _Entry | _EntryTable) -> None:
        """Add an entry to what the trie has for its filter: one entry is kept without a dict."""
        known = None if at is entry else at
        if isinstance(key, int) and not _has_plain(known):
            self._filter_changed(inner, True)
        if isinstance(known, dict):
            known[key] = entry
        elif known is not None:
            self._trie[inner] = {_key_of(known): known, key: entry}

    def _take(self, inner: str, key: int | str) -> None:
        at = self._trie[inner]
        rest: _EntryTable | None = None
        if isinstance(at, dict) and len(at) > 1:
            del at[key]
            rest = at
        else:
            del self._trie[inner]
        if isinstance(key, int) and not _has_plain(rest):
            self._filter_changed(inner, False)

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
        self.cache.invalidate(shared.filter)
        self._group_changed(group)

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
        self._group_changed(group)

    def is_in_groups(self, session: Session) -> bool:
        return session.number in self._groups_of

    def presence_changed(self, session: Session) -> Work:
        """Update the groups of a session whose client came or went, in pieces."""
        joined = self._groups_of.get(session.number, {})
        for place, key in enumerate([*joined], 1):
            group = joined.get(key)
            if group is not None:  # the session may have left the group meanwhile
                self._update_group(group, session)
            if not place % GROUPS_PER_PIECE:
                yield

    def _update_group(self, group: Group, session: Session) -> None:
        """Update a group with the current state of a member."""
        group.update(session)
        self._group_changed(group)

    # Observers ------------------------------------------------------------------------------------

    def _filter_changed(self, topic_filter: str, is_there: bool) -> None:
        for observer in self._observers:
            observer.filter_changed(topic_filter, is_there)

    def _group_changed(self, group: Group) -> None:
        for observer in self._observers:
            observer.group_changed(group)

    def _clause_changed(self, entry: Subscription | Group, clause: Clause, is_there: bool) -> None:
        for observer in self._observers:
            observer.clause_changed(entry, clause, is_there)

    # Routes -------------------------------------------------------------------------------------

    def find(self, topic: bytes) -> Route:
        """Return the route of a topic. Raise ClientError if the topic is invalid."""
        route = self.cache.young.get(topic)
        if route is not None:
            return route
        self.check(topic)
        return self.route(topic)

    def route(self, topic: bytes) -> Route:
        """Return the route of a topic without checking it, however long it takes to find."""
        route = self._resolve((topic,), SEARCH_STEPS_PER_PIECE).get(topic)
        return run_to_end(self.search(topic)) if route is None else route

    def look_up(self, topic: bytes) -> Route | None:
        """Return the route like `find`, or None if it takes long: then use `search`."""
        route = self.cache.young.get(topic)
        if route is not None:
            return route
        self.check(topic)
        return self._resolve((topic,), SEARCH_STEPS_PER_PIECE).get(topic)

    def prepare(self, topics: Sequence[bytes]) -> None:
        """Cache the routes of these topics that are not cached, as far as it does not take long.

        `look_up` handles the others, and invalid topics.
        """
        routes = self.cache.young
        valid = []
        for topic in topics:
            if topic in routes:
                continue
            try:
                self.check(topic)
            except ClientError:
                continue
            valid.append(topic)
        if valid:
            self._resolve(valid, SEARCH_STEPS_MAX)

    def _resolve(self, topics: Sequence[bytes], steps_max: int) -> dict[bytes, Route]:
        """Find and cache the routes of these (valid) topics, except those that take long."""
        cache = self.cache
        found = cache.old_routes(topics)
        unknown = [topic for topic in topics if topic not in found] if found else topics
        if unknown:
            self.computed += len(unknown)
            matched = self._trie.match_some(unknown, steps_max)
            for topic, numbers, rest in zip(unknown, matched, self._search(unknown), strict=True):
                if numbers is None or (numbers and self._are_many(numbers)):
                    continue
                key = (numbers, *rest)
                route = cache.route_with(key)
                if route is None:
                    entries = _MatchedEntries()
                    entries.add(self._entries(numbers))
                    receivers = run_to_end(receivers_of(entries.subscriptions))
                    route = self._build(entries, receivers, *rest)
                    cache.share(key, route)
                found[topic] = route
        cache.put(found)
        return found

    def _are_many(self, numbers: Iterable[int]) -> bool:
        """Does one of these filters have many subscriptions?"""
        value = self._trie.value
        return any(
            isinstance(at := value(number), dict) and len(at) > RECEIVERS_PER_PIECE
            for number in numbers
        )

    def search(self, topic: bytes, *, is_cached: bool = True) -> Generator[None, None, Route]:
        """Find the route of a (valid) topic in pieces, however many filters match it.

        It has every subscription that exists during the whole search, and maybe some that come or
        go meanwhile. If any did, the route serves only this publication and is not cached.
        """
        changes = self.changes
        entries = _MatchedEntries()
        for numbers in self._trie.search(topic, SEARCH_STEPS_PER_PIECE):
            for entry in list(self._entries(numbers)):
                entries.add((entry,))
                if not entries.count % RECEIVERS_PER_PIECE:
                    yield
            yield
        receivers = yield from receivers_of(entries.subscriptions)
        (rest,) = self._search((topic,))
        route = self._build(entries, receivers, *rest)
        if is_cached and changes == self.changes:
            self.cache.put({topic: route})
        return route

    def route_for_report(self, topic: bytes) -> Route:
        """Return the route of a (valid) topic for a report, without caching it."""
        return run_to_end(self.search(topic, is_cached=False))

    def _search(self, topics: Sequence[bytes]) -> Iterator[RouteParts]:
        """Return the parts of these topics' routes that do not come from filters."""
        spaces: Sequence[Space | None] = [None] * len(topics)
        if self.spaces.all:
            spaces = [self.spaces.space_of_topic(topic) for topic in topics]
        return zip(
            self.peers.search(topics),
            self.peers.search_groups(topics),
            spaces,
            self._peers_with_clauses(topics, spaces),
            map(self.archive.archives, topics),
            strict=True,
        )

    def _peers_with_clauses(
        self, topics: Sequence[bytes], spaces: Sequence[Space | None]
    ) -> list[tuple[str, ...]]:
        """Return for each topic the brokers that may have clauses on it."""
        if not any(spaces):
            return [()] * len(topics)
        governed = [topic for topic, space in zip(topics, spaces, strict=True) if space is not None]
        found = dict(zip(governed, self.peers.search([*map(clause_topic, governed)]), strict=True))
        return [found.get(topic, ()) for topic in topics]

    def _build(
        self,
        entries: "_MatchedEntries",
        receivers: Receivers,
        peers: tuple[str, ...],
        pools: "tuple[GroupPool, ...]",
        space: Space | None,
        peers_with_clauses: tuple[str, ...],
        archived: bool,
    ) -> Route:
        with_clause = self._clauses_of(pools)
        wants = AttributeRoute(
            space,
            tuple(entries.clauses),
            tuple(entries.group_clauses),
            with_clause,
            peers_with_clauses,
        )
        plain = tuple(pool for pool in pools if not split_key(pool.key[1])[1])
        is_streamed = self.archive.takes_streams and space is not None and space.is_streamed
        return Route(
            receivers,
            tuple(entries.groups),
            peers,
            plain,
            wants,
            archived=archived,
            streamed=is_streamed,
        )

    def _clauses_of(self, pools: "tuple[GroupPool, ...]") -> "tuple[tuple[Clause, GroupPool], ...]":
        """Return the pools that have a clause in a known space, with that clause."""
        found = []
        for pool in pools:
            inner, text = split_key(pool.key[1])
            clause = self.spaces.clause(inner, text) if text else None
            if clause is not None:
                found.append((clause, pool))
        return tuple(found)

    def _entries(self, numbers: Iterable[int]) -> Iterator[_Entry]:
        """Yield the entries of the filters with these numbers in the trie."""
        for number in dict.fromkeys(numbers):
            at = self._trie.value(number)
            yield from at.values() if isinstance(at, dict) else (at,)

    def with_clauses(self, space: str) -> Iterator[tuple[Subscription | Group, Clause]]:
        """Yield all subscriptions and groups that have a clause in this space."""
        for sets in (self.clauses.values(), self._group_clauses.values()):
            for one in sets:
                if one.space.name == space:
                    yield from ((entry, entry.clause) for entry in one if entry.clause is not None)

    def matching(self, topic: bytes) -> list[_Entry]:
        """Return every entry that matches a topic, for a report."""
        found: list[_Entry] = []
        for at in self._trie.match(topic):
            found += at.values() if isinstance(at, dict) else (at,)
        return [
            one for one in found if not (isinstance(one, Subscription) and one.session.has_ended)
        ]

    def check(self, topic: bytes) -> None:
        """Raise ClientError if the topic is invalid or too long."""
        limits = self._limits
        if (
            not topic
            or len(topic) > limits.topic_bytes_max
            or not topic.isascii()
            or b"+" in topic
            or b"#" in topic
            or b"\0" in topic
        ):
            check_text(topic, "the topic name")  # invalid UTF-8 is malformed, as in the codec
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


def _key_of(entry: _Entry) -> int | str:
    if isinstance(entry, Subscription):
        return entry.session.number
    if isinstance(entry, Group):
        return entry.key[0]
    return _CLAUSES if isinstance(entry, SubscriptionClauses) else _GROUP_CLAUSES


def _has_plain(at: _Entry | _EntryTable | None) -> bool:
    """Is there a subscription without a group and without a clause?"""
    if isinstance(at, dict):
        return any(isinstance(key, int) for key in at)
    return isinstance(at, Subscription)
