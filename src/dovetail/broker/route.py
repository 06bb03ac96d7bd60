"""Routes: the receivers of the publications on a topic. Pure.

router.py makes a route, and dispatch.py reads it. A subscriber with a where-clause gets a
publication only if its attributes satisfy the clause. So a route also has the clause sets, which
are searched for each publication.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dovetail.attributes.clauses import Clause, ClauseSet
from dovetail.attributes.space import Point, Space
from dovetail.broker.delivery import Delivery, Receivers, SubscriptionClauses
from dovetail.broker.limits import ROUTE_IDENTIFIERS_MAX
from dovetail.broker.session import Session
from dovetail.broker.subscription import Subscription
from dovetail.codec.run import Run

if TYPE_CHECKING:
    from dovetail.broker.peering.groups import GroupPool

CLAUSE_LEVEL = "$where\0"
"""The first level of filters with where-clauses in sketches. No client can subscribe to it."""

GroupKey = tuple[str, str]
"""The key of a group: its name, and its filter with the where-clause (attributes/clauses.py)."""


class Group:
    """A shared subscription: each publication goes to one of its members (section 4.8.2)."""

    __slots__ = (
        "_counted",
        "_next",
        "_order",
        "clause",
        "connected",
        "key",
        "members",
        "persistent",
    )

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.clause: Clause | None = None
        self.members: dict[int, Subscription] = {}
        self.connected = 0
        """The number of members that are connected, as of the last `update` of each."""
        self.persistent = 0
        """The number of members that can queue: persistent session, QoS 1 or 2."""
        self._counted: dict[int, tuple[bool, bool]] = {}
        self._order: tuple[Subscription, ...] | None = None
        self._next = 0

    def add(self, subscription: Subscription) -> None:
        self.members[subscription.session.number] = subscription
        self._order = None
        self.update(subscription.session)

    def remove(self, session: Session) -> None:
        del self.members[session.number]
        self._order = None
        self._count(session.number, (False, False))
        del self._counted[session.number]

    def update(self, session: Session) -> None:
        """Update the counts with the current state of a member."""
        member = self.members[session.number]
        is_kept = session.persistent and member.qos > 0
        self._count(session.number, (session.link is not None, is_kept))

    def _count(self, number: int, now: tuple[bool, bool]) -> None:
        before = self._counted.get(number, (False, False))
        self._counted[number] = now
        self.connected += now[0] - before[0]
        self.persistent += now[1] - before[1]

    @property
    def has_ended_members(self) -> bool:
        """Are sessions that have ended still among its members?"""
        return any(member.session.has_ended for member in self.members.values())

    def pick(self, qos: int) -> Subscription | None:
        """Return the next member in turn. Connected, uncongested members come first."""
        if self._order is None:
            self._order = tuple(self.members.values())
        members = self._order
        count = len(members)
        self._next += 1
        later: Subscription | None = None
        for i in range(count):
            member = members[(self._next + i) % count]
            if member.session.has_ended:
                continue
            link = member.session.link
            if link is not None and not link.congested:
                return member
            if later is None and (link is not None or (qos and member.qos)):
                later = member
        return later


class Route:
    """The receivers of a publication. Routes do not change: a new subscription makes new ones."""

    __slots__ = (
        "archived",
        "clause_only_peers",
        "clause_peers",
        "clause_pools",
        "clauses",
        "deliveries",
        "group_clauses",
        "groups",
        "has_fields",
        "has_other_receivers",
        "is_heavy",
        "is_nowhere",
        "is_special",
        "joins_publishers",
        "own",
        "peers",
        "pools",
        "reads_attributes",
        "reads_payload",
        "singles",
        "space",
        "streamed",
        "takes_attributes",
        "takes_runs",
    )

    def __init__(
        self,
        receivers: Receivers,
        groups: tuple[Group, ...],
        peers: tuple[str, ...] = (),
        pools: "tuple[GroupPool, ...]" = (),
        wants: "AttributeRoute | None" = None,
        *,
        archived: bool = False,
        streamed: bool = False,
    ) -> None:
        self.archived = archived
        """Are publications of its topics written to the archive?"""
        self.streamed = streamed
        """Does a stream evaluate the clauses, if a publication has attributes?"""
        self.deliveries, self.own = receivers
        self.groups = groups
        self.peers = peers
        self.pools = pools
        wants = wants or _NOTHING_WANTED
        self.space = wants.space
        self.clauses = wants.clauses
        self.group_clauses = wants.group_clauses
        self.clause_pools = wants.pools
        self.clause_peers = tuple(dict.fromkeys((*peers, *wants.peers)))
        """The brokers that may need a publication with attributes."""
        self.clause_only_peers = tuple(name for name in wants.peers if name not in peers)
        """Those of them that need a publication only if a clause holds."""
        self.has_other_receivers = bool(
            archived or streamed or pools or wants.pools or self.clause_peers
        )
        """Do publications also go elsewhere than to sessions here?"""
        self.is_nowhere = self.space is None and self.is_empty_here and not self.has_other_receivers
        """Does nobody receive its publications, and nobody read their attributes?"""
        self.reads_attributes = bool(
            wants.clauses or wants.group_clauses or wants.pools or wants.peers
        )
        """Do the receivers depend on attributes?"""
        self.has_fields = self.space is not None and self.space.json_fields
        """May publications have attributes in their payload? At QoS 1 and 2 the broker refuses
        those that it cannot read, wanted or not."""
        self.reads_payload = self.has_fields and (self.reads_attributes or streamed)
        # One flag for everything that can keep packets from being passed on as they came.
        self.is_special = bool(groups or pools or self.own or self.reads_payload)
        self.takes_runs = not (groups or pools)
        """Can a run be published as a whole, if its packets have no attributes?"""
        self.takes_attributes = self.takes_runs and not (
            streamed or wants.group_clauses or wants.pools
        )
        """And if they have attributes?"""
        needing = sum(not one.plain or one.session.is_handle for one in self.deliveries)
        self.singles = len(groups) + len(pools) + needing
        """The number of receivers that need each packet by itself, not a run of them."""
        self.joins_publishers = self.takes_runs and not (
            self.own or self.singles or self.clause_peers
        )
        """Can publications of several clients be one run? Then nobody asks who published them,
        except for clauses (`is_subscriber`)."""
        self.is_heavy = any(len(one.identifiers) > ROUTE_IDENTIFIERS_MAX for one in self.deliveries)
        """Does it have too many subscription identifiers to be cached?"""

    @property
    def is_empty_here(self) -> bool:
        return not (self.deliveries or self.groups or self.clauses or self.group_clauses)

    def is_subscriber(self, client_id: str) -> bool:
        """Has this client a clause here? It may want none of its own publications."""
        return any(clauses.is_owner(client_id) for clauses in self.clauses)

    def has_attributes(self, run: Run) -> bool:
        """May publications of this run have attributes?"""
        return self.space is not None and (self.has_fields or run.has_properties > 0)

    def needs_each_packet(self, client_id: str) -> bool:
        """Does each packet of this client have to be handled by itself?"""
        return bool(self.groups or self.pools or self.reads_payload or client_id in self.own)

    def deliveries_from(self, client_id: str) -> Iterable[Delivery]:
        """Return the deliveries of what this client published, with respect to No Local."""
        if client_id not in self.own:
            return self.deliveries
        own = self.own[client_id]
        others = (one for one in self.deliveries if one.session.client_id != client_id)
        return others if own is None else (*others, own)

    def deliveries_with(self, client_id: str, point: Point) -> Iterable[Delivery]:
        """Yield the deliveries with and without clauses that hold, one per session."""
        wanted: dict[Session, Delivery] = {}
        for clauses in self.clauses:
            for one in clauses.deliveries(point, client_id):
                known = wanted.get(one.session)
                wanted[one.session] = one if known is None else known.joined(one)
        for delivery in self.deliveries_from(client_id):
            more = wanted.pop(delivery.session, None)
            yield delivery if more is None else delivery.joined(more)
        yield from wanted.values()

    def receivers(self, client_id: str) -> Iterator[tuple[Session, int]]:
        """Yield the sessions here that may get what this client publishes, and their highest QoS.

        Which of them do depends on attributes, and on the members that groups pick.
        """
        for delivery in self.deliveries_from(client_id) if self.own else self.deliveries:
            yield delivery.session, delivery.qos
        for clauses in self.clauses:
            for session in clauses.sessions():
                yield session, 2
        for group in (*self.groups, *(one for some in self.group_clauses for one in some)):
            for member in group.members.values():
                yield member.session, member.qos

    def groups_for(self, point: Point) -> list[Group]:
        """Return the groups of this broker whose clauses hold."""
        return [group for clauses in self.group_clauses for group in clauses.find(point)]

    def pools_for(self, point: Point) -> "tuple[GroupPool, ...]":
        """Return all pools that get a publication with these attributes."""
        return (
            *self.pools,
            *(pool for clause, pool in self.clause_pools if clause.holds(point)),
        )


def clause_topic(topic: bytes) -> bytes:
    """Return the topic under which sketches have filters with clauses."""
    return f"{CLAUSE_LEVEL}/".encode() + topic


class GroupClauses(ClauseSet[Group]):
    """Clauses on one filter, of groups."""


class AttributeRoute(NamedTuple):
    """The part of a route that depends on attributes."""

    space: Space | None = None
    clauses: tuple[SubscriptionClauses, ...] = ()
    group_clauses: tuple[GroupClauses, ...] = ()
    pools: "tuple[tuple[Clause, GroupPool], ...]" = ()
    peers: tuple[str, ...] = ()


_NOTHING_WANTED = AttributeRoute()
