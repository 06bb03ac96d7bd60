"""Explanations agree with the questions that a broker sends."""

import math
from random import Random

import pytest

from dovetail.api.reports import (
    BoxKind,
    CandidateReport,
    LoadReport,
    MatchingReport,
    QuestionReport,
    SegmentReport,
    SubjectReport,
)
from dovetail.attributes import policies
from dovetail.attributes.partition import Bounds
from dovetail.attributes.policies import POLICIES, Policy
from dovetail.attributes.scheme import Scheme
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import MATCHER_ANSWER_SECONDS_MAX
from dovetail.matcher.matcher_messages import (
    QUESTION,
    Announcement,
    LoadRow,
    LoadsMessage,
    SpaceAnnouncement,
    decoded,
    encode,
    question_decoder,
)
from dovetail.matcher.rehearsal import explain
from dovetail.matcher.segment_tables import MatcherRecord, Phase

BOUNDS = (Bounds(0, 100), Bounds(0, 10), Bounds(0, 1))
NAMES = ("lat", "speed", "heat")
ROADS = Layout("roads", BOUNDS, (0, 1, 2), names=NAMES)
ALONG = Layout("roads", BOUNDS, (1,), Scheme.P2P, 1.0, NAMES)
FULL = Layout("roads", BOUNDS, (0,), Scheme.FULL, 1.0, NAMES)

Asked = tuple[str, str, tuple[BoxKind, ...]]


class RehearsalHarness:
    """A broker, and what it asked matchers."""

    def __init__(self, layout: Layout = ROADS, policy: Policy = policies.adaptive) -> None:
        self.layout = layout
        self.mail: list[Asked] = []
        self.side: BrokerSide[str] = BrokerSide(
            "here", {layout.id: layout}, 1, self.send, Random(1), policy=policy
        )

    def send(self, name: str, kind: int, body: bytes) -> bool:
        if kind == QUESTION:
            question = decoded(question_decoder, body)
            kinds = tuple(self.kind(kind) for kind in question.kinds)
            self.mail.append((name, self.layout.name_of(question.dimension), kinds))
        return True

    def kind(self, mask: int) -> BoxKind:
        places = range(self.layout.searchable)
        return tuple(self.layout.name_of(place) for place in places if mask >> place & 1)

    def serve(self, name: str, *tokens: float) -> None:
        record = MatcherRecord(Phase.SERVING, {self.layout.id: tokens})
        self.side.directory.put(name, record)

    def knows(self, broker: str, *kinds: int) -> None:
        rows = [SpaceAnnouncement(self.layout.id, 7, list(kinds))]
        self.side.announced.put(broker, Announcement(1, 1, rows))

    def report_load(self, name: str, dimension: int, queue: int, boxes: int = 5) -> None:
        row = LoadRow(self.layout.id, dimension, queue, 0.0, 100.0, boxes)
        self.side.questions.receive_loads(name, encode(LoadsMessage([row])), 0.0)

    def explain(
        self, *brokers: str, values: tuple[float, ...] = (60.0, 2.0, 0.1), now: float = 0.0
    ) -> MatchingReport:
        return explain(self.side, self.layout.id, values, brokers, now)

    def publish(self, *brokers: str, values: tuple[float, ...], now: float) -> list[Asked]:
        self.side.questions.submit(self.layout.id, values, brokers, "tag")
        self.side.questions.flush(now)
        return self.take()

    def take(self) -> list[Asked]:
        mail, self.mail = self.mail, []
        return sorted(mail)


def as_asked(questions: tuple[QuestionReport, ...]) -> list[Asked]:
    return sorted((one.matcher, one.dimension, one.kinds) for one in questions)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", [ROADS, ALONG, FULL], ids=lambda one: str(one.scheme))
