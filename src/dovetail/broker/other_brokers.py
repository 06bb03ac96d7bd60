"""What a broker asks of the others in its cluster, and what a broker alone has instead. Pure.

    PeerLookup     which other brokers may need a publication        router.py
    Forwarding     sends it there                                    dispatch.py
    MatcherLookup  which of them have a matching where-clause        dispatch.py
    RetainedOrder  which of two retained messages is later           dispatch.py
    OtherBrokers   sessions and subscriptions across the cluster     admission.py, subscribe.py

The package `peering/` implements these protocols. The classes here that begin with No stand for the
other brokers of a broker without any: so no module asks whether there is a cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dovetail.attributes.space import Point
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.route import Group, GroupKey, Route
from dovetail.broker.session import Session
from dovetail.errors import ClientError
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.peering.groups import GroupPool
    from dovetail.broker.pending_publication import PendingPublication, PendingRun

_NO_SCOPES: Mapping[str, Sequence[GroupKey]] = {}


class PeerLookup(Protocol):
    """What the router asks about the other brokers."""

    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[str, ...]]:
        """Return for each topic the brokers that may have a receiver."""
        ...

    def search_groups(self, topics: Sequence[bytes]) -> "Sequence[tuple[GroupPool, ...]]":
        """Return for each topic the matching groups of all brokers."""
        ...


class NoPeers:
    """Implements `PeerLookup`: nobody else may need anything."""

    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[str, ...]]:
        return [()] * len(topics)

    def search_groups(self, topics: Sequence[bytes]) -> "Sequence[tuple[GroupPool, ...]]":
        return [()] * len(topics)


class Forwarding(Protocol):
    """Sends publications to other brokers, and picks the members of shared subscriptions."""

    def forward(self, names: Iterable[str], stored: StoredRun) -> Ticket | None:
        """Forward a run. At QoS 1 the ticket says when all peers have it."""
        ...

    def publish(
        self,
        names: Iterable[str],
        message: Message,
        scopes: Mapping[str, Sequence[GroupKey]] = _NO_SCOPES,
        *,
        archived: int = 0,
    ) -> Ticket | None:
        """Forward a message. At QoS 1 and 2 the ticket says when all peers have it."""
        ...

    def everywhere(self, message: Message) -> tuple[str, ...]:
        """Stamp a retained message of ours, the latest of its topic; return all peers."""
        ...

    def needs_disk(self, route: Route, qos: int) -> bool:
        """Do this route's peers need the message on our disk first?"""
        ...

    def pick(
        self, route: Route, point: Point | None, qos: int
    ) -> tuple[Iterable[Group], Mapping[str, Sequence[GroupKey]]]:
        """Pick a broker for each group: return the groups that we serve, and those of each peer."""
        ...

    def share_elsewhere(self, group: Group, message: Message) -> bool:
        """Send to a member at another broker. Return False if there is no other broker."""
        ...

    def redistribute(self, group: Group, message: Message) -> None:
        """Send to one member of a group anywhere: the member picked before has not got it."""
        ...


class NoForwarding:
    """Implements `Forwarding` for a broker alone: all members of groups are here."""

    def __init__(self, local: LocalDelivery) -> None:
        self._local = local

    def forward(self, *_run: object) -> None:
        """Do nothing: there is nobody to wait for."""

    def publish(self, *_publication: object, **_options: object) -> None:
        """Do nothing: there is nobody to wait for."""

    def everywhere(self, message: Message) -> tuple[str, ...]:
        del message
        return ()

    def needs_disk(self, route: Route, qos: int) -> bool:
        del route, qos
        return False

    def pick(
        self, route: Route, point: Point | None, qos: int
    ) -> tuple[Iterable[Group], Mapping[str, Sequence[GroupKey]]]:
        del qos
        if point is None or not route.group_clauses:
            return route.groups, _NO_SCOPES
        return (*route.groups, *route.groups_for(point)), _NO_SCOPES

    def share_elsewhere(self, group: Group, message: Message) -> bool:
        del group, message
        return False

    def redistribute(self, group: Group, message: Message) -> None:
        self._local.share(group, message, [])


