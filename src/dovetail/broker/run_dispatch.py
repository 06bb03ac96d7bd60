"""Sends runs along their route: neighbouring publications at once, as columns. Pure.

    run -> attributes -> matchers -> archive -> other brokers -> sessions here

A run (codec/run.py) stays bytes. Kernels read the attributes of all its packets, match them with
all boxes, and write the packets of each session into one buffer. `publish` takes a run of a client,
and `deliver` one that another broker has sent.

If matchers are asked (matcher_client.py), a run continues when they have answered for all its
publications. Each broker gets the rows that it has clauses for.

Some publications have to be looked at one by one: with attributes of a kind that kernels do not
read (kernels/points.py), for shared subscriptions, or for a stream. At QoS 0 `publish` takes such a
run apart. At QoS 1 it does nothing, and the caller publishes the packets (dispatch.py): each has an
acknowledgement of its own. Tests compare the ways.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dovetail.attributes.box_index import Slots
from dovetail.broker.archive_queue import ArchivedTopics
from dovetail.broker.delivery import Share
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.limits import RECEIVERS_PER_PIECE, RUN_DELIVERIES_MAX
from dovetail.broker.local_delivery import LocalDelivery, LocalEntry
from dovetail.broker.other_brokers import Forwarding, MatcherLookup
from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.pending_publication import PendingRun
from dovetail.broker.publication_point import RunPoints, points_of
from dovetail.broker.route import Route
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.codec.run import Flags, Run, first_packets, packets_of, rest_of


class RunOutcome(NamedTuple):
    """The outcome of a run that was published."""

    run: Run
    """The packets that were published: maybe only the first ones."""
    effort: int
    matched: Flags | None = None
    """Which of its publications have a subscriber. None: all of them."""
    entries: Sequence[LocalEntry] = ()
    """The QoS 1 deliveries that need the disk, or that are messages by themselves."""
    waits_for_disk: bool = False
    """Do its acknowledgements wait for the open batch of the journal?"""
    ticket: Ticket | None = None
    """At QoS 1: closes when matchers have answered, and the other brokers have the run."""


class RunDispatch:
    """The data plane of one broker, for runs."""

    def __init__(
        self,
        shared: SharedState,
        router: Router,
        dispatch: Dispatch,
        local: LocalDelivery,
        *,
        forwarding: Forwarding,
        matchers: MatcherLookup,
        archive: ArchivedTopics,
    ) -> None:
        self._shared = shared
        self._counters = shared.counters
        self._cache = router.cache
        self._dispatch = dispatch
        self._local = local
        self._forwarding = forwarding
        self._matchers = matchers
        self._archive = archive

    # From a client --------------------------------------------------------------------------------

    def publish(self, route: Route, run: Run, client_id: str) -> RunOutcome | None:
        """Publish a run of a client. Return None, with nothing done, if that is impossible.

        Each receiver gets it at its own QoS and version, with its own packet identifiers. If there
        are very many deliveries, only the first packets are published.
        """
        if run.qos:
            return self._publish_columns(route, run, client_id)
        if route.takes_runs and (
            route.space is None
            or not (
                run.has_properties or route.reads_payload or self._matchers.has_pending(client_id)
            )
        ):
            return self._publish_plain(route, run, client_id)
        outcome = self._publish_columns(route, run, client_id)
        return self._publish_each(route, run, client_id) if outcome is None else outcome

    def publish_joined(self, route: Route, run: Run) -> RunOutcome | None:
        """Publish a run of several clients (`Route.joins_publishers`) like `publish`."""
        if run.qos or route.has_attributes(run):
            return self._publish_columns(route, run, "")
        return self._publish_plain(route, run, "")

    def _publish_columns(self, route: Route, run: Run, client_id: str) -> RunOutcome | None:
        qos = run.qos
        space = route.space
        has_attributes = route.has_attributes(run)
        if not (route.takes_attributes if has_attributes else route.takes_runs):
            return None
        if qos and self._shared.journal.refuses_more:
            return None
        run = _first_packets(route, run, has_attributes=has_attributes)
        points = None
        if space is not None and has_attributes and (route.reads_attributes or qos):
            points = points_of(space, run)
            if points is None:
                return None
        if space is not None and self._matchers.has_to_wait(
            route, client_id, has_point=points is not None
        ):
            return self._wait_for_matchers(route, run, points, client_id)
        shares = _shares(route, client_id, qos, points)
        if shares is None:
            return None
        stored = StoredRun(run, client_id, None if points is None else points.starts)
        self._count_received(run)
        rows_before = self._shared.journal.rows_written
        if route.archived:
            self._archive_run(run)
        names = route.peers if points is None else route.clause_peers
        ticket = self._forwarding.forward(names, stored) if names else None
        entries: list[LocalEntry] = []
        effort = self._local.send_shares(shares, stored, entries)
        return RunOutcome(
            run,
            effort,
            None if names else _matched(run, shares),
            entries,
            self._shared.journal.rows_written != rows_before,
            ticket,
        )

    def _publish_plain(self, route: Route, run: Run, client_id: str) -> RunOutcome:
        """Publish a run at QoS 0 that needs no attributes: its bytes as they came."""
        if run.packets * route.singles > RECEIVERS_PER_PIECE:
            run = _first_packets(route, run, has_attributes=False)
        self._count_received(run)
        if route.archived:
            self._archive_run(run)
        if route.peers:
            self._forwarding.forward(route.peers, StoredRun(run, client_id))
        deliveries = route.deliveries_from(client_id) if route.own else route.deliveries
        is_each = self._local.send_run(deliveries, run)
        return RunOutcome(run, run.packets if is_each or route.archived else 0)

    def _publish_each(self, route: Route, run: Run, client_id: str) -> RunOutcome:
        """Publish the packets of a run at QoS 0 one by one."""
        receivers = 1 + len(route.deliveries) + len(route.groups) + len(route.pools)
        packets_max = max(RECEIVERS_PER_PIECE // receivers, 1)
        if run.packets > packets_max:
            run = first_packets(run, packets_max)
        self._count_received(run)
        stored = StoredRun(run, client_id)
        for row in range(run.packets):
            message = stored.message(row)
            route = self._cache.young.get(message.topic, route)
            self._dispatch.publish_on(route, message, self._dispatch.read(route, message).point)
        return RunOutcome(run, run.packets * receivers)

    def _count_received(self, run: Run) -> None:
        counters = self._counters
        counters.packets_received += run.packets
        counters.publishes_received += run.packets
        counters.publish_bytes_received += len(run.data)

    def _archive_run(self, run: Run) -> None:
        for part in packets_of(run):
            self._archive.add(part.topic, part.payload, run.qos, properties=part.properties)

    # With matchers --------------------------------------------------------------------------------

    def _wait_for_matchers(
        self, route: Route, run: Run, points: RunPoints | None, client_id: str
    ) -> RunOutcome:
        self._count_received(run)
        stored = StoredRun(run, client_id, None if points is None else points.starts)
        pending = PendingRun(route, self._cache.changes, stored, points, self._resume)
        self._matchers.submit_run(pending)
        ticket = pending if run.qos else None
        return RunOutcome(run, run.packets, None, pending.entries, ticket=ticket)

    def _resume(self, pending: PendingRun) -> None:
        """Publish a run that waited for matchers."""
        journal = self._shared.journal
        rows_before = journal.rows_written
        tickets = self._publish_matched(pending)
        combined = Ticket()
        if journal.rows_written != rows_before:
            journal.when_stored(combined.expect())
        for ticket in tickets:
            if ticket is not None:
                ticket.close(combined.expect())
        combined.close(pending.settle)

    def _publish_matched(self, pending: PendingRun) -> list[Ticket | None]:
        route, stored, points = pending.route, pending.stored, pending.points
        shares = None
        if pending.tables == self._cache.changes:  # otherwise the route may be another one now
            here = None
            if points is not None and route.clauses:
                here = pending.rows_of(self._matchers.name)
            shares = _shares(route, stored.origin, stored.qos, points, here)
        if shares is None:
            return [self._publish_row(pending, row) for row in range(stored.packets)]
        if route.archived:
            self._archive_run(stored.run)
        tickets = []
        if route.peers:
            tickets.append(self._forwarding.forward(route.peers, stored))
        if points is not None:
            for name in route.clause_only_peers:
                rows = pending.rows_of(name)
                if len(rows):
                    tickets.append(self._forwarding.forward((name,), stored.of_rows(rows)))
        self._local.send_shares(shares, stored, pending.entries)
        return tickets

    def _publish_row(self, pending: PendingRun, row: int) -> Ticket | None:
        message = pending.stored.message(row)
        entries, ticket = self._dispatch.publish_matched(message, pending.matching_brokers(row))
        pending.entries += entries or ()
        return ticket

    # From another broker --------------------------------------------------------------------------

    def deliver(self, route: Route, run: Run, client_id: str) -> int:
        """Deliver a run that a client has published at another broker.

        Return how many publications have no receiver here.
        """
        useless = 0
        while run.packets:
            has_attributes = route.has_attributes(run)
            first = _first_packets(route, run, has_attributes=has_attributes)
            useless += self._deliver(route, first, client_id, has_attributes=has_attributes)
            run = rest_of(run, first)
        return useless

    def _deliver(self, route: Route, run: Run, client_id: str, *, has_attributes: bool) -> int:
        points = None
        shares = None
        if has_attributes and route.clauses:
            assert route.space is not None
            points = points_of(route.space, run)
        if points is not None or not (has_attributes and route.clauses):
            shares = _shares(route, client_id, run.qos, points)
        stored = StoredRun(run, client_id, None if points is None else points.starts)
        if shares is not None:
            self._local.send_shares(shares, stored, [])
            matched = _matched(run, shares)
            return 0 if matched is None else run.packets - int(np.count_nonzero(matched))
        useless = 0
        for row in range(run.packets):
            message = stored.message(row)
            point = self._dispatch.read(route, message).point
            useless += self._dispatch.publish_here(route, message, point) is None
        return useless


def _first_packets(route: Route, run: Run, *, has_attributes: bool) -> Run:
    """Return as many packets of a run as may be passed on in one piece."""
    deliveries = float(len(route.deliveries))
    if has_attributes:
        deliveries += sum(clauses.deliveries_likely for clauses in route.clauses)
    packets_max = max(int(RUN_DELIVERIES_MAX / max(deliveries, 1.0)), 1)
    if route.singles:
        packets_max = min(packets_max, max(RECEIVERS_PER_PIECE // route.singles, 1))
    return first_packets(run, packets_max) if run.packets > packets_max else run


def _shares(
    route: Route,
    client_id: str,
    qos: int,
    points: RunPoints | None,
    rows: Slots | None = None,
) -> list[Share] | None:
    """Return what each session here gets of a run, or None if its packets need a look each.

    With `rows`, only these have a clause that holds here.
    """
    shares = [
        Share(one.session, min(one.qos, qos), None, one.identifiers)
        for one in (route.deliveries_from(client_id) if route.own else route.deliveries)
    ]
    if points is None or not route.clauses or (rows is not None and not len(rows)):
        return shares
    if rows is not None:
        points = points._replace(values=points.values[rows], known=points.known[rows])
    with_all = {share.session: share.qos for share in shares}
    with_clause: set[Session] = set()
    for clauses in route.clauses:
        found = clauses.shares(points, client_id, qos)
        if found is None:
            return None
        for share in found:
            session = share.session
            if session in with_clause or with_all.get(session, 2) < share.qos:
                return None  # what it gets has to be joined
            if session not in with_all:
                with_clause.add(session)
                if rows is not None:
                    mine = rows if share.rows is None else rows[share.rows]
                    share = share._replace(rows=mine)  # noqa: PLW2901
                shares.append(share)
    return shares


def _matched(run: Run, shares: Iterable[Share]) -> Flags | None:
    """Return which publications of a run have a subscriber here; None if all have."""
    matched = np.zeros(run.packets, np.uint8)
    for share in shares:
        if share.rows is None:
            return None
        matched[share.rows] = 1
    return matched
