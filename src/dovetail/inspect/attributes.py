"""Describes a publication's attributes in sentences: its values, and the matchers to ask."""

from collections.abc import Iterable, Iterator, Sequence

from dovetail.api.reports import (
    AttributeReport,
    AttributesReport,
    BoxKind,
    CandidateReport,
    LoadReport,
    MatchingReport,
    QuestionReport,
    SubjectReport,
)
from dovetail.inspect.segments import segment_words


def value_sentences(report: AttributesReport) -> Iterator[str]:
    if not report.space:
        yield "  No space governs this topic: nobody can have a where-clause for it."
        return
    yield f"  It is in space {report.space} ({report.topics}):"
    width = max(len(one.name) for one in report.values)
    for one in report.values:
        yield f"      {one.name:{width}}  {_value(one)}"


def _value(one: AttributeReport) -> str:
    if one.place == "missing":
        return "missing: only clauses that leave it open can hold"
    if one.place == "text":
        return f"{one.given}, a text"
    if one.place == "unknown":
        return f"{one.given}; the space does not know it, and it decides nothing"
    if one.place == "inside":
        return one.given
    assert one.low is not None
    assert one.high is not None
    end = "lowest" if one.place == "below" else "highest"
    bounds = f"{one.low:g} to {one.high:g}"
    return f"{one.given}, {one.place} its bounds {bounds}: it is in the {end} segment"


def subject_words(subject: SubjectReport) -> str:
    """Say whether a publication goes to a broker that may have matching clauses, and why."""
    return {
        "asked": "its sketch says maybe, for where-clauses, and matchers are asked",
        "none": "it does not go there: its sketch says maybe, and it has no boxes in this space",
        "wide": "it goes there: it has boxes that are narrow nowhere, which no matcher holds",
        "unknown": "it goes there: it has not told of its boxes yet",
        "busy": "it goes there: too many publications wait for matchers",
    }[subject.reason]


# Matchers -----------------------------------------------------------------------------------------

_UNASKED = {
    "attributes": "It has no attribute that the space knows: no where-clause can hold.",
    "alone": "No matcher is asked: this broker is in no cluster, and looks itself.",
    "matchers": "No matcher is asked: none serves. Brokers that may have clauses look themselves.",
    "spark": "No matcher is asked: its space is served by a stream on Spark (`engine`).",
    "here": "No matcher is asked: no other broker may have where-clauses for it.",
}


def matching_sentences(report: AttributesReport) -> Iterator[str]:
    if report.unasked:
        if report.unasked in _UNASKED:
            yield _UNASKED[report.unasked]
        return
    matching = report.matching
    if matching is None:
        return
    asked = [one for one in matching.subjects if one.reason == "asked"]
    if not asked:
        yield "No matcher is asked: there is nobody whose boxes one of them could answer for."
        return
    yield f"Matchers (scheme {matching.scheme}, policy {matching.policy}) are asked about:"
    for one in asked:
        yield f"  {one.name}: {_boxes(one.kinds)}"
    if matching.impossible:
        yield f"  Of these, {_boxes(matching.impossible)} cannot hold: it has no value there."
    yield "Who could answer, what it told of its load, and what the policy makes of it now:"
    yield from _candidates(matching)
    yield from _questions(matching)
    yield from _otherwise(matching, [one.name for one in asked])


def _boxes(kinds: Sequence[BoxKind]) -> str:
    if not any(map(any, kinds)):
        return "all boxes"
    return f"boxes narrow on {' or '.join('+'.join(kind) for kind in kinds)}"


_COLUMNS = (
    *("", "dimension", "matcher", "values"),
    *("queue", "arrive", "match", "boxes", "age", "estimate"),
)


def _candidates(matching: MatchingReport) -> Iterator[str]:
    """Yield a table of candidates; numbers are aligned to the right."""
    chosen = {(one.matcher, one.dimension) for one in matching.questions}
    rows = [_COLUMNS]
    for one in matching.candidates:
        mark = ">" if (one.matcher, one.dimension) in chosen else ""
        values = segment_words(one.segment) if one.matcher else "-"
        who = (one.dimension or "any", one.matcher or "-", values)
        rows.append((mark, *who, *_told(one.load), _estimate(one, matching)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if 4 <= place < len(row) - 1 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _told(load: LoadReport | None) -> tuple[str, str, str, str, str]:
    if load is None:
        return ("-",) * 5
    return (
        f"{load.queue:,}",
        f"{load.arrival_rate:,.0f}/s",
        f"{load.matching_rate:,.0f}/s" if load.matching_rate else "-",
        f"{load.boxes:,}",
        f"{load.seconds_ago:.1f} s",
    )


def _estimate(one: CandidateReport, matching: MatchingReport) -> str:
    """Say what the policy estimates for a candidate."""
    load = one.load
    if not one.matcher:
        words = "no value"
    elif one.cost is None:
        words = "passed over: no answer lately"
    elif matching.scheme == "full":
        words = "drawn"
    elif matching.policy == "random":
        words = f"drew {one.cost:.3f}"
    elif load is None:
        words = "would be tried"
    elif matching.policy == "subscription-amount":
        words = f"{load.boxes:,} boxes"
    elif not one.cost or not load.matching_rate:
        words = "would be tried"
    else:
        queue = load.queue_now if matching.policy == "adaptive" else load.queue
        words = f"{_seconds(one.cost)}, queue {queue:,.0f}"
    return words


def _seconds(seconds: float) -> str:
    return f"{seconds * 1_000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _questions(matching: MatchingReport) -> Iterator[str]:
    for one in matching.questions:
        yield f"{one.matcher} is asked{_along(one, matching)}: {_why(one, matching)}."
    if matching.stuck:
        yield f"Nobody can be asked for {_boxes(matching.stuck)}: their brokers look themselves."


def _along(one: QuestionReport, matching: MatchingReport) -> str:
    if not one.dimension:
        return ""
    possible = {kind for subject in matching.subjects for kind in subject.kinds}
    if {*one.kinds} >= possible - {*matching.impossible}:
        return f" along {one.dimension}"
    return f" along {one.dimension}, for {_boxes(one.kinds)}"


def _why(one: QuestionReport, matching: MatchingReport) -> str:
    if one.why == "drawn":
        return "every matcher holds all boxes, and this one was drawn"
    if one.why == "only":
        return "for some boxes it is the only one that could answer"
    least = {
        "subscription-amount": "has the fewest boxes",
        "random": "drew the lowest number",
    }.get(matching.policy, "would be done first")
    if one.why == "cover":
        return f"no single one could answer for all, and it {least} for what it answers for"
    return f"of those who could answer it {least}"


def _otherwise(matching: MatchingReport, brokers: Sequence[str]) -> Iterator[str]:
    if not matching.questions:
        return
    if matching.then:
        steps = ", then ".join(_who(one) for one in matching.then)
        yield f"Without an answer in {matching.question_seconds:g} s, {steps} would be asked."
    who = "looks through clauses itself" if len(brokers) == 1 else "look through clauses themselves"
    yield (
        f"Where nobody answers for sure, in {matching.asking_seconds:g} s at most, "
        f"{_and(brokers)} {who}."
    )


def _who(questions: Iterable[QuestionReport]) -> str:
    words = [
        f"{one.matcher} along {one.dimension}" if one.dimension else one.matcher
        for one in questions
    ]
    return _and(words)


def _and(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
