"""Asks matchers which brokers have a matching clause before a publication goes there. Pure.

    dispatch ──> submit ──> [a line for each publisher] ──> matchers ──> verdict ──> resume

Sketches say which brokers have where-clauses on a topic, this one among them. Matchers know the
boxes of all brokers, and say at which of these brokers a clause holds. A broker that gets the
publication still evaluates its own clauses.

Rules:

- Without a timely and certain answer a publication goes to all brokers that may want it. Matchers
  save work; correctness does not depend on them.
- Publications of one client continue in order. One that needs no matcher waits for those before it,
  if it is in a space too. When a line is full, it continues without answers.
- The broker acknowledges a publication only after it has continued and been taken. Until then its
  QoS 2 packet identifier is not on disk either. Otherwise, after a restart, the broker would take a
  lost message for a duplicate.
- To matchers a changed space is a new one. Waiting publications then continue without answers.
- Matchers do not know spaces that a stream serves (engine_backlog.py). If the stream cannot take a
  publication there, it goes to all brokers that may want it.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple

import numpy as np

from dovetail.api.reports import MatchingReport, SkipReason
from dovetail.attributes.box_index import Slots
from dovetail.attributes.clauses import Clause
from dovetail.attributes.policies import POLICIES
from dovetail.attributes.space import Point
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.pending_publication import PendingPublication, PendingRun, Resumable
from dovetail.broker.route import Group, Route
from dovetail.broker.shared_state import SharedState
from dovetail.broker.subscription import Subscription
from dovetail.broker.subscription_observer import SubscriptionObserver
from dovetail.matcher.broker_side import Answer, BrokerSide
from dovetail.matcher.layout import Floats, layout_of, layouts_of
from dovetail.matcher.matcher_messages import (
    ANNOUNCEMENT,
    ANNOUNCEMENT_ACK,
    ANSWER,
    FEED_REPLY,
    LOADS,
)
from dovetail.matcher.publisher_order import PublisherOrder, QueuedPublication
from dovetail.matcher.question_batch import Verdict
from dovetail.matcher.rehearsal import explain
from dovetail.matcher.segment_tables import MatcherDirectory
from dovetail.messages import Message

FRAMES = frozenset({ANNOUNCEMENT})
"""Kinds of frames that other brokers send us."""

ANSWERS = frozenset({ANSWER, ANNOUNCEMENT_ACK, LOADS, FEED_REPLY})
"""Kinds of frames with which other nodes answer ours."""


class AskedRun(NamedTuple):
    """A run that matchers are asked about."""

    place: QueuedPublication[Resumable]
    pending: PendingRun
    rows: Slots
    """Its publications that have attributes. Only about these are matchers asked."""


Asked = QueuedPublication[Resumable] | AskedRun


class MatcherClient(SubscriptionObserver):
    """The matcher client of one broker. Implements `MatcherLookup`."""

    def __init__(
        self,
        shared: SharedState,
        membership: ClusterMembership,
        spaces: SpaceRegistry,
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        self.name = membership.name
        self._shared = shared
        self._spaces = spaces
        self._life = membership.incarnation
        self._send = membership.send
        self._random = random
        self._wake = wake
        self._order: PublisherOrder[Resumable] = PublisherOrder()
        self._numbers: dict[Subscription, list[int]] = {}
        self._free: list[int] = []
        self._next_number = 0
        self._new: dict[Subscription, Clause] = {}
        self._matchers_up: set[str] = set()
        self._records: dict[str, bytes] = {}
        self._peers_up: set[str] = set()
        self._peers_live: dict[str, bool] = {}
        self._is_due = True
        self._side, self._ids = self._make()

    def _make(self) -> tuple[BrokerSide[Asked], Mapping[str, str]]:
        spaces = [space for space in self._spaces.all if not space.is_streamed]
        layouts = {space.name: layout_of(space) for space in spaces}
        ids = {name: layout.id for name, layout in layouts.items()}
        side: BrokerSide[Asked] = BrokerSide(
            self.name,
            layouts_of(list(layouts.values())),
            self._life,
            self._send,
            self._random,
            policies={ids[space.name]: POLICIES[space.sharing.policy] for space in spaces},
        )
        return side, ids

    def spaces_changed(self, spaces: SpaceRegistry, sets: Iterable[Iterable[Subscription]]) -> None:
        """Begin anew with these spaces and sets of clauses. The caller has drained what waited."""
        self._spaces = spaces
        self._life = max(self._life, self._side.life) + 1
        self._side, self._ids = self._make()
        self._numbers.clear()
        self._free.clear()
        self._next_number = 0
        self._new = {
            one: one.clause
            for clauses in sets
            for one in clauses
            if one.clause is not None and one.clause.space.name in self._ids
        }
        for name, is_live in self._peers_live.items():
            self._side.announcer.peer_is_live(name, is_live)
        for name in sorted(self._peers_up):
            self._side.announcer.peer_is_up(name)
        for name, record in self._records.items():
            self._side.receive_record(name, record, self._shared.now)
        for name in sorted(self._matchers_up):
            self._side.matcher_is_up(name)
        self.tick()

    # Our boxes ------------------------------------------------------------------------------------

    def clause_changed(self, entry: Subscription | Group, clause: Clause, is_there: bool) -> None:
        if isinstance(entry, Group) or clause.space.name not in self._ids:
            return
        if is_there:
            self._new[entry] = clause
        elif self._new.pop(entry, None) is None:
            numbers = self._numbers.pop(entry)
            for number in numbers:
                self._side.discard(self._ids[clause.space.name], number)
            self._free += numbers
        self.tick()

    def _feed(self) -> None:
        """Announce all new boxes together."""
        new, self._new = self._new, {}
        by_space: dict[str, list[tuple[int, tuple[float, ...], tuple[float, ...]]]] = {}
        for subscription, clause in new.items():
            rows = by_space.setdefault(self._ids[clause.space.name], [])
            numbers = self._numbers[subscription] = []
            for box in clause.boxes:
                number = self._free.pop() if self._free else self._next_number
                self._next_number = max(self._next_number, number + 1)
                numbers.append(number)
                rows.append((number, box.lows, box.highs))
        for space, rows in by_space.items():
            chosen, lows, highs = zip(*rows, strict=True)
            self._side.put_many(
                space,
                np.array(chosen, np.int64),
                np.array(lows, np.float64),
                np.array(highs, np.float64),
            )

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Call `act` when all live brokers know our boxes, or at the deadline."""
        if not self._ids:
            act()  # no spaces
            return
        self._is_due = True
        self._feed()
        self._side.when_known(deadline, act)

    # Publications ---------------------------------------------------------------------------------

    def has_pending(self, client_id: str) -> bool:
        """Does a publication of this client wait?"""
        return not self._order.is_empty(client_id)

    def has_to_wait(self, route: Route, client_id: str, *, has_point: bool) -> bool:
        """Has a publication to wait for matchers, or for an earlier one that does?"""
        if not (self.has_pending(client_id) or (has_point and self._may_want(route))):
            return False
        if self._order.is_full(client_id):
            self.drain(client_id)
            return False
        return True

    def submit(
        self,
        route: Route,
        message: Message,
        point: Point | None,
        resume: Callable[[PendingPublication], None],
    ) -> PendingPublication | None:
        """Let a publication wait for an answer, or for an earlier one; None if it need not wait.

        `resume` is called when it may continue.
        """
        if message.retain:
            point = None
        if not self.has_to_wait(route, message.origin, has_point=point is not None):
            return None
        publication = PendingPublication(message, point, resume)
        place = self._order.append(message.origin, publication)
        may_want = () if point is None else self._may_want(route)
        if may_want and point is not None:
            values = np.array([point.values], np.float64)
            self._ask(route, values, may_want, place)
        else:
            self._continue(place)
        return publication

    def submit_run(self, pending: PendingRun) -> None:
        """Let a run wait that has to."""
        route, points = pending.route, pending.points
        place = self._order.append(pending.stored.origin, pending, pending.stored.packets)
        may_want = () if points is None else self._may_want(route)
        if not may_want or points is None:
            self._continue(place)
            return
        rows = np.flatnonzero(points.known)
        pending.ask(may_want, rows)
        if not len(rows):
            self._continue(place)
            return
        self._ask(route, points.values[rows], may_want, AskedRun(place, pending, rows))

    def _ask(self, route: Route, values: Floats, may_want: tuple[str, ...], asked: Asked) -> None:
        assert route.space is not None
        self._side.questions.submit_many(self._ids[route.space.name], values, may_want, asked)
        self._wake()

    def explain(self, route: Route, point: Point) -> tuple[SkipReason, MatchingReport | None]:
        """Return which matcher `submit` would ask and why, or why it would ask none."""
        assert route.space is not None
        if route.space.name not in self._ids:
            return "spark", None
        space = self._ids[route.space.name]
        may_want = self._may_want(route)
        if may_want:
            return "", explain(self._side, space, point.values, may_want, self._shared.now)
        return "here" if self._side.directory.now(space).names else "matchers", None

    @property
    def directory(self) -> MatcherDirectory:
        """The matchers and their segments, as this broker knows them."""
        return self._side.directory

    def _may_want(self, route: Route) -> tuple[str, ...]:
        """Return the brokers to ask about; none without matchers, or without peers to ask for."""
        space = route.space
        if space is None or space.name not in self._ids:
            return ()
        if not self._side.directory.now(self._ids[space.name]).names:
            return ()
        if not route.clause_only_peers:
            return ()  # evaluating local clauses is faster than asking
        brokers = route.clause_only_peers
        return tuple(sorted((*brokers, self.name) if route.clauses else brokers))

    def _continue(self, place: QueuedPublication[Resumable]) -> None:
        """Let a publication continue when all before it have."""
        for publication in self._order.complete(place):
            publication.resume()

    def drain(self, client_id: str | None = None) -> None:
        """Let the publications of one client, or of all, continue without answers."""
        for origin in self._order.origins() if client_id is None else [client_id]:
            for place in self._order.entries_of(origin):
                self._continue(place)

    def _apply(self, verdicts: Iterable[Verdict[Asked]]) -> None:
        for verdict in verdicts:
            asked = verdict.tag
            if isinstance(asked, AskedRun):
                place, pending, rows = asked
                if place.is_done:
                    continue  # it has continued without the answer
                pending.answer(rows[verdict.rows], verdict.states > 0)
                if not pending.rows_left:
                    self._continue(place)
            elif not asked.is_done:
                publication = asked.value
                assert isinstance(publication, PendingPublication)
                publication.matching_brokers = verdict.receivers
                self._continue(asked)

    # Other nodes ----------------------------------------------------------------------------------

    def matcher_is_up(self, name: str) -> None:
        """Note that a connection to this matcher is open."""
        self._matchers_up.add(name)
        self._side.matcher_is_up(name)
        self.tick()

    def matcher_is_down(self, name: str) -> None:
        self._matchers_up.discard(name)
        self._side.matcher_is_down(name, self._shared.now)
        self._apply(self._side.questions.take_verdicts())

    def receive_record(self, name: str, record: bytes | None) -> None:
        """Note a matcher's gossip record; None if it is dead, has left, or is no matcher."""
        if record is None:
            self._records.pop(name, None)
        else:
            self._records[name] = record
        self._side.receive_record(name, record, self._shared.now)
        self._apply(self._side.questions.take_verdicts())
        self.tick()

    def matcher_answered(self, name: str, kind: int, body: bytes) -> None:
        self._is_due = self._is_due or kind != ANSWER
        self._side.answered(name, kind, body, self._shared.now)
        self._apply(self._side.questions.take_verdicts())

    def peer_is_up(self, name: str, is_up: bool) -> None:
        """Note whether a connection to another broker is open."""
        self._is_due = True
        announcer = self._side.announcer
        if is_up:
            self._peers_up.add(name)
            announcer.peer_is_up(name)
        else:
            self._peers_up.discard(name)
            announcer.peer_is_down(name)

    def peer_is_live(self, name: str, is_live: bool) -> None:
        self._is_due = True
        self._peers_live[name] = is_live
        self._side.announcer.peer_is_live(name, is_live)

    def forget(self, name: str) -> None:
        self._is_due = True
        self._peers_up.discard(name)
        self._peers_live.pop(name, None)
        self._side.forget(name)

    def receive(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        """Take a frame from another broker, over a connection that it opened."""
        self._is_due = True
        self._side.receive(name, kind, body, answer)

    def tick(self) -> None:
        """Have the next turn send more than questions. Called some twenty times a second."""
        self._is_due = True
        if self._ids:
            self._wake()

    def turn(self) -> None:
        """Send questions, and whatever else is due. Called at the end of a turn."""
        if not self._ids:
            return  # no spaces
        if self._is_due:
            self._is_due = False
            self._feed()
            self._side.turn(self._shared.now)
        else:
            self._side.questions.flush(self._shared.now)
        self._apply(self._side.questions.take_verdicts())
