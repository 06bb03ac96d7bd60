"""The driver of a stream that serves spaces: prepares each batch and follows it up.

    fix the rows -> refresh the lists of all brokers -> run tasks -> note what is pending

Rules:

- The driver refreshes the lists after the rows of a batch are fixed. So it knows each subscription
  that was acknowledged before one of the rows was published. It also refreshes them between
  batches.
- The driver waits a bounded time for a broker that is away. Then the other brokers go on without
  it. From there on its deliveries are pending; this is on disk before the batch counts as done. The
  broker gets nothing until it is back. Then it gets the pending rows first, read again from the
  archive. When the cluster has forgotten a broker, nothing is pending for it any more.
- A broker may vanish with rows that a batch needs. That holds up nobody either: these rows become
  pending for all brokers.
- After a kill of the driver, a batch is repeated, and brokers skip what they have already taken.
  They would wrongly skip ids that moved to them meanwhile, so these are delivered as moved.
- A space that was served once is served as long as there are rows of it, whatever its setting is
  now.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from dovetail.api.engine import DeliveryBatch
from dovetail.api.http_client import NoAnswerError
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import SERVE_BATCH_ROWS_MAX
from dovetail.pipeline.serve.broker_client import BrokerClient, DeliveryTarget
from dovetail.pipeline.serve.clause_shipment import ListVersion
from dovetail.pipeline.serve.cluster_view import ClusterView, Timing
from dovetail.pipeline.serve.state_file import State, copied, save
from dovetail.pipeline.serve.task import BEHIND, DELIVERIES, ROWS, SPACE, UNREAD, TaskSpec
from dovetail.pipeline.source.archives import RowSource
from dovetail.pipeline.source.checkpoint import BatchOffsets
from dovetail.pipeline.source.offsets import Offsets, next_offsets

log = logging.getLogger("dovetail.stream")

ReportRow = tuple[str, str, str, int]
"""A row of a task's report: kind, name, publisher, number."""


class TaskRunner(Protocol):
    """Runs tasks, on Spark or in a test."""

    def run(self, start: Offsets, end: Offsets, spec: TaskSpec) -> Iterable[ReportRow]:
        """Serve all rows above `start` and up to `end`, and return the reports of the tasks."""


class ServeCounts(NamedTuple):
    """Totals since the start."""

    batches: int = 0
    rows: int = 0
    deliveries: int = 0


class _BatchOutcome(NamedTuple):
    """What the tasks of a batch could not do."""

    unserved: frozenset[str]
    """Spaces that have rows and are not served."""
    unread: frozenset[str]
    """Brokers whose rows could not be read."""