class MatcherLookup(Protocol):
    """Asks matchers which brokers have a matching clause."""

    name: str
    """The name of this broker."""

    def has_pending(self, client_id: str) -> bool:
        """Does a publication of this client wait?"""
        ...

    def has_to_wait(self, route: Route, client_id: str, *, has_point: bool) -> bool:
        """Has a publication to wait for matchers, or for an earlier one that does?"""
        ...

    def submit(
        self,
        route: Route,
        message: Message,
        point: Point | None,
        resume: "Callable[[PendingPublication], None]",
    ) -> "PendingPublication | None":
        """Let a publication wait for an answer; None if it need not wait."""
        ...

    def submit_run(self, pending: "PendingRun") -> None:
        """Let a run wait that has to."""
        ...


class NoMatchers:
    """Implements `MatcherLookup`: nothing waits."""

    name = ""

    def has_pending(self, client_id: str) -> bool:
        del client_id
        return False

    def has_to_wait(self, route: Route, client_id: str, *, has_point: bool) -> bool:
        del route, client_id, has_point
        return False

    def submit_run(self, pending: "PendingRun") -> None:
        raise AssertionError(f"a run waits for matchers that there are not: {pending.route}")

    def submit(self, *_publication: object) -> None:
        """Do nothing: the publication need not wait."""


class RetainedOrder(Protocol):
    """Orders the retained messages of all brokers."""

    def is_late(self, message: Message, known: Message | None) -> bool:
        """Has a later message on its topic come before?"""
        ...

    def put(self, message: Message) -> None:
        """Note a retained message."""
        ...

    def taken(self, message: Message) -> None:
        """Note that a message is not retained any more."""
        ...

    def remove(self, topic: bytes, stamp: int) -> None:
        """Note that the retained message of a topic was removed."""
        ...


class NoRetainedOrder:
    """Implements `RetainedOrder` for a broker alone: messages come in their order."""

    def is_late(self, message: Message, known: Message | None) -> bool:
        del message, known
        return False

    def put(self, message: Message) -> None:
        """Do nothing."""

    def taken(self, message: Message) -> None:
        """Do nothing."""

    def remove(self, topic: bytes, stamp: int) -> None:
        """Do nothing."""


class OtherBrokers(Protocol):
    """The cluster as far as clients, sessions and subscriptions need it."""

    @property
    def have_sessions(self) -> bool:
        """May a client's session be at another broker?"""
        ...

    def claim(
        self,
        client_id: str,
        user: str | None,
        is_clean: bool,
        act: Callable[[int | ClientError], None],
        *,
        may_begin: bool = True,
    ) -> None:
        """Get the session of a client from wherever it is, then act."""
        ...

    def moved_sessions(self) -> Iterable[Session]:
        """Return the sessions that have moved to other brokers and still redirect messages."""
        ...

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live brokers know our subscriptions, but at `deadline` at the latest."""
        ...

    def has_room_for(self, key: GroupKey) -> bool:
        """May a client here join this group?"""
        ...

    def resume_all(self) -> None:
        """Let all publications that wait for matchers continue without answers."""
        ...

    def spaces_changed(self) -> None:
        """Announce all clauses anew, in the router's new spaces."""
        ...

    def send_changes(self) -> None:
        """Send what changed here to the others. For the end of a turn."""
        ...


class NoOtherBrokers:
    """Implements `OtherBrokers` for a broker alone."""

    have_sessions = False

    def claim(
        self,
        client_id: str,
        user: str | None,
        is_clean: bool,
        act: Callable[[int | ClientError], None],
        *,
        may_begin: bool = True,
    ) -> None:
        del client_id, user, is_clean, may_begin
        act(0)

    def moved_sessions(self) -> Iterable[Session]:
        return ()

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        del deadline
        act()

    def has_room_for(self, key: GroupKey) -> bool:
        del key
        return True

    def resume_all(self) -> None:
        """Do nothing."""

    def spaces_changed(self) -> None:
        """Do nothing."""

    def send_changes(self) -> None:
        """Do nothing."""
