"""A history by message, client and fault: the view that checkers read.

Pure. Terms:

- A **disturbance** is a fault together with its aftermath: it lasts until the tool next saw the
  cluster whole.
- A subscription is **established** when every broker knows it: with SUBACK in a calm cluster, and
  otherwise when the tool next saw the cluster whole.
- A client's session is **split** when a broker admits the client while another broker that may have
  its session is down or cut off. The client then has two sessions, until the cluster is whole.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from reliability.boxes import contains
from reliability.history import Box, Delivered, Exited, Outcome, Phase, Run
from reliability.topics import matches

HARMLESS = frozenset({"disk"})
"""Faults during which brokers still reach each other: they split no session."""

ENDS_PROCESS = frozenset({"kill", "clock", "stop", "restart", "rolling"})
"""Faults that restart a broker. A process that is stopped may be killed."""

MERGE_SECONDS = 8.0
"""How long the two sessions of a client take to become one, once the cluster is whole. A broker
that misses a marker of a session move requests it after 5 s, and checks once a second."""


@dataclass
class Publication:
    message: str
    publisher: str
    number: int
    topic: str
    qos: int
    node: str
    invoked_at: float
    retain: bool = False
    clears: bool = False
    attributes: dict[str, float] = field(default_factory=dict)
    is_will: bool = False
    outcome: Outcome = "unknown"
    reason: int = 0
    completed_at: float = inf
    nodes: tuple[str, ...] = ()
    """The brokers that it was sent to, in order."""
    sent_at: tuple[float, ...] = ()
    """The times of these sends."""

    @property
    def sends(self) -> int:
        """Return how often it was sent: at QoS 1 each copy may be delivered."""
        return len(self.nodes)

    @property
    def is_acknowledged(self) -> bool:
        return self.outcome == "ok" and self.qos > 0


@dataclass
class Connection:
    number: int
    client: str
    node: str
    invoked_at: float
    tried_since: float
    """When the client first sent CONNECT since it was last connected."""
    tried_nodes: tuple[str, ...]
    """Where it sent CONNECT since it was last connected: its session may be at any of them."""
    clean_start: bool
    expiry_seconds: int
    will: str = ""
    outcome: Outcome = "unknown"
    reason: int = 0
    connected_at: float = inf
    session_present: bool = False
    disconnect_at: float = inf
    """When the client sent DISCONNECT."""
    disconnect_outcome: Outcome = "unknown"
    disconnect_with_will: bool = False
    ended_at: float = inf
    lost: bool = False

    @property
    def is_up(self) -> bool:
        return self.outcome == "ok"


@dataclass
class Subscription:
    """One filter of one client, from SUBSCRIBE until UNSUBSCRIBE or the end of its session."""

    client: str
    node: str
    filter: str
    qos: int
    asked_at: float
    no_local: bool = False
    group: str = ""
    where: Box | None = None
    is_handle: bool = False
    granted_at: float = inf
    established_at: float = inf
    guaranteed_until: float = inf
    """The client must get publications that are acknowledged by then."""
    left_at: float = inf
    """The client must not get publications that start later."""

    def wants(self, publication: Publication) -> bool:
        """Return whether it matches a publication that has an identifier."""
        return (
            not publication.clears
            and matches(self.filter, publication.topic)
            and contains(self.where, publication.attributes)
            and not (self.no_local and publication.publisher == self.client)
        )

    def is_guaranteed(self, publication: Publication) -> bool:
        """Return whether an acknowledged publication must arrive, if the filter matches."""
        return (
            self.established_at <= publication.invoked_at
            and publication.completed_at <= self.guaranteed_until
        )


@dataclass
class Client:
    name: str
    connections: list[Connection] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    splits: list[tuple[float, float]] = field(default_factory=list)
    """The times of its splits: from the first CONNECT until its sessions have become one."""

    @cached_property
    def arrivals(self) -> dict[str, list[Delivered]]:
        """Return deliveries by message, without retained messages that answer a SUBSCRIBE."""
        arrivals: dict[str, list[Delivered]] = defaultdict(list)
        for delivery in self.deliveries:
            if not delivery.retain:
                arrivals[delivery.message].append(delivery)
        return dict(arrivals)

    @property
    def is_persistent(self) -> bool:
        """Return whether its session outlives its connections."""
        return all(one.expiry_seconds for one in self.connections)

    def by_filter(self) -> dict[str, list[Subscription]]:
        subscriptions: dict[str, list[Subscription]] = defaultdict(list)
        for subscription in self.subscriptions:
            subscriptions[subscription.filter].append(subscription)
        return dict(subscriptions)

    def was_away(self, since: float, until: float) -> bool:
        """Return whether one of its connections began or ended in this time."""
        return any(
            since <= one.ended_at <= until or since <= one.connected_at <= until
            for one in self.connections
        )

    def may_repeat(self, publication: Publication, at: float) -> bool:
        """Return whether two sessions of the client may both have had this message."""
        return any(since <= at and publication.invoked_at <= until for since, until in self.splits)


@dataclass
class Disturbance:
    number: int
    fault: str
    nodes: tuple[str, ...]
    detail: str
    began_at: float
    ended_at: float = inf
    """The fault was taken back."""
    over_at: float = inf
    """The cluster was whole again."""

    def overlaps(self, since: float, until: float) -> bool:
        return self.began_at <= until and since <= self.over_at


@dataclass
class Reading:
    topic: str
    node: str
    at: float
    message: str
    outcome: Outcome


@dataclass
class Record:
    run: Run | None = None
    publications: dict[str, Publication] = field(default_factory=dict)
    wills: dict[str, tuple[Publication, Connection]] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    disturbances: list[Disturbance] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    acknowledgements: list[tuple[str, float, tuple[str, ...]]] = field(default_factory=list)
    """Acknowledgements of handles: the handle, the time and the messages."""
    refusals: list[tuple[str, float, int]] = field(default_factory=list)
    """Failed requests for handles: the handle, the time and the status."""
    exits: list[Exited] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    operations: int = 0
    until: float = 0.0

    def disturbed(
        self, since: float, until: float, *nodes: str, harmless: bool = True
    ) -> Iterator[Disturbance]:
        """Yield disturbances of this time; with `nodes`, those that touch one of them."""
        for one in self.disturbances:
            if (
                one.overlaps(since, until)
                and (harmless or one.fault not in HARMLESS)
                and (not nodes or not one.nodes or set(nodes) & set(one.nodes))
            ):
                yield one

    def was_sent_in_two_sessions(self, publication: Publication) -> bool:
        """Return whether a message was sent again, and its publisher had two sessions by then."""
        publisher = self.clients.get(publication.publisher)
        return (
            publication.sends > 1
            and publisher is not None
            and publisher.may_repeat(publication, publication.completed_at)
        )

    def publications_of(self, publisher: str) -> list[Publication]:
        return self._by_publisher.get(publisher, [])

    @cached_property
    def _by_publisher(self) -> dict[str, list[Publication]]:
        publications: dict[str, list[Publication]] = defaultdict(list)
        for publication in self.publications.values():
            publications[publication.publisher].append(publication)
        return dict(publications)

    def whole_after(self, at: float) -> float:
        index = bisect_left(self.whole, at)
        return self.whole[index] if index < len(self.whole) else inf

    @property
    def is_partial(self) -> bool:
        """Return whether the run is incomplete. A history made by hand has no phases."""
        return bool(self.phases) and not self.has_reached("over")

    def has_reached(self, phase: str) -> bool:
        return any(one.name == phase for one in self.phases)