class ServingDriver:
    """Serves batches; see the rules above."""

    def __init__(
        self,
        brokers: BrokerClient,
        row_source: RowSource,
        runner: TaskRunner,
        state: State,
        checkpoint: Path,
        timing: Timing,
    ) -> None:
        self._brokers = brokers
        self._row_source = row_source
        self._runner = runner
        self._state = state
        self._checkpoint = checkpoint
        self._timing = timing
        self._view = ClusterView(brokers, timing)
        self._lock = threading.Lock()
        self._saved: State | None = None
        self._reported_ends: Offsets = {}
        self._has_unserved = False
        self.reached: Offsets = {}
        """The offsets up to which batches are done."""
        self.doubtful_batch: int | None = None
        """The batch that an earlier process may have begun."""
        self.counts = ServeCounts()

    # The start of a stream ------------------------------------------------------------------------

    def begin(self) -> Offsets:
        """Ask all brokers, and return the offsets at which a new history begins.

        A DovetailError says why the stream cannot start.
        """
        latest = {
            name: found.runs[-1][1] if found.runs else 0
            for name, found in self._row_source.available_rows({}).items()
        }
        with self._lock:
            self._view.refresh_members()
            self._view.refresh_spaces()
            served = self._served_spaces()
            if not served:
                raise DovetailError(
                    'no space of the cluster has engine = "spark".',
                    hint="docs/pipeline.md has what brokers need for it.",
                )
            self._refresh_clauses()
            self._save()
        return {
            name: min(self._state.floors.get(space, {}).get(name, 0) or last for space in served)
            for name, last in latest.items()
        }

    # A batch --------------------------------------------------------------------------------------

    def serve(self, number: int, offsets: BatchOffsets) -> None:
        with self._lock:
            self.reached = offsets.start
            self._refresh_members()
            self._view.refresh_spaces(now=False)
            doubtful = self._moved_ids() if number == self.doubtful_batch else {}
            self.doubtful_batch = None
            self._refresh_clauses()
            self._note_pending_for_absent(offsets)
            self._catch_up()
            spec = replace(self._task_spec(), doubtful=doubtful)
            self._save_versions(spec.shipment.versions)
            unserved = self._run(offsets, spec)
            if unserved:
                self._serve_new_spaces(unserved, offsets)
            self._save()
            self.reached = offsets.end
            self.counts = self.counts._replace(batches=self.counts.batches + 1)

    def _task_spec(self) -> TaskSpec:
        state = self._state
        return TaskSpec(
            engine=state.engine,
            brokers=self._brokers,
            spaces=self._view.clauses.spaces,
            shipment=self._view.shipment(),
            served=self._served_spaces(),
            wait_seconds=self._timing.wait_seconds,
            floors={
                DeliveryTarget(space, broker): floor
                for space, floors in state.floors.items()
                for broker, floor in floors.items()
            },
            behind=frozenset(
                (owner, publisher) for owner, owed in state.owed.items() for publisher in owed
            ),
        )

    def _run(self, offsets: BatchOffsets, spec: TaskSpec) -> frozenset[str]:
        """Run the tasks of a batch. Return the spaces whose rows were skipped as not served."""
        outcome = self._collect(self._runner.run(offsets.start, offsets.end, spec))
        for publisher in outcome.unread:
            log.warning("%s has gone with rows of this batch, which wait for it", publisher)
            for owner in self._view.members:
                owed = self._state.owed.setdefault(owner, {})
                owed.setdefault(publisher, offsets.start.get(publisher, 0))
        return outcome.unserved

    def _collect(self, reports: Iterable[ReportRow]) -> "_BatchOutcome":
        """Add up the reports of tasks, and note which brokers are behind."""
        unserved, unread = set(), set()
        counts = self.counts
        for kind, name, publisher, number in reports:
            if kind == BEHIND:
                owed = self._state.owed.setdefault(name, {})
                owed[publisher] = min(number - 1, owed.get(publisher, number - 1))
                self._view.mark_away(name, "it has not taken its deliveries")
            elif kind == UNREAD:
                unread.add(publisher)
            elif kind == SPACE:
                unserved.add(name)
            elif kind == ROWS:
                counts = counts._replace(rows=counts.rows + number)
            elif kind == DELIVERIES:
                counts = counts._replace(deliveries=counts.deliveries + number)
        self.counts = counts
        return _BatchOutcome(frozenset(unserved), frozenset(unread))

    def _serve_new_spaces(self, unserved: frozenset[str], offsets: BatchOffsets) -> None:
        """Serve rows of spaces that were declared a moment ago, or are not "spark" any more."""
        before = self._served_spaces()
        self._view.refresh_spaces()
        known = {space.name for space in self._view.clauses.spaces}
        for name in unserved & known:
            self._state.floors.setdefault(name, {})
        new = self._served_spaces() - before
        if new:
            self._refresh_clauses()
            self._note_pending_for_absent(offsets)
            spec = replace(self._task_spec(), only_spaces=new)
            unserved = self._run(offsets, spec)
        if unserved and not self._has_unserved:
            log.warning("skipped publications of spaces that no broker has any more")
        self._has_unserved = bool(unserved)

    # Brokers and lists ----------------------------------------------------------------------------

    def _refresh_members(self) -> None:
        for name in self._view.refresh_members():
            if self._state.owed.pop(name, None) is not None:
                log.warning(
                    "the cluster has forgotten %s; its pending deliveries are dropped", name
                )

    def _refresh_clauses(self, *, waits: bool = True) -> None:
        self._view.refresh_clauses(self._served_spaces(), self._served, waits=waits)
        for target, served in self._view.served_before.items():
            self._state.floors.setdefault(target.space, {}).setdefault(target.broker, served)

    def _served_spaces(self) -> frozenset[str]:
        spaces = self._view.clauses.spaces
        streamed = {space.name for space in spaces if space.is_streamed}
        return frozenset(streamed | self._state.floors.keys())

    def _served(self, broker: str) -> int:
        """Return the offset up to which all brokers have received a broker's rows."""
        owed = [one[broker] for one in self._state.owed.values() if broker in one]
        return min([self.reached.get(broker, 0), *owed])

    # Pending rows ---------------------------------------------------------------------------------

    def _note_pending_for_absent(self, offsets: BatchOffsets) -> None:
        for name in self._view.away:
            owed = self._state.owed.setdefault(name, {})
            for publisher in offsets.end:
                owed.setdefault(publisher, offsets.start.get(publisher, 0))

    def _catch_up(self) -> None:
        """Deliver pending rows to brokers that are back, a limited number at a time."""
        view = self._view
        for owner in [*self._state.owed]:
            if owner not in view.members or owner in view.away:
                continue
            owed = self._state.owed[owner]
            target = {name: self.reached.get(name, 0) for name in owed}
            available = self._row_source.available_rows(owed).items()
            found = {name: waiting for name, waiting in available if name in target}
            end = next_offsets(owed, found, SERVE_BATCH_ROWS_MAX, target)
            start = {name: offset for name, offset in owed.items() if offset < end[name]}
            end = {name: end[name] for name in start}
            if start:
                self._save()
                behind = frozenset(pair for pair in self._task_spec().behind if pair[0] != owner)
                spec = replace(self._task_spec(), only_owner=owner, behind=behind)
                for name in self._collect(self._runner.run(start, end, spec)).unread:
                    del end[name]
            if owner not in view.away:
                self._mark_delivered(owner, end)

    def _mark_delivered(self, owner: str, end: Offsets) -> None:
        owed = self._state.owed[owner]
        owed |= end
        for name in [name for name in owed if owed[name] >= self.reached.get(name, 0)]:
            del owed[name]
        if not owed:
            del self._state.owed[owner]
            log.warning("%s has received its pending deliveries", owner)

    def _moved_ids(self) -> dict[DeliveryTarget, frozenset[int]]:
        """Return the ids that have moved to a broker since the repeated batch was begun."""
        put: dict[DeliveryTarget, set[int]] = {}
        gone: dict[str, set[int]] = {}
        for space, marks in self._state.marks.items():
            for broker, mark in marks.items():
                target = DeliveryTarget(space, broker)
                put[target], left = self._view.changed_since(target, *mark)
                gone.setdefault(space, set()).update(left)
        return {target: frozenset(own & gone[target.space]) for target, own in put.items()}

    # Between batches ------------------------------------------------------------------------------

    def poll(self) -> None:
        """Refresh members and lists, deliver pending rows, and tell brokers the offsets reached."""
        with self._lock:
            self._refresh_members()
            self._refresh_clauses(waits=False)
            self._catch_up()
            self._save()
            if self.reached != self._reported_ends:
                self._report_ends()

    def _report_ends(self) -> None:
        for broker in self._view.members - self._view.away - self._state.owed.keys():
            for space in self._served_spaces():
                batch = DeliveryBatch(self._state.engine, space, [], ends=self.reached)
                try:
                    if self._brokers.deliver(broker, batch) is not None:
                        break
                except NoAnswerError:
                    break
        self._reported_ends = self.reached

    # The state file -------------------------------------------------------------------------------

    def _save_versions(self, versions: Mapping[DeliveryTarget, ListVersion]) -> None:
        by_space: dict[str, dict[str, tuple[int, int]]] = {}
        for target, known in versions.items():
            by_space.setdefault(target.space, {})[target.broker] = (known.life, known.version)
        self._state.marks = by_space
        self._save()

    def _save(self) -> None:
        if self._state != self._saved:
            save(self._checkpoint, self._state)
            self._saved = copied(self._state)
