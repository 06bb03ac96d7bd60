"""What is explained is what is done: explanations are compared with the questions that go out."""

import math
from random import Random

import pytest

from dovetail.api.reports import (
    CandidateReport,
    Kind,
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
from dovetail.matcher.broker_side import Front
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import MATCHER_ANSWER_SECONDS_MAX
from dovetail.matcher.matcher_messages import (
    ASKED,
    BoxesBody,
    BoxesRow,
    LoadRow,
    LoadsBody,
    asked_decoder,
    decoded,
    encode,
)
from dovetail.matcher.rehearsal import explain
from dovetail.matcher.segment_tables import MatcherRecord, Phase

BOUNDS = (Bounds(0, 100), Bounds(0, 10), Bounds(0, 1))
NAMES = ("lat", "speed", "heat")
ROADS = Layout("roads", BOUNDS, (0, 1, 2), names=NAMES)
ALONG = Layout("roads", BOUNDS, (1,), Scheme.P2P, 1.0, NAMES)
FULL = Layout("roads", BOUNDS, (0,), Scheme.FULL, 1.0, NAMES)

Asked = tuple[str, str, tuple[Kind, ...]]


class Desk:
    """A broker, and what it asked matchers."""

    def __init__(self, layout: Layout = ROADS, policy: Policy = policies.adaptive) -> None:
        self.layout = layout
        self.mail: list[Asked] = []
        self.front: Front[str] = Front(
            "here", {layout.id: layout}, 1, self.send, Random(1), policy=policy
        )

    def send(self, name: str, kind: int, body: bytes) -> bool:
        if kind == ASKED:
            question = decoded(asked_decoder, body)
            kinds = tuple(self.kind(kind) for kind in question.kinds)
            self.mail.append((name, self.layout.name_of(question.dimension), kinds))
        return True

    def kind(self, mask: int) -> Kind:
        places = range(self.layout.searchable)
        return tuple(self.layout.name_of(place) for place in places if mask >> place & 1)

    def serve(self, name: str, *tokens: float) -> None:
        record = MatcherRecord(Phase.SERVING, {self.layout.id: tokens})
        self.front.view.put(name, record)

    def knows(self, broker: str, *kinds: int) -> None:
        rows = [BoxesRow(self.layout.id, 7, list(kinds))]
        self.front.known.put(broker, BoxesBody(1, 1, rows))

    def told(self, name: str, dimension: int, queue: int, boxes: int = 5) -> None:
        row = LoadRow(self.layout.id, dimension, queue, 0.0, 100.0, boxes)
        self.front.asking.told(name, encode(LoadsBody([row])), 0.0)

    def explain(
        self, *brokers: str, values: tuple[float, ...] = (60.0, 2.0, 0.1), now: float = 0.0
    ) -> MatchingReport:
        return explain(self.front, self.layout.id, values, brokers, now)

    def publish(self, *brokers: str, values: tuple[float, ...], now: float) -> list[Asked]:
        self.front.asking.submit(self.layout.id, values, brokers, "tag")
        self.front.asking.flush(now)
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
    desk = Desk(layout, POLICIES[policy])
    for name in "mnop"[: random.randrange(1, 5)]:
        desk.serve(name, *(random.uniform(*bound) for bound in layout.bounds))
        for dimension in range(layout.searchable):
            if random.random() < 0.8:
                desk.told(name, dimension, random.randrange(100), random.randrange(100))
    kinds = range(1, 1 << layout.searchable)
    for broker in "abc":
        desk.knows(broker, *{random.choice(kinds) for _ in range(2)})
    desk.front.asking.weighing.pass_over(random.choice("mnop"), 0.0)
    now = 0.0
    for _ in range(5):
        values = tuple(
            math.nan if random.random() < 0.2 else random.uniform(*bound)
            for bound in layout.dimensions
        )
        told = desk.explain("a", "b", "c", values=values, now=now)
        assert told == desk.explain("a", "b", "c", values=values, now=now)
        assert desk.mail == []
        assert desk.publish("a", "b", "c", values=values, now=now) == as_asked(told.questions)
        if policy in ("subscription-amount", "random"):  # which do not depend on the time
            for questions in told.then:
                now += MATCHER_ANSWER_SECONDS_MAX
                desk.front.asking.tick(now)
                assert desk.take() == as_asked(questions)
        now += 100.0  # whoever was passed over is asked again
        desk.front.asking.tick(now)
        desk.take()


def test_all_that_it_says() -> None:
    desk = Desk()
    desk.serve("low", 0.0, 0.0, 0.0)
    desk.serve("high", 50.0, 5.0, 0.5)
    desk.told("high", 0, 9)
    desk.knows("b", 0b011, 0b111)
    desk.knows("wide", 0b001, 0)
    desk.knows("none")
    values = (60.0, 2.0, math.nan)
    told = desk.explain("b", "none", "new", "wide", values=values, now=0.05)
    assert (told.scheme, told.policy, told.stuck) == ("mpartition", "adaptive", ())
    assert told.subjects == (
        SubjectReport("b", "asked", (("lat", "speed"), NAMES)),
        SubjectReport("none", "none", ()),
        SubjectReport("new", "unknown", ()),
        SubjectReport("wide", "wide", ((), ("lat",))),
    )
    assert told.impossible == (NAMES,)
    lat, speed, heat = told.candidates
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
    assert told.questions == (QuestionReport("low", "speed", kinds, "cheapest"),)
    assert told.then == ((QuestionReport("high", "lat", kinds, "only"),),)


def test_whoever_is_passed_over_is_not_asked() -> None:
    desk = Desk()
    desk.serve("only", 0.0, 0.0, 0.0)
    desk.knows("b", 0b001)
    desk.front.asking.weighing.pass_over("only", 0.0)
    told = desk.explain("b")
    assert [one.cost for one in told.candidates] == [None, None, None]
    assert (told.questions, told.then) == ((), ())
    assert told.stuck == (("lat",),)


def test_boxes_that_share_no_dimension() -> None:
    desk = Desk()
    desk.serve("low", 0.0, 0.0, 0.0)
    desk.serve("high", 50.0, 5.0, 0.5)
    desk.knows("b", 0b001, 0b110)
    told = desk.explain("b")
    assert {(one.matcher, one.dimension, one.why) for one in told.questions} >= {
        ("high", "lat", "only")
    }
    assert len(told.questions) == 2


def test_where_any_could_answer_one_is_drawn() -> None:
    desk = Desk(FULL)
    desk.serve("m", 0.0)
    desk.serve("n", 0.0)
    desk.knows("b", 1)
    told = desk.explain("b")
    (question,) = told.questions
    assert (question.dimension, question.kinds, question.why) == ("", (("",),), "drawn")
    ((other,),) = told.then
    assert {question.matcher, other.matcher} == {"m", "n"}


def test_nobody_to_ask_about() -> None:
    desk = Desk()
    desk.serve("m", 0.0, 0.0, 0.0)
    told = desk.explain("new")
    assert (told.questions, told.then, told.stuck) == ((), (), ())
    assert len(told.candidates) == 3
