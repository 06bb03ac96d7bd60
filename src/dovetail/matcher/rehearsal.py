"""Whom a broker would ask about a publication, and why: a rehearsal, for people. Pure.

All is decided by what decides it for publications (questions.py, load_estimate.py), and nothing is
sent, counted or drawn by it. What would follow if nobody answers is found by passing over who was
asked, again and again, as `Asking.tick` does.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.api.reports import (
    CandidateReport,
    Kind,
    LoadReport,
    MatchingReport,
    QuestionReport,
    Reason,
    SubjectReport,
    Why,
)
from dovetail.attributes.partition import bits_of
from dovetail.attributes.policies import POLICIES
from dovetail.matcher.announcement import Known
from dovetail.matcher.broker_side import Front
from dovetail.matcher.candidate_choice import Choice
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.load_estimate import Weighed, Weighing
from dovetail.matcher.questions import Subjects
from dovetail.matcher.segment_report import segment_of
from dovetail.matcher.segment_tables import Placement


def explain(
    front: Front[Any], space: str, values: Sequence[float], brokers: Iterable[str], now: float
) -> MatchingReport:
    """Of a publication with these values. `brokers`: who may have boxes for it."""
    asking, layout = front.asking, front.view.layouts[space]
    told = [*brokers]
    subjects = asking.subjects(space, told, 1)
    kinds = frozenset(kind for known in subjects.asked.values() for kind in known.kinds)
    point = np.array([values], np.float64)
    missing = _mask(np.isnan(layout.values(point)[0]))
    placement = front.view.now(space)
    rounds_max = math.ceil(asking.asking_seconds / asking.question_seconds)
    with asking.weighing.rehearsal():
        rounds = [*islice(_rounds(asking.weighing, placement, point, kinds, now), rounds_max)]
    ((now_weighed,), *_) = rounds
    first, *others = [
        tuple(question for one in found for question in _questions(placement, one))
        for found in rounds
    ]
    return MatchingReport(
        scheme=layout.scheme,
        policy=_policy(asking.weighing, space),
        subjects=tuple(
            _subject(layout, name, subjects, front.known.of(name, space)) for name in told
        ),
        impossible=_kinds(layout, (kind for kind in kinds if kind & missing)),
        candidates=tuple(_candidates(asking.weighing, placement, now_weighed, now)),
        questions=first,
        stuck=_kinds(layout, (kind for _, stuck in now_weighed.choices.stuck for kind in stuck)),
        then=tuple(filter(None, others)),
        question_seconds=asking.question_seconds,
        asking_seconds=asking.asking_seconds,
    )


def _rounds(
    weighing: Weighing, placement: Placement, point: Floats, kinds: frozenset[int], now: float
) -> Iterator[list[Weighed]]:
    """The first, and what follows when none of those who were asked has answered.

    Each question that was not answered is asked anew by itself.
    """
    usable = weighing.usable(placement, now)
    open_kinds = [kinds]
    while open_kinds:
        found = [weighing.weigh(placement, point, one, usable, now) for one in open_kinds]
        yield found
        open_kinds = []
        for weighed in found:
            for choice in weighed.choices.asked:
                open_kinds.append(choice.kinds)
                usable[weighed.candidates[0, choice.dimension]] = False


def _subject(layout: Layout, name: str, subjects: Subjects, known: Known | None) -> SubjectReport:
    reason: Reason = "asked"
    if name not in subjects.asked:
        if known is None:
            reason = "unknown"
        elif known.is_wide:
            reason = "wide"
        else:
            reason = "busy" if known.kinds else "none"
    return SubjectReport(name, reason, _kinds(layout, () if known is None else known.kinds))


def _candidates(
    weighing: Weighing, placement: Placement, weighed: Weighed, now: float
) -> Iterator[CandidateReport]:
    layout = placement.layout
    for dimension, place in enumerate(weighed.candidates[0].tolist()):
        if place < 0:
            yield CandidateReport(layout.name_of(dimension), "")
            continue
        matcher = placement.names[place]
        cost = float(weighed.costs[0, dimension])
        yield CandidateReport(
            layout.name_of(dimension),
            matcher,
            segment_of(placement, matcher, dimension),
            _load(weighing, layout, matcher, dimension, now),
            cost if math.isfinite(cost) else None,
        )


def _load(
    weighing: Weighing, layout: Layout, matcher: str, dimension: int, now: float
) -> LoadReport | None:
    known = weighing.loads[layout.id].state(matcher, dimension)
    if known is None:
        return None
    load = known.load
    return LoadReport(
        load.queue,
        load.arrival_rate,
        load.matching_rate,
        load.boxes,
        max(now - load.at, 0.0),
        known.queue(now),
    )


def _questions(placement: Placement, weighed: Weighed) -> Iterator[QuestionReport]:
    layout = placement.layout
    for choice in weighed.choices.asked:
        yield QuestionReport(
            placement.names[weighed.candidates[0, choice.dimension]],
            layout.name_of(choice.dimension),
            _kinds(layout, choice.kinds),
            "drawn" if layout.is_copied else _why(choice, weighed),
        )


def _why(choice: Choice, weighed: Weighed) -> Why:
    """By which of the rules of candidate_choice.py."""
    costs = weighed.costs[0]
    usable = _mask(np.isfinite(costs) & (weighed.candidates[0] >= 0))
    if any((kind & usable).bit_count() == 1 for kind in choice.kinds):
        return "only"
    common = [*bits_of(reduce(and_, choice.kinds, usable))]
    is_cheapest = costs[choice.dimension] == costs[common].min()
    return "cheapest" if is_cheapest else "cover"


def _policy(weighing: Weighing, space: str) -> str:
    policy = weighing.loads[space].policy
    return next(name for name, one in POLICIES.items() if one is policy)


def _mask(flags: npt.NDArray[np.bool_]) -> int:
    return sum(1 << place for place in np.flatnonzero(flags).tolist())


def _kinds(layout: Layout, kinds: Iterable[int]) -> tuple[Kind, ...]:
    return tuple(
        tuple(layout.name_of(dimension) for dimension in bits_of(kind)) for kind in sorted({*kinds})
    )
