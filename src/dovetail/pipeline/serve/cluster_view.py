"""Who is there, and what each broker lists: the driver's view of a cluster.

Rules:

- Brokers are asked side by side. One that has not answered in time is away; it is asked on, and
  nobody waits for it until it has answered.
- An answer that comes late counts when it is there: a broker is not asked twice at once.
- Spaces are as the first broker that answers has them. A clause that they do not explain is a
  reason to look again, for a while: brokers change their settings one after the other.
"""

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass

from dovetail.api.engine import Listed, Question
from dovetail.api.http_client import NoAnswerError
from dovetail.pipeline.limits import SERVE_SPACES_SECONDS
from dovetail.pipeline.match.boxes import RefusedError
from dovetail.pipeline.serve.broker_client import Brokers, Target
from dovetail.pipeline.serve.clause_shipment import Clauses, Shipment

log = logging.getLogger("dovetail.stream")

_AGAIN_SECONDS = 0.2
_ANSWERS_AT_ONCE = 16

Answers = list[tuple[Target, Listed | None]]


@dataclass(frozen=True)
class Timing:
    """How long things may take, and by which clock."""

    wait_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Following:
    """See the module."""

    def __init__(self, brokers: Brokers, timing: Timing) -> None:
        self._brokers = brokers
        self._timing = timing
        self._clauses = Clauses()
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-follow")
        self._asked: dict[str, Future[Answers]] = {}
        self._spaces_at: float | None = None
        self._is_alone = False
        """Nobody answers."""
        self.members: frozenset[str] = frozenset()
        self.away: set[str] = set()
        """Of these, who does not answer."""
        self.served_before: dict[Target, int] = {}
        """Of each list that was heard of, what the broker said first."""

    @property
    def clauses(self) -> Clauses:
        return self._clauses

    # Members --------------------------------------------------------------------------------------

    def find_members(self) -> frozenset[str]:
        """Who the cluster has forgotten since."""
        try:
            members = self._brokers.members()
        except NoAnswerError as error:
            if not self.members:
                raise
            if not self._is_alone:
                log.warning("no node names the brokers of the cluster: %s", error.message)
            self._is_alone = True
            return frozenset()
        self._is_alone = False
        forgotten = self.members - members
        for name in forgotten:
            self._clauses.forget(name)
            self._asked.pop(name, None)
            self.away.discard(name)
        self.members = members
        return forgotten

    def say_away(self, name: str, why: str) -> None:
        if name not in self.away:
            self.away.add(name)
            log.warning("%s is not there; others go on, and it is owed its share: %s", name, why)

    # Spaces ---------------------------------------------------------------------------------------

    def look_at_spaces(self, *, now: bool = True) -> None:
        """Which there are. Not `now`: if the last look was long ago."""
        clock = self._timing.clock()
        if not now and clock - (self._spaces_at or 0.0) < SERVE_SPACES_SECONDS:
            return
        failed: NoAnswerError | None = None
        for name in sorted(self.members - self.away):
            try:
                self._clauses.change_spaces(self._brokers.spaces(name))
            except NoAnswerError as error:
                failed = failed or error
                continue
            self._spaces_at = clock
            return
        if failed is not None and self._spaces_at is None:
            raise failed

    # Lists ----------------------------------------------------------------------------------------

    def follow(self, spaces: Collection[str], served: Callable[[str], int], *, waits: bool) -> None:
        """All lists of these spaces. `served`: what to tell a broker of its own rows.

        `waits`: until everybody has answered who is not away, and who has not by then is.
        """
        timing = self._timing
        until = timing.clock() + timing.wait_seconds
        wanted = {*self.members}
        while True:
            for name in wanted - self._asked.keys():
                questions = [
                    self._clauses.question(Target(space, name), served(name))
                    for space in sorted(spaces)
                ]
                self._asked[name] = self._threads.submit(self._answers, name, questions)
            expected = wanted - self.away
            left = until - timing.clock() if waits else 1.0
            wait_for([self._asked[name] for name in expected], max(left, 0))
            wanted = {name for name in wanted if not self._hear(name)}
            expected = wanted - self.away
            if not expected or not waits:
                break
            if timing.clock() >= until:
                for name in expected:
                    self.say_away(name, "it has not answered")
                break
            timing.sleep(_AGAIN_SECONDS)
        self._clauses.change_away(self.away)

    def _answers(self, broker: str, questions: list[Question]) -> Answers:
        """In a thread."""
        found: Answers = []
        for question in questions:
            target = Target(question.space, broker)
            while True:
                listed = self._brokers.tell(broker, question)
                found.append((target, listed))
                if listed is None or not listed.has_more:
                    break
                question = Question(target.space, listed.life, listed.version)  # noqa: PLW2901
        return found

    def _hear(self, name: str) -> bool:
        asked = self._asked[name]
        if not asked.done():
            return False
        del self._asked[name]
        try:
            answers = asked.result()
        except NoAnswerError:
            return False
        for target, listed in answers:
            self._clauses.take(target, listed)
            if listed is not None:
                self.served_before.setdefault(target, listed.served)
        if name in self.away:
            self.away.remove(name)
            log.warning("%s answers again", name)
        return True

    def shipment(self) -> Shipment:
        """All clauses that are known. A RefusedError says which one cannot be read."""
        until = self._timing.clock() + self._timing.wait_seconds
        while True:
            try:
                return self._clauses.shipment()
            except RefusedError:
                if self._timing.clock() >= until:
                    raise
                self._timing.sleep(_AGAIN_SECONDS)
                self.look_at_spaces()

    def changed_since(self, target: Target, life: int, version: int) -> tuple[set[int], set[int]]:
        """Ids that have come to a list since, and those that have gone; nothing if nobody knows."""
        put: set[int] = set()
        gone: set[int] = set()
        question = Question(target.space, life, version)
        while True:
            try:
                listed = self._brokers.tell(target.broker, question)
            except NoAnswerError:
                break
            if listed is None or listed.is_whole:
                break
            put |= {one.id for one in listed.put}
            gone |= {*listed.gone}
            if not listed.has_more:
                break
            question = Question(target.space, listed.life, listed.version)
        return put, gone
