"""Deliver the matches of a task to brokers: in order, in bounded requests, with retries.

Rules:

- One task has all rows of a publishing broker, so each broker gets them in their order. Brokers
  are served in parallel, each with one request at a time.
- If a broker is away or refuses, the request is repeated for a bounded time. Then the broker is
  `behind`: it gets nothing more from this task. The task reports from which row on, and continues
  with the other brokers.
- If a broker does not know an id any more, the subscription has moved or ended. The lists say
  where it is now, and the match is delivered there, whatever was delivered before.
- A repeated request or task may have lost an answer that named such ids. Then the lists are
  checked for all its ids.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from dovetail.api.engine import ClauseQuery, ClauseSubscription, DeliveryBatch, EngineMatch
from dovetail.api.http_client import NoAnswerError
from dovetail.pipeline.limits import ENGINE_BODY_BYTES, SERVE_BODY_MATCHES_MAX
from dovetail.pipeline.serve.broker_client import BrokerClient, DeliveryTarget
from dovetail.pipeline.serve.clause_shipment import ListVersion

_AGAIN_SECONDS = 0.2
_AT_ONCE_MAX = 16
_ROW_BYTES = 64
"""Bytes of a publication in a request, besides its topic, payload, properties and ids."""
_ID_BYTES = 9


class ClauseLocator:
    """Finds where subscriptions are now: asks for changes of lists since they were shipped."""

    def __init__(
        self,
        brokers: BrokerClient,
        versions: Mapping[DeliveryTarget, ListVersion],
        group_targets: Mapping[int, tuple[DeliveryTarget, ...]],
    ) -> None:
        self._brokers = brokers
        self._versions = dict(versions)
        self._group_targets = group_targets
        self._put: dict[DeliveryTarget, dict[int, ClauseSubscription]] = {
            target: {} for target in versions
        }
        self._gone: dict[DeliveryTarget, set[int]] = {target: set() for target in versions}
        self._whole: set[DeliveryTarget] = set()

    def refresh(self, space: str) -> list[str]:
        """Refresh the lists of a space. Return the brokers that did not answer."""
        away = []
        for target in [one for one in self._versions if one.space == space]:
            try:
                self._refresh_list(target)
            except NoAnswerError:
                away.append(target.broker)
        return away

    def _refresh_list(self, target: DeliveryTarget) -> None:
        while True:
            listed = self._brokers.clause_changes(
                target.broker, ClauseQuery(target.space, *self._versions[target])
            )
            if listed is None:
                return
            put, gone = self._put[target], self._gone[target]
            if listed.is_whole:
                put.clear()
                gone.clear()
                self._whole.add(target)
            for entry in listed.put:
                put[entry.id] = entry
                gone.discard(entry.id)
            for number in listed.gone:
                put.pop(number, None)
                gone.add(number)
            self._versions[target] = ListVersion(listed.life, listed.version)
            if not listed.has_more:
                return

    def has_left(self, target: DeliveryTarget, number: int) -> bool:
        """Has a subscription that was shipped with this target left it since?"""
        if target in self._whole:
            return number not in self._put[target]
        return number in self._gone[target]

    def targets_of(self, space: str, number: int) -> list[DeliveryTarget]:
        """Return where a subscription is now. A group is at one of its brokers."""
        found = [
            target for target, put in self._put.items() if target.space == space and number in put
        ]
        if any(self._put[target][number].is_group for target in found):
            return found[:1]
        if not found and number in self._group_targets:
            there = self._group_targets[number]
            found = [one for one in there if not self.has_left(one, number)][:1]
        return found


@dataclass
class _RequestBody:
    """The matches of one request."""

    target: DeliveryTarget
    is_moved: bool
    matched: list[EngineMatch] = field(default_factory=list)
    bytes: int = 0
    matches: int = 0

    def add(self, one: EngineMatch) -> None:
        self.matched.append(one)
        self.matches += 1 + len(one.ids)
        self.bytes += _ROW_BYTES + len(one.topic) + len(one.payload) + len(one.properties)
        self.bytes += _ID_BYTES * len(one.ids)

    @property
    def is_full(self) -> bool:
        return self.bytes >= ENGINE_BODY_BYTES or self.matches >= SERVE_BODY_MATCHES_MAX


class DeliverySender:
    """Delivers the matches of one task."""

    def __init__(
        self,
        brokers: BrokerClient,
        engine: str,
        locator: ClauseLocator,
        *,
        wait_seconds: float,
        is_retry: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`is_retry`: Spark has started this task before."""
        self._brokers = brokers
        self._engine = engine
        self._locator = locator
        self._wait_seconds = wait_seconds
        self._is_retry = is_retry
        self._clock = clock
        self._sleep = sleep
        self._threads = ThreadPoolExecutor(_AT_ONCE_MAX, "dovetail-hand")
        self._locator_lock = threading.Lock()
        self._bodies: dict[tuple[DeliveryTarget, bool], _RequestBody] = {}
        self._under_way: dict[str, Future[None]] = {}
        self.behind: dict[tuple[str, str], int] = {}
        """By owner and publisher: the first sequence that the owner has not received."""
        self.deliveries = 0

    def add(self, target: DeliveryTarget, matched: EngineMatch, *, is_moved: bool = False) -> None:
        if (target.broker, matched.broker) in self.behind:
            self._mark_behind(target.broker, [matched])
            return
        key = target, is_moved
        body = self._bodies.setdefault(key, _RequestBody(target, is_moved))
        body.add(matched)
        if body.is_full:
            self._send(self._bodies.pop(key))

    def finish(self) -> None:
        for body in self._bodies.values():
            self._send(body)
        self._bodies.clear()
        for future in self._under_way.values():
            future.result()
        self._threads.shutdown()

    def _send(self, body: _RequestBody) -> None:
        """Send a request when the broker has answered the one before."""
        broker = body.target.broker
        if broker in self._under_way:
            self._under_way[broker].result()
        self._under_way[broker] = self._threads.submit(self._deliver, body)

    def _deliver(self, body: _RequestBody) -> None:
        owner = body.target.broker
        self._mark_behind(
            owner, [one for one in body.matched if (owner, one.broker) in self.behind]
        )
        body.matched = [one for one in body.matched if (owner, one.broker) not in self.behind]
        if not body.matched:
            return
        unknown = self._request(body)
        if unknown is None:
            return
        self.deliveries += sum(len(one.ids) for one in body.matched)
        # Ids that are unknown at their new place as well have ended: do not look again.
        if not body.is_moved and any(unknown.values()):
            with self._locator_lock:
                self._deliver_to_moved(body, unknown)

    def _request(self, body: _RequestBody) -> dict[int, list[int]] | None:
        """Send a request. Return the unknown ids by position in it; None if it failed."""
        target = body.target
        batch = DeliveryBatch(
            f"{self._engine}/{target.space}", target.space, body.matched, body.is_moved
        )
        since = self._clock()
        is_repeated = self._is_retry
        while True:
            try:
                taken = self._brokers.deliver(target.broker, batch)
                break
            except NoAnswerError:
                if self._clock() - since >= self._wait_seconds:
                    self._mark_behind(target.broker, body.matched)
                    return None
                is_repeated = True
                self._sleep(_AGAIN_SECONDS)
        if taken is None:  # the broker has dropped the space
            return {place: one.ids for place, one in enumerate(body.matched)}
        unknown = {place: list(ids) for place, ids in taken.unknown}
        if is_repeated and not body.is_moved:
            with self._locator_lock:
                self._add_moved_ids(body, unknown)
        return unknown

    def _add_moved_ids(self, body: _RequestBody, unknown: dict[int, list[int]]) -> None:
        self._locator.refresh(body.target.space)
        for place, one in enumerate(body.matched):
            left = [number for number in one.ids if self._locator.has_left(body.target, number)]
            if left:
                unknown[place] = sorted({*unknown.get(place, ()), *left})

    def _deliver_to_moved(self, body: _RequestBody, unknown: Mapping[int, list[int]]) -> None:
        space = body.target.space
        for broker in self._locator.refresh(space):
            # The ids may have moved there. The broker will get all of these rows when it is back.
            self._mark_behind(broker, body.matched)
        bodies: dict[DeliveryTarget, _RequestBody] = {}
        for place in sorted(unknown):
            one = body.matched[place]
            ids: dict[DeliveryTarget, list[int]] = {}
            for number in unknown[place]:
                for target in self._locator.targets_of(space, number):
                    ids.setdefault(target, []).append(number)
            for target, own in ids.items():
                moved = bodies.setdefault(target, _RequestBody(target, is_moved=True))
                moved.add(msgspec.structs.replace(one, ids=own))
        for moved in bodies.values():
            self._deliver(moved)

    def _mark_behind(self, owner: str, matched: Iterable[EngineMatch]) -> None:
        for one in matched:
            key = owner, one.broker
            self.behind[key] = min(one.sequence, self.behind.get(key, one.sequence))
