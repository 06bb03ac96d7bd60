"""What a task of a serving stream hands to brokers: in order, in bounded requests, until taken.

Rules:

- All rows of a publishing broker are in one task, so each broker gets them in their order. Brokers
  get theirs side by side, one request at a time each.
- A broker that is away, or says that it cannot, is asked again for a bounded time. After that it is
  `behind`: it gets nothing more from this task, which says from where on, and goes on with others.
- Ids that a broker does not have any more have moved, or gone. Lists say where they are now, and
  they are handed over there, whatever was taken before.
- A request that was repeated, and a task that is, may have got such an answer before that nobody
  has heard. Then lists are looked at for all its ids.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from dovetail.api.engine import Entry, Handover, Matched, Question
from dovetail.api.http_client import NoAnswerError
from dovetail.pipeline.limits import ENGINE_BODY_BYTES, SERVE_BODY_MATCHES_MAX
from dovetail.pipeline.serve.broker_client import Brokers, Target
from dovetail.pipeline.serve.clause_shipment import Mark

_AGAIN_SECONDS = 0.2
_AT_ONCE_MAX = 16
_ROW_BYTES = 64
"""Of a publication besides what is counted."""
_ID_BYTES = 9


class Moves:
    """What has changed in lists since they were shipped, asked for when it matters."""

    def __init__(
        self,
        brokers: Brokers,
        marks: Mapping[Target, Mark],
        spares: Mapping[int, tuple[Target, ...]],
    ) -> None:
        self._brokers = brokers
        self._marks = dict(marks)
        self._spares = spares
        self._put: dict[Target, dict[int, Entry]] = {target: {} for target in marks}
        self._gone: dict[Target, set[int]] = {target: set() for target in marks}
        self._whole: set[Target] = set()

    def look(self, space: str) -> list[str]:
        """At lists of a space, as they are now; who did not answer."""
        away = []
        for target in [one for one in self._marks if one.space == space]:
            try:
                self._follow(target)
            except NoAnswerError:
                away.append(target.broker)
        return away

    def _follow(self, target: Target) -> None:
        while True:
            listed = self._brokers.tell(target.broker, Question(target.space, *self._marks[target]))
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
            self._marks[target] = Mark(listed.life, listed.version)
            if not listed.has_more:
                return

    def has_left(self, target: Target, number: int) -> bool:
        """It was shipped as this target's, and is not there any more."""
        if target in self._whole:
            return number not in self._put[target]
        return number in self._gone[target]

    def places(self, space: str, number: int) -> list[Target]:
        """Where it is now; a group at one of its brokers."""
        found = [
            target for target, put in self._put.items() if target.space == space and number in put
        ]
        if any(self._put[target][number].is_group for target in found):
            return found[:1]
        if not found and number in self._spares:
            there = self._spares[number]
            found = [one for one in there if not self.has_left(one, number)][:1]
        return found


@dataclass
class _Body:
    """Publications that go together."""

    target: Target
    is_moved: bool
    matched: list[Matched] = field(default_factory=list)
    bytes: int = 0
    matches: int = 0

    def add(self, one: Matched) -> None:
        self.matched.append(one)
        self.matches += 1 + len(one.ids)
        self.bytes += _ROW_BYTES + len(one.topic) + len(one.payload) + len(one.properties)
        self.bytes += _ID_BYTES * len(one.ids)

    @property
    def is_full(self) -> bool:
        return self.bytes >= ENGINE_BODY_BYTES or self.matches >= SERVE_BODY_MATCHES_MAX


