"""Explains which matchers a broker would ask about a publication, and why. Pure.

The code that decides for publications decides here, too (questions.py, load_estimate.py). Nothing
is sent or counted, and the random state stays. To show what follows if nobody answers, it passes
over the asked matchers again and again, as `MatcherQuestions.tick` does.
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
    BoxKind,
    CandidateReport,
    ChoiceReason,
    LoadReport,
    MatchingReport,
    QuestionReport,
    SubjectReport,
    SubjectStatus,
)
from dovetail.attributes.partition import bits_of
from dovetail.attributes.policies import POLICIES
from dovetail.matcher.announcement import AnnouncedBoxes
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.candidate_choice import Choice
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.load_estimate import CandidateCosts, LoadEstimator
from dovetail.matcher.questions import QuestionScope
from dovetail.matcher.segment_report import segment_of
from dovetail.matcher.segment_tables import Placement


def explain(
    side: BrokerSide[Any], space: str, values: Sequence[float], brokers: Iterable[str], now: float
) -> MatchingReport:
    """Explain a publication with these values. `brokers` may have boxes for it."""
    questions, layout = side.questions, side.directory.layouts[space]
    names = [*brokers]
    scope = questions.scope(space, names, 1)
    kinds = frozenset(kind for known in scope.asked.values() for kind in known.kinds)
    point = np.array([values], np.float64)
    missing = _mask(np.isnan(layout.values(point)[0]))
    placement = side.directory.now(space)
    rounds_max = math.ceil(questions.asking_seconds / questions.question_seconds)
    with questions.estimator.rehearsal():
        rounds = [*islice(_rounds(questions.estimator, placement, point, kinds, now), rounds_max)]
    ((now_weighed,), *_) = rounds
    first, *others = [
        tuple(question for one in found for question in _questions(placement, one))
        for found in rounds
    ]
    return MatchingReport(
        scheme=layout.scheme,
        policy=_policy(questions.estimator, space),
        subjects=tuple(
            _subject(layout, name, scope, side.announced.of(name, space)) for name in names
        ),
        impossible=_kinds(layout, (kind for kind in kinds if kind & missing)),
        candidates=tuple(_candidates(questions.estimator, placement, now_weighed, now)),
        questions=first,
        stuck=_kinds(layout, (kind for _, stuck in now_weighed.choices.stuck for kind in stuck)),
        then=tuple(filter(None, others)),
        question_seconds=questions.question_seconds,
        asking_seconds=questions.asking_seconds,
    )


def _rounds(
    estimator: LoadEstimator, placement: Placement, point: Floats, kinds: frozenset[int], now: float
) -> Iterator[list[CandidateCosts]]:
    """Yield the first questions, and those that follow while no asked matcher answers.

    Each unanswered question is asked again by itself.
    """
    usable = estimator.usable(placement, now)
    open_kinds = [kinds]
    while open_kinds:
        found = [estimator.estimate(placement, point, one, usable, now) for one in open_kinds]
        yield found
        open_kinds = []
        for weighed in found:
            for choice in weighed.choices.asked:
                open_kinds.append(choice.kinds)
                usable[weighed.candidates[0, choice.dimension]] = False


def _subject(
    layout: Layout, name: str, scope: QuestionScope, known: AnnouncedBoxes | None
) -> SubjectReport:
    reason: SubjectStatus = "asked"
    if name not in scope.asked:
        if known is None:
            reason = "unknown"
        elif known.is_wide:
            reason = "wide"
        else:
            reason = "busy" if known.kinds else "none"
    return SubjectReport(name, reason, _kinds(layout, () if known is None else known.kinds))


def _candidates(
    estimator: LoadEstimator, placement: Placement, weighed: CandidateCosts, now: float
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
            _load(estimator, layout, matcher, dimension, now),
            cost if math.isfinite(cost) else None,
        )


def _load(
    estimator: LoadEstimator, layout: Layout, matcher: str, dimension: int, now: float
) -> LoadReport | None:
    known = estimator.loads[layout.id].load_of(matcher, dimension)
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


def _questions(placement: Placement, weighed: CandidateCosts) -> Iterator[QuestionReport]:
    layout = placement.layout
    for choice in weighed.choices.asked:
        yield QuestionReport(
            placement.names[weighed.candidates[0, choice.dimension]],
            layout.name_of(choice.dimension),
            _kinds(layout, choice.kinds),
            "drawn" if layout.is_copied else _why(choice, weighed),
        )


def _why(choice: Choice, weighed: CandidateCosts) -> ChoiceReason:
    """Name the rule of candidate_choice.py that chose this dimension."""
    costs = weighed.costs[0]
    usable = _mask(np.isfinite(costs) & (weighed.candidates[0] >= 0))
    if any((kind & usable).bit_count() == 1 for kind in choice.kinds):
        return "only"
    common = [*bits_of(reduce(and_, choice.kinds, usable))]
    is_cheapest = costs[choice.dimension] == costs[common].min()
    return "cheapest" if is_cheapest else "cover"


def _policy(estimator: LoadEstimator, space: str) -> str:
    policy = estimator.loads[space].policy
    return next(name for name, one in POLICIES.items() if one is policy)


def _mask(flags: npt.NDArray[np.bool_]) -> int:
    return sum(1 << place for place in np.flatnonzero(flags).tolist())


def _kinds(layout: Layout, kinds: Iterable[int]) -> tuple[BoxKind, ...]:
    return tuple(
        tuple(layout.name_of(dimension) for dimension in bits_of(kind)) for kind in sorted({*kinds})
    )