@pytest.mark.parametrize("seed", range(10))
def test_what_is_explained_is_asked(layout: Layout, policy: str, seed: int) -> None:
    random = Random(seed)
    harness = RehearsalHarness(layout, POLICIES[policy])
    for name in "mnop"[: random.randrange(1, 5)]:
        harness.serve(name, *(random.uniform(*bound) for bound in layout.bounds))
        for dimension in range(layout.searchable):
            if random.random() < 0.8:
                harness.report_load(name, dimension, random.randrange(100), random.randrange(100))
    kinds = range(1, 1 << layout.searchable)
    for broker in "abc":
        harness.knows(broker, *{random.choice(kinds) for _ in range(2)})
    harness.side.questions.estimator.pass_over(random.choice("mnop"), 0.0)
    now = 0.0
    for _ in range(5):
        values = tuple(
            math.nan if random.random() < 0.2 else random.uniform(*bound)
            for bound in layout.dimensions
        )
        report = harness.explain("a", "b", "c", values=values, now=now)
        assert report == harness.explain("a", "b", "c", values=values, now=now)
        assert harness.mail == []
        assert harness.publish("a", "b", "c", values=values, now=now) == as_asked(report.questions)
        if policy in ("subscription-amount", "random"):  # which do not depend on the time
            for questions in report.then:
                now += MATCHER_ANSWER_SECONDS_MAX
                harness.side.questions.tick(now)
                assert harness.take() == as_asked(questions)
        now += 100.0  # whoever was passed over is asked again
        harness.side.questions.tick(now)
        harness.take()


def test_all_that_it_says() -> None:
    harness = RehearsalHarness()
    harness.serve("low", 0.0, 0.0, 0.0)
    harness.serve("high", 50.0, 5.0, 0.5)
    harness.report_load("high", 0, 9)
    harness.knows("b", 0b011, 0b111)
    harness.knows("wide", 0b001, 0)
    harness.knows("none")
    values = (60.0, 2.0, math.nan)
    report = harness.explain("b", "none", "new", "wide", values=values, now=0.05)
    assert (report.scheme, report.policy, report.stuck) == ("mpartition", "adaptive", ())
    assert report.subjects == (
        SubjectReport("b", "asked", (("lat", "speed"), NAMES)),
        SubjectReport("none", "none", ()),
        SubjectReport("new", "unknown", ()),
        SubjectReport("wide", "wide", ((), ("lat",))),
    )
    assert report.impossible == (NAMES,)
    lat, speed, heat = report.candidates
    assert lat == CandidateReport(
        "lat",
        "high",
        SegmentReport(50.0, None),
        LoadReport(9, 0.0, 100.0, 5, 0.05, 4.0),
        0.05,
    )
    assert (speed.matcher, speed.segment, speed.load) == ("low", SegmentReport(None, 5.0), None)
    assert speed.cost is not None
    assert speed.cost < 1e-6
    assert heat == CandidateReport("heat", "")
    kinds = (("lat", "speed"),)
    assert report.questions == (QuestionReport("low", "speed", kinds, "cheapest"),)
    assert report.then == ((QuestionReport("high", "lat", kinds, "only"),),)


def test_whoever_is_passed_over_is_not_asked() -> None:
    harness = RehearsalHarness()
    harness.serve("only", 0.0, 0.0, 0.0)
    harness.knows("b", 0b001)
    harness.side.questions.estimator.pass_over("only", 0.0)
    report = harness.explain("b")
    assert [one.cost for one in report.candidates] == [None, None, None]
    assert (report.questions, report.then) == ((), ())
    assert report.stuck == (("lat",),)


def test_boxes_that_share_no_dimension() -> None:
    harness = RehearsalHarness()
    harness.serve("low", 0.0, 0.0, 0.0)
    harness.serve("high", 50.0, 5.0, 0.5)
    harness.knows("b", 0b001, 0b110)
    report = harness.explain("b")
    assert {(one.matcher, one.dimension, one.why) for one in report.questions} >= {
        ("high", "lat", "only")
    }
    assert len(report.questions) == 2


def test_where_any_could_answer_one_is_drawn() -> None:
    harness = RehearsalHarness(FULL)
    harness.serve("m", 0.0)
    harness.serve("n", 0.0)
    harness.knows("b", 1)
    report = harness.explain("b")
    (question,) = report.questions
    assert (question.dimension, question.kinds, question.why) == ("", (("",),), "drawn")
    ((other,),) = report.then
    assert {question.matcher, other.matcher} == {"m", "n"}


def test_nobody_to_ask_about() -> None:
    harness = RehearsalHarness()
    harness.serve("m", 0.0, 0.0, 0.0)
    report = harness.explain("new")
    assert (report.questions, report.then, report.stuck) == ((), (), ())
    assert len(report.candidates) == 3