class Handing:
    """Of one task."""

    def __init__(
        self,
        brokers: Brokers,
        engine: str,
        moves: Moves,
        *,
        wait_seconds: float,
        is_again: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`is_again`: the task has been begun before."""
        self._brokers = brokers
        self._engine = engine
        self._moves = moves
        self._wait_seconds = wait_seconds
        self._is_again = is_again
        self._clock = clock
        self._sleep = sleep
        self._threads = ThreadPoolExecutor(_AT_ONCE_MAX, "dovetail-hand")
        self._moving = threading.Lock()
        self._bodies: dict[tuple[Target, bool], _Body] = {}
        self._under_way: dict[str, Future[None]] = {}
        self.behind: dict[tuple[str, str], int] = {}
        """By owner and publisher: from this sequence on the owner has not got its share."""
        self.deliveries = 0

    def add(self, target: Target, matched: Matched, *, is_moved: bool = False) -> None:
        if (target.broker, matched.broker) in self.behind:
            self._note_behind(target.broker, [matched])
            return
        key = target, is_moved
        body = self._bodies.setdefault(key, _Body(target, is_moved))
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

    def _send(self, body: _Body) -> None:
        """One after the other to each broker."""
        broker = body.target.broker
        if broker in self._under_way:
            self._under_way[broker].result()
        self._under_way[broker] = self._threads.submit(self._hand, body)

    def _hand(self, body: _Body) -> None:
        owner = body.target.broker
        self._note_behind(
            owner, [one for one in body.matched if (owner, one.broker) in self.behind]
        )
        body.matched = [one for one in body.matched if (owner, one.broker) not in self.behind]
        if not body.matched:
            return
        unknown = self._taken(body)
        if unknown is None:
            return
        self.deliveries += sum(len(one.ids) for one in body.matched)
        # Where it has moved to meanwhile, or gone, is not looked for a second time.
        if not body.is_moved and any(unknown.values()):
            with self._moving:
                self._hand_to_movers(body, unknown)

    def _taken(self, body: _Body) -> dict[int, list[int]] | None:
        """By place in the body, ids that are not there; None: it was not taken."""
        target = body.target
        handover = Handover(
            f"{self._engine}/{target.space}", target.space, body.matched, body.is_moved
        )
        since = self._clock()
        is_repeated = self._is_again
        while True:
            try:
                taken = self._brokers.take(target.broker, handover)
                break
            except NoAnswerError:
                if self._clock() - since >= self._wait_seconds:
                    self._note_behind(target.broker, body.matched)
                    return None
                is_repeated = True
                self._sleep(_AGAIN_SECONDS)
        if taken is None:  # it has no such space any more
            return {place: one.ids for place, one in enumerate(body.matched)}
        unknown = {place: list(ids) for place, ids in taken.unknown}
        if is_repeated and not body.is_moved:
            with self._moving:
                self._add_those_who_left(body, unknown)
        return unknown

    def _add_those_who_left(self, body: _Body, unknown: dict[int, list[int]]) -> None:
        self._moves.look(body.target.space)
        for place, one in enumerate(body.matched):
            left = [number for number in one.ids if self._moves.has_left(body.target, number)]
            if left:
                unknown[place] = sorted({*unknown.get(place, ()), *left})

    def _hand_to_movers(self, body: _Body, unknown: Mapping[int, list[int]]) -> None:
        space = body.target.space
        for broker in self._moves.look(space):
            # They may have moved there: it will get all of these rows when it is back.
            self._note_behind(broker, body.matched)
        bodies: dict[Target, _Body] = {}
        for place in sorted(unknown):
            one = body.matched[place]
            ids: dict[Target, list[int]] = {}
            for number in unknown[place]:
                for target in self._moves.places(space, number):
                    ids.setdefault(target, []).append(number)
            for target, own in ids.items():
                moved = bodies.setdefault(target, _Body(target, is_moved=True))
                moved.add(msgspec.structs.replace(one, ids=own))
        for moved in bodies.values():
            self._hand(moved)

    def _note_behind(self, owner: str, matched: Iterable[Matched]) -> None:
        for one in matched:
            key = owner, one.broker
            self.behind[key] = min(one.sequence, self.behind.get(key, one.sequence))
