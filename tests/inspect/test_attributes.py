"""The sentences about attributes and matchers."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dovetail.api.reports import (
    AttributeReport,
    AttributesReport,
    CandidateReport,
    FilterMatch,
    LoadReport,
    MatchingReport,
    PeerRoute,
    QuestionReport,
    RouteReport,
    SegmentReport,
    SkipReason,
    SubjectReport,
    TopicMatches,
)
from dovetail.inspect.route import sentences

BOTH = ("lat", "speed")
QUESTION = QuestionReport("m-2", "lat", (BOTH,), "cheapest")
LAT = CandidateReport(
    "lat", "m-2", SegmentReport(0, 45), LoadReport(3, 1_200, 50_000, 800, 0.4, 2.0), 0.00006
)
SPEED = CandidateReport("speed", "m-1", SegmentReport(None, 50), None, 1e-10)
MATCHING = MatchingReport(
    scheme="mpartition",
    policy="adaptive",
    subjects=(SubjectReport("two", "asked", (BOTH,)), SubjectReport("one", "asked", (BOTH,))),
    impossible=(),
    candidates=(LAT, SPEED),
    questions=(QUESTION,),
    stuck=(),
    then=((QuestionReport("m-1", "speed", (BOTH,), "only"),),),
    question_seconds=0.3,
    asking_seconds=1.5,
)
VALUES = (
    AttributeReport("lat", "40.5", "inside", -90, 90),
    AttributeReport("speed", "20", "inside", 0, 200),
)


def clauses(count: int, holding: int) -> TopicMatches:
    found = FilterMatch("a/# with where-clauses", count, holding=holding)
    return TopicMatches((found,), 1, False)


def told(
    matching: MatchingReport | None = MATCHING,
    *,
    values: Sequence[AttributeReport] = VALUES,
    unasked: SkipReason = "",
    space: str = "traffic",
    there: TopicMatches | None = None,
) -> list[str]:
    attributes = AttributesReport(space, "a/#", tuple(values), unasked, matching)
    there = clauses(5, 2) if there is None else there
    peers = (PeerRoute("two", "alive", "no", False, there, wants_attributes=True),)
    return [*sentences(RouteReport("a/b", "one", clauses(1, 0), peers, attributes))]


def matching_lines(lines: list[str]) -> list[str]:
    return lines[lines.index("One that is to be retained goes to all of them.") + 1 :]


def test_all_of_it() -> None:
    assert told() == [
        "A publication on a/b with lat=40.5, speed=20, sent to one:",
        "  It is in space traffic (a/#):",
        "      lat    40.5",
        "      speed  20",
        "  one (here): no where-clause holds",
        "      a/# with where-clauses  (1; 0 hold)",
        (
            "  two: its sketch says maybe, for where-clauses, and matchers are asked: "
            "2 subscriptions."
        ),
        "      a/# with where-clauses  (5; 2 hold)",
        "One that is to be retained goes to all of them.",
        "Matchers (scheme mpartition, policy adaptive) are asked about:",
        "  two: boxes narrow on lat+speed",
        "  one: boxes narrow on lat+speed",
        "Who could answer, what it told of its load, and what the policy makes of it now:",
        "     dimension  matcher  values    queue   arrive     match  boxes    age  estimate",
        (
            "  >  lat        m-2      0 to 45       3  1,200/s  50,000/s    800  0.4 s  "
            "0.06 ms, queue 2"
        ),
        (
            "     speed      m-1      below 50      -        -         -      -      -  "
            "would be tried"
        ),
        "m-2 is asked along lat: of those who could answer it would be done first.",
        "Without an answer in 0.3 s, m-1 along speed would be asked.",
        (
            "Where nobody answers for sure, in 1.5 s at most, two and one look through clauses "
            "themselves."
        ),
    ]


def test_values_wherever_they_lie() -> None:
    values = (
        AttributeReport("lat", "-100", "below", -90, 90),
        AttributeReport("speed", "250", "above", 0, 200),
        AttributeReport("lon", "", "missing", -180, 180),
        AttributeReport("road", "A1", "text"),
        AttributeReport("sped", "2", "unknown"),
    )
    lines = told(values=values)
    assert lines[0].startswith("A publication on a/b with lat=-100, speed=250, road=A1, sped=2, ")
    assert lines[2:7] == [
        "      lat    -100, below its bounds -90 to 90: it is in the lowest segment",
        "      speed  250, above its bounds 0 to 200: it is in the highest segment",
        "      lon    missing: only clauses that leave it open can hold",
        "      road   A1, a text",
        "      sped   2; the space does not know it, and it decides nothing",
    ]


@pytest.mark.parametrize(
    ("unasked", "there", "last"),
    [
        ("attributes", "it does not go there: only where-clauses might want it", "no where-clause"),
        ("alone", "it goes there: its sketch says maybe, for", "is in no cluster"),
        ("matchers", "it goes there: its sketch says maybe, for", "none serves"),
        ("here", "it goes there: its sketch says maybe, for", "no other broker may have"),
    ],
)
def test_why_nobody_is_asked(unasked: SkipReason, there: str, last: str) -> None:
    lines = told(None, unasked=unasked)
    assert any(line.startswith(f"  two: {there}") for line in lines)
    assert last in lines[-1]


def test_a_broker_that_knows_no_attributes() -> None:
    report = RouteReport("a/b", "one", TopicMatches((), 0, False))
    *_, last = sentences(report, has_attributes=True)
    assert last == "Of attributes it says nothing: it is a broker of an older version."


def test_no_space() -> None:
    lines = told(None, unasked="space", space="")
    assert lines[1] == "  No space governs this topic: nobody can have a where-clause for it."
    assert matching_lines(lines) == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("none", "it does not go there: its sketch says maybe, and it has no boxes"),
        ("wide", "it goes there: it has boxes that are narrow nowhere, which no matcher holds"),
        ("unknown", "it goes there: it has not told of its boxes yet"),
        ("busy", "it goes there: too many publications wait for matchers"),
    ],
)
def test_brokers_that_are_not_asked_about(reason: str, words: str) -> None:
    subject = SubjectReport("two", reason, ())  # type: ignore[arg-type]
    matching = replace(MATCHING, subjects=(subject,), questions=(), then=())
    lines = told(matching)
    assert any(line.startswith(f"  two: {words}") for line in lines)
    assert matching_lines(lines) == [
        "No matcher is asked: there is nobody whose boxes one of them could answer for."
    ]


def test_a_broker_that_does_not_answer() -> None:
    attributes = AttributesReport("traffic", "a/#", VALUES, "", MATCHING)
    peers = (PeerRoute("two", "suspect", "no", False, None, wants_attributes=True),)
    lines = [*sentences(RouteReport("a/b", "one", clauses(1, 1), peers, attributes))]
    assert "and matchers are asked. It did not answer. It is late, or not connected." in lines[6]


def test_estimates_of_all_policies() -> None:
    def estimates(policy: str, scheme: str = "mpartition") -> list[str]:
        lines = told(replace(MATCHING, policy=policy, scheme=scheme))
        start = next(place for place, line in enumerate(lines) if "dimension  matcher" in line)
        return [line.rpartition("  ")[2] for line in lines[start + 1 : start + 3]]

    assert estimates("response-time") == ["0.06 ms, queue 3", "would be tried"]
    assert estimates("subscription-amount") == ["800 boxes", "would be tried"]
    assert estimates("random") == ["drew 0.000", "drew 0.000"]
    assert estimates("adaptive", "full") == ["drawn", "drawn"]
    late = replace(LAT, cost=2.5)
    nobody = CandidateReport("lon", "")
    lines = told(replace(MATCHING, candidates=(late, replace(SPEED, cost=None), nobody)))
    assert any(line.endswith("2.5 s, queue 2") for line in lines)
    assert any(line.endswith("passed over: no answer lately") for line in lines)
    assert any(line.endswith("no value") for line in lines)


def test_reasons() -> None:
    def reasons(*questions: QuestionReport, policy: str = "adaptive", **other: object) -> list[str]:
        found = told(replace(MATCHING, questions=questions, policy=policy, **other))
        return [line for line in found if " is asked" in line or "Nobody can" in line]

    only = QuestionReport("m-2", "lat", (("lat",),), "only")
    cover = QuestionReport("m-1", "speed", (BOTH,), "cover")
    kinds = (("lat",), BOTH)
    subjects = (SubjectReport("two", "asked", kinds),)
    assert reasons(only, cover, policy="subscription-amount", subjects=subjects) == [
        (
            "m-2 is asked along lat, for boxes narrow on lat: "
            "for some boxes it is the only one that could answer."
        ),
        (
            "m-1 is asked along speed, for boxes narrow on lat+speed: "
            "no single one could answer for all, and it has the fewest boxes for what it answers "
            "for."
        ),
    ]
    assert reasons(QUESTION, policy="random") == [
        "m-2 is asked along lat: of those who could answer it drew the lowest number."
    ]
    drawn = QuestionReport("m-2", "", (("",),), "drawn")
    everything = (SubjectReport("two", "asked", (("",),)),)
    assert reasons(drawn, scheme="full", subjects=everything) == [
        "m-2 is asked: every matcher holds all boxes, and this one was drawn."
    ]
    assert reasons(stuck=(BOTH,)) == [
        "Nobody can be asked for boxes narrow on lat+speed: their brokers look themselves."
    ]


def test_boxes_that_cannot_hold() -> None:
    lines = told(replace(MATCHING, impossible=(BOTH,)))
    words = "  Of these, boxes narrow on lat+speed cannot hold: it has no value there."
    assert words in lines
