"""The driver's part of a stream that serves spaces: what each batch knows and does.

    rows are fixed -> lists of all brokers are followed -> tasks hand over -> who was away is owed

Rules:

- Lists are followed after it is fixed which rows a batch has: so each subscription that was
  acknowledged before one of them was published is known. Between batches they are followed, too.
- A broker that is away is waited for, for a bounded time. Then others go on without it: it is owed
  its share from there on (on disk, before the batch counts as done), gets nothing until it is back,
  and then gets that first, read again from the archive. It is owed nothing any more when the
  cluster has forgotten it.
- A broker that goes with rows which a batch has to have holds up nobody either: these rows are owed
  to everybody.
- A batch that is done again, because the driver was killed, is passed over by brokers as far as
  they had taken it. Ids that moved to a broker meanwhile might be passed over wrongly: these are
  handed over as moved.
- A space that was served once is served while there are rows of it, whatever its setting is now.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from dovetail.api.engine import Handover
from dovetail.api.http_client import NoAnswerError
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import SERVE_BATCH_ROWS_MAX
from dovetail.pipeline.serve.broker_client import Brokers, Target
from dovetail.pipeline.serve.clause_shipment import Mark
from dovetail.pipeline.serve.cluster_view import Following, Timing
from dovetail.pipeline.serve.state_file import State, copied, save
from dovetail.pipeline.serve.task import BEHIND, DELIVERIES, ROWS, SPACE, UNREAD, Job
from dovetail.pipeline.source.archives import Place
from dovetail.pipeline.source.checkpoint import BatchOffsets
from dovetail.pipeline.source.offsets import Offsets, next_offsets

log = logging.getLogger("dovetail.stream")

Told = tuple[str, str, str, int]
"""What a task tells: kind, name, publisher, number."""


class Work(Protocol):
    """Who runs tasks."""

    def run(self, start: Offsets, end: Offsets, job: Job) -> Iterable[Told]:
        """Over all rows of brokers from offset to offset."""


class Counts(NamedTuple):
    """Since the start."""

    batches: int = 0
    rows: int = 0
    deliveries: int = 0


class _Heard(NamedTuple):
    """Of all tasks of a batch."""

    strange: frozenset[str]
    """Spaces that are not served."""
    unread: frozenset[str]
    """Brokers whose rows could not be read."""


class Engine:
    """See the module."""

    def __init__(
        self,
        brokers: Brokers,
        place: Place,
        work: Work,
        state: State,
        checkpoint: Path,
        timing: Timing,
    ) -> None:
        self._brokers = brokers
        self._place = place
        self._work = work
        self._state = state
        self._checkpoint = checkpoint
        self._timing = timing
        self._following = Following(brokers, timing)
        self._lock = threading.Lock()
        self._saved: State | None = None
        self._told_ends: Offsets = {}
        self._is_strange = False
        self.reached: Offsets = {}
        """What batches have come to."""
        self.doubtful_batch: int | None = None
        """The one that may have been begun before."""
        self.counts = Counts()

    # A stream begins ------------------------------------------------------------------------------

    def begin(self) -> Offsets:
        """Ask everybody; where a history that is new begins. A DovetailError if it cannot."""
        latest = {
            name: found.runs[-1][1] if found.runs else 0
            for name, found in self._place.look({}).items()
        }
        with self._lock:
            self._following.find_members()
            self._following.look_at_spaces()
            served = self._served_spaces()
            if not served:
                raise DovetailError(
                    'no space of the cluster has engine = "spark".',
                    hint="docs/pipeline.md has what brokers need for it.",
                )
            self._follow()
            self._save()
        return {
            name: min(self._state.floors.get(space, {}).get(name, 0) or last for space in served)
            for name, last in latest.items()
        }

    # A batch --------------------------------------------------------------------------------------

    def serve(self, number: int, offsets: BatchOffsets) -> None:
        with self._lock:
            self.reached = offsets.start
            self._find_members()
            self._following.look_at_spaces(now=False)
            doubtful = self._moved_ids() if number == self.doubtful_batch else {}
            self.doubtful_batch = None
            self._follow()
            self._owe_those_away(offsets)
            self._catch_up()
            job = replace(self._job(), doubtful=doubtful)
            self._save_marks(job.shipment.marks)
            strange = self._run(offsets, job)
            if strange:
                self._serve_strangers(strange, offsets)
            self._save()
            self.reached = offsets.end
            self.counts = self.counts._replace(batches=self.counts.batches + 1)

    def _job(self) -> Job:
        state = self._state
        return Job(
            engine=state.engine,
            brokers=self._brokers,
            spaces=self._following.clauses.spaces,
            shipment=self._following.shipment(),
            served=self._served_spaces(),
            wait_seconds=self._timing.wait_seconds,
            floors={
                Target(space, broker): floor
                for space, floors in state.floors.items()
                for broker, floor in floors.items()
            },
            behind=frozenset(
                (owner, publisher) for owner, owed in state.owed.items() for publisher in owed
            ),
        )

    def _run(self, offsets: BatchOffsets, job: Job) -> frozenset[str]:
        """Spaces of rows that were not looked at."""
        heard = self._hear(self._work.run(offsets.start, offsets.end, job))
        for publisher in heard.unread:
            log.warning("%s has gone with rows of this batch, which wait for it", publisher)
            for owner in self._following.members:
                owed = self._state.owed.setdefault(owner, {})
                owed.setdefault(publisher, offsets.start.get(publisher, 0))
        return heard.strange

    def _hear(self, told: Iterable[Told]) -> "_Heard":
        """Of tasks."""
        strange, unread = set(), set()
        counts = self.counts
        for kind, name, publisher, number in told:
            if kind == BEHIND:
                owed = self._state.owed.setdefault(name, {})
                owed[publisher] = min(number - 1, owed.get(publisher, number - 1))
                self._following.say_away(name, "it has not taken what it was handed")
            elif kind == UNREAD:
                unread.add(publisher)
            elif kind == SPACE:
                strange.add(name)
            elif kind == ROWS:
                counts = counts._replace(rows=counts.rows + number)
            elif kind == DELIVERIES:
                counts = counts._replace(deliveries=counts.deliveries + number)
        self.counts = counts
        return _Heard(frozenset(strange), frozenset(unread))

    def _serve_strangers(self, strange: frozenset[str], offsets: BatchOffsets) -> None:
        """Rows of spaces that were declared a moment ago, or are not "spark" any more."""
        before = self._served_spaces()
        self._following.look_at_spaces()
        known = {space.name for space in self._following.clauses.spaces}
        for name in strange & known:
            self._state.floors.setdefault(name, {})
        new = self._served_spaces() - before
        if new:
            self._follow()
            self._owe_those_away(offsets)
            job = replace(self._job(), only_spaces=new)
            strange = self._run(offsets, job)
        if strange and not self._is_strange:
            log.warning("publications wait for spaces that no broker has any more: passed over")
        self._is_strange = bool(strange)

    # Who is there ---------------------------------------------------------------------------------

    def _find_members(self) -> None:
        for name in self._following.find_members():
            if self._state.owed.pop(name, None) is not None:
                log.warning("the cluster has forgotten %s, and so is what it was owed", name)

    def _follow(self, *, waits: bool = True) -> None:
        self._following.follow(self._served_spaces(), self._served, waits=waits)
        for target, served in self._following.served_before.items():
            self._state.floors.setdefault(target.space, {}).setdefault(target.broker, served)

    def _served_spaces(self) -> frozenset[str]:
        spaces = self._following.clauses.spaces
        streamed = {space.name for space in spaces if space.is_streamed}
        return frozenset(streamed | self._state.floors.keys())

    def _served(self, broker: str) -> int:
        """Up to here its rows have been handed to everybody."""
        owed = [one[broker] for one in self._state.owed.values() if broker in one]
        return min([self.reached.get(broker, 0), *owed])

    # What was not taken ---------------------------------------------------------------------------

    def _owe_those_away(self, offsets: BatchOffsets) -> None:
        for name in self._following.away:
            owed = self._state.owed.setdefault(name, {})
            for publisher in offsets.end:
                owed.setdefault(publisher, offsets.start.get(publisher, 0))

    def _catch_up(self) -> None:
        """Those who are back, some rows at a time."""
        following = self._following
        for owner in [*self._state.owed]:
            if owner not in following.members or owner in following.away:
                continue
            owed = self._state.owed[owner]
            target = {name: self.reached.get(name, 0) for name in owed}
            looked = self._place.look(owed).items()
            found = {name: waiting for name, waiting in looked if name in target}
            end = next_offsets(owed, found, SERVE_BATCH_ROWS_MAX, target)
            start = {name: offset for name, offset in owed.items() if offset < end[name]}
            end = {name: end[name] for name in start}
            if start:
                self._save()
                behind = frozenset(pair for pair in self._job().behind if pair[0] != owner)
                job = replace(self._job(), only_owner=owner, behind=behind)
                for name in self._hear(self._work.run(start, end, job)).unread:
                    del end[name]
            if owner not in following.away:
                self._has_got(owner, end)

    def _has_got(self, owner: str, end: Offsets) -> None:
        owed = self._state.owed[owner]
        owed |= end
        for name in [name for name in owed if owed[name] >= self.reached.get(name, 0)]:
            del owed[name]
        if not owed:
            del self._state.owed[owner]
            log.warning("%s has got what it was owed", owner)

    def _moved_ids(self) -> dict[Target, frozenset[int]]:
        """Since the batch was begun that is done again now: ids that are at another broker."""
        put: dict[Target, set[int]] = {}
        gone: dict[str, set[int]] = {}
        for space, marks in self._state.marks.items():
            for broker, mark in marks.items():
                target = Target(space, broker)
                put[target], left = self._following.changed_since(target, *mark)
                gone.setdefault(space, set()).update(left)
        return {target: frozenset(own & gone[target.space]) for target, own in put.items()}

    # Between batches ------------------------------------------------------------------------------

    def beat(self) -> None:
        """Ask again, and say how far it is."""
        with self._lock:
            self._find_members()
            self._follow(waits=False)
            self._catch_up()
            self._save()
            if self.reached != self._told_ends:
                self._tell_ends()

    def _tell_ends(self) -> None:
        for broker in self._following.members - self._following.away - self._state.owed.keys():
            for space in self._served_spaces():
                handover = Handover(self._state.engine, space, [], ends=self.reached)
                try:
                    if self._brokers.take(broker, handover) is not None:
                        break
                except NoAnswerError:
                    break
        self._told_ends = self.reached

    # What is kept ---------------------------------------------------------------------------------

    def _save_marks(self, marks: Mapping[Target, Mark]) -> None:
        by_space: dict[str, dict[str, tuple[int, int]]] = {}
        for target, mark in marks.items():
            by_space.setdefault(target.space, {})[target.broker] = (mark.life, mark.version)
        self._state.marks = by_space
        self._save()

    def _save(self) -> None:
        if self._state != self._saved:
            save(self._checkpoint, self._state)
            self._saved = copied(self._state)
