"""One checker for each kind of promise. Pure: a record in, verdicts out.

Rules:

- A checker judges what the documentation promises, and no less. It counts the documented exceptions
  as excused, by reason. So a run that excuses much visibly proves little.
- A checker that cannot fail is worth nothing: tests give each one a history with a single violation
  of each kind, and mutate histories of real runs.
"""

from collections.abc import Callable, Iterable

from reliability.builder import build
from reliability.checker import (
    answer,
    group,
    handle,
    loss,
    order,
    receiver,
    recovery,
    repetition,
    retained,
    session,
    will,
)
from reliability.history import Event
from reliability.promises import PROMISES
from reliability.record import Record
from reliability.verdict import Verdict

CHECKERS: tuple[Callable[[Record], list[Verdict]], ...] = (
    loss.check,
    repetition.check,
    order.check,
    receiver.check,
    group.check,
    session.check,
    retained.check,
    will.check,
    handle.check,
    answer.check,
    recovery.check,
)


def check(events: Iterable[Event]) -> list[Verdict]:
    """Return a verdict for each promise, in the order of the documentation."""
    return check_record(build(events))


def check_record(record: Record) -> list[Verdict]:
    """Return a verdict for each promise that can be judged, even if the run is incomplete."""
    verdicts = {
        verdict.promise.name: verdict for checker in CHECKERS for verdict in checker(record)
    }
    return [
        Verdict(promise) if promise.is_eventual and record.is_partial else verdicts[promise.name]
        for promise in PROMISES
    ]
