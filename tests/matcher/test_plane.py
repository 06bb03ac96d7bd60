"""Both sides of matching, frame by frame: in any order of events, no match is missing.

Brokers and matchers with connections that carry one frame at a time, in any order among them, and
break; every node hears of every other's record at some time or other. A verdict is compared with a
look at all boxes. A failing seed is in the test's name, and replays.
"""

import math
from collections import deque
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds
from dovetail.attributes.policies import POLICIES
from dovetail.attributes.scheme import Scheme
from dovetail.attributes.space import Box, Point, matches
from dovetail.matcher import feed
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    FEED_NARROW_SECONDS,
    MATCHER_JOIN_SECONDS_MAX,
    MATCHER_LINGER_SECONDS,
)
from dovetail.matcher.matcher_messages import ANSWER, LOADS
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.matcher.question_batch import Verdict
from dovetail.matcher.segment_tables import Phase

BOUNDS = (Bounds(0, 100), Bounds(-50, 50), Bounds(0, 1))


def a_layout(scheme: Scheme) -> Layout:
    if scheme is Scheme.MPARTITION:
        return Layout("s", BOUNDS, (0, 2), scheme)
    return Layout("s", BOUNDS, (0,), scheme, 1.0)


class Published:
    """A publication, and what each broker's boxes were as far as its publisher knew."""

    def __init__(self, point: Point, known: dict[str, tuple[int, int]]) -> None:
        self.point = point
        self.known = known


class PlaneBroker:
    def __init__(self, world: "Plane", name: str, life: int) -> None:
        self.name = name
        self.side: BrokerSide[Published] = BrokerSide(
            name,
            {world.space: world.layout},
            life,
            lambda receiver, kind, body: world.send(name, receiver, kind, body),
            Random(world.random.random()),
            policy=POLICIES[world.random.choice(sorted(POLICIES))],
            is_listing=world.is_listing,
        )
        self.boxes: dict[int, tuple[Box, int]] = {}
        """And the version that each came with."""


class PlaneLink:
    def __init__(self) -> None:
        self.there: deque[tuple[int, bytes]] = deque()
        self.back: deque[tuple[int, bytes]] = deque()


class Plane:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_listing = seed % 4 != 0
        self.layout = a_layout(self.random.choice(list(Scheme)))
        self.space = self.layout.id
        self.has_wide = self.random.random() < 0.2
        self.now = 0.0
        self.brokers: dict[str, PlaneBroker] = {}
        self.matchers: dict[str, MatcherSide] = {}
        self.links: dict[tuple[str, str], PlaneLink] = {}
        self.records: dict[str, bytes] = {}
        self.count = 0
        self.verdicts: list[Verdict[Published]] = []
        self.story: list[str] = []
        for _ in range(self.random.randrange(1, 4)):
            self.start_broker()

    # What happens ---------------------------------------------------------------------------------

    def start_broker(self) -> None:
        self.count += 1
        name = f"broker-{self.count}"
        self.brokers[name] = PlaneBroker(self, name, 1)
        self.dial(name)

    def restart_broker(self) -> None:
        """With the boxes that it had, under other numbers."""
        old = self.random.choice(list(self.brokers.values()))
        for pair in [pair for pair in self.links if old.name in pair]:
            self.break_(pair)
        one = self.brokers[old.name] = PlaneBroker(self, old.name, old.side.life + 1)
        for name, record in self.records.items():
            one.side.receive_record(name, record, self.now)
        for box, _ in old.boxes.values():
            self.put(one, box)
        self.dial_all()

    def dial(self, name: str) -> None:
        for other in [*self.brokers, *self.matchers]:
            if other != name:
                self.connect(name, other)
                self.connect(other, name)

    def dial_all(self) -> None:
        for name in self.brokers:
            self.dial(name)

    def connect(self, dialer: str, acceptor: str) -> None:
        if dialer not in self.brokers or (dialer, acceptor) in self.links:
            return
        self.links[dialer, acceptor] = PlaneLink()
        side = self.brokers[dialer].side
        if acceptor in self.brokers:
            side.announcer.peer_is_up(acceptor)
            side.announcer.peer_is_live(acceptor, True)
        else:
            side.matcher_is_up(acceptor)

    def break_(self, pair: tuple[str, str]) -> None:
        del self.links[pair]
        dialer, acceptor = pair
        if dialer not in self.brokers:
            return
        side = self.brokers[dialer].side
        if acceptor in self.brokers:
            side.announcer.peer_is_down(acceptor)
        else:
            side.matcher_is_down(acceptor, self.now)
            self.look(dialer)

    def break_one(self) -> None:
        if self.links:
            self.break_(self.random.choice(list(self.links)))

    def send(self, sender: str, receiver: str, kind: int, body: bytes) -> bool:
        link = self.links.get((sender, receiver))
        if link is None:
            return False
        link.there.append((kind, body))
        return True

    def start_matcher(self) -> None:
        self.count += 1
        name = f"matcher-{self.random.randrange(100):02d}-{self.count}"
        side = self.matchers[name] = MatcherSide(name, {self.space: self.layout}, self.now)
        for other, record in self.records.items():
            side.receive_record(other, record)
        side.join(self.now)
        self.tick_matcher(side)
        self.dial_all()

    def leave(self) -> None:
        if self.matchers:
            self.random.choice(list(self.matchers.values())).leave(self.now)

    def crash(self) -> None:
        if self.matchers:
            self.remove(self.random.choice(list(self.matchers)))

    def remove(self, name: str) -> None:
        del self.matchers[name]
        self.records.pop(name, None)
        for pair in [pair for pair in self.links if name in pair]:
            self.break_(pair)

    def tick_matcher(self, side: MatcherSide) -> None:
        loads, record = side.tick(self.now, self.brokers)
        if record is not None:
            self.records[side.name] = record
        for broker in self.brokers if loads is not None else ():
            link = self.links.get((broker, side.name))
            if link is not None and loads is not None:
                link.back.append((LOADS, loads))
        if side.lifecycle is not None and side.lifecycle.is_gone(self.now):
            self.remove(side.name)

    def gossip(self) -> None:
        """One node hears of one record, or that there is none."""
        nodes: list[BrokerSide[Published] | MatcherSide] = [
            one.side for one in self.brokers.values()
        ]
        nodes += self.matchers.values()
        node = self.random.choice(nodes)
        known = {*self.records, *node.directory.records} - {node.name}
        if known:
            self.hear(node, self.random.choice(sorted(known)))

    def hear(self, node: BrokerSide[Published] | MatcherSide, name: str) -> None:
        if isinstance(node, BrokerSide):
            node.receive_record(name, self.records.get(name), self.now)
            self.look(node.name)
        else:
            node.receive_record(name, self.records.get(name))

    def hear_all(self) -> None:
        nodes: list[BrokerSide[Published] | MatcherSide] = [
            one.side for one in self.brokers.values()
        ]
        for node in [*nodes, *self.matchers.values()]:
            for name in {*self.records, *node.directory.records} - {node.name}:
                self.hear(node, name)

    def value(self, bound: Bounds) -> float:
        """Often on a border of something, sometimes far outside."""
        width = bound.high - bound.low
        if self.random.random() < 0.5:
            return bound.low + width * self.random.randrange(-2, 19) / 16
        return self.random.uniform(bound.low - width, bound.high + width)

    def a_box(self) -> Box:
        """In most worlds one that matchers answer for."""
        while True:
            lows, highs = [], []
            for bound in BOUNDS:
                one, other = sorted((self.value(bound), self.value(bound)))
                shape = self.random.random()
                lows.append(-math.inf if shape < 0.2 else one)
                highs.append(math.inf if shape < 0.1 or shape > 0.9 else other)
            if self.has_wide or self.layout.kinds(np.array([lows]), np.array([highs]))[0]:
                return Box(tuple(lows), tuple(highs))

    def subscribe(self) -> None:
        self.put(self.random.choice(list(self.brokers.values())), self.a_box())

    def put(self, broker: PlaneBroker, box: Box) -> None:
        own_boxes = broker.side.feeds.own_boxes[self.space]
        number = own_boxes.free_number()
        broker.side.put(self.space, number, box.lows, box.highs)
        broker.boxes[number] = (box, own_boxes.version)

    def unsubscribe(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        if broker.boxes:
            number = self.random.choice(list(broker.boxes))
            del broker.boxes[number]
            broker.side.discard(self.space, number)

    def publish(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        for _ in range(self.random.randrange(1, 5)):
            values = [
                math.nan if self.random.random() < 0.1 else self.value(bound) for bound in BOUNDS
            ]
            self.ask(broker, tuple(values))
        broker.side.questions.flush(self.now)
        self.look(broker.name)

    def ask(self, broker: PlaneBroker, values: tuple[float, ...]) -> None:
        known = {}
        for name in self.brokers:
            told = broker.side.announced.of(name, self.space)
            if told is not None:
                known[name] = (told.life, told.version)
        published = Published(Point(values, {}), known)
        broker.side.questions.submit(self.space, values, self.brokers, published)

    def carry(self) -> None:
        """Some frames arrive."""
        for _ in range(self.random.randrange(1, 16)):
            self.carry_any()

    def carry_any(self) -> None:
        busy = [pair for pair, link in self.links.items() if link.there or link.back]
        if busy:
            self.carry_one(self.random.choice(busy))

    def carry_one(self, pair: tuple[str, str]) -> None:
        link = self.links[pair]
        dialer, acceptor = pair
        if link.back and (not link.there or self.random.random() < 0.5):
            kind, body = link.back.popleft()
            self.brokers[dialer].side.answered(acceptor, kind, body, self.now)
            self.look(dialer)
            return
        kind, body = link.there.popleft()

        def answer(kind: int, body: bytes) -> None:
            link.back.append((kind, body))

        if acceptor in self.matchers:
            self.matchers[acceptor].receive(dialer, kind, body, answer, self.now)
        else:
            self.brokers[acceptor].side.receive(dialer, kind, body, answer)

    def work(self) -> None:
        for side in list(self.matchers.values()):
            if self.random.random() < 0.7:
                self.work_at(side)

    def work_at(self, side: MatcherSide) -> bool:
        job = side.answers.next_job(self.now)
        if job is None:
            return False
        for asker, body in side.answers.finish_job(job, 0.001):
            link = self.links.get((asker, side.name))
            if link is not None:
                link.back.append((ANSWER, body))
        return True

    def turn(self) -> None:
        name = self.random.choice(list(self.brokers))
        self.brokers[name].side.turn(self.now)
        self.look(name)

    def tick(self) -> None:
        if self.matchers:
            self.tick_matcher(self.random.choice(list(self.matchers.values())))

    def wait(self) -> None:
        self.now += self.random.choice([0.001, 0.001, 0.01, 0.01, 0.1, 1.0, 5.0])

    def reconnect(self) -> None:
        self.dial_all()

    # What is checked ------------------------------------------------------------------------------

    def look(self, name: str) -> None:
        """Whatever the publisher knew of and is still there is found, or its broker is asked."""
        for verdict in self.brokers[name].side.questions.take_verdicts():
            self.verdicts.append(verdict)
            for broker in self.brokers.values():
                self.check(verdict, broker)

    def check(self, verdict: Verdict[Published], broker: PlaneBroker) -> None:
        known = verdict.tag.known.get(broker.name)
        if broker.name in verdict.unsure or known is None:
            return
        life, version = known
        if life != broker.side.life:
            return  # it looks through all its boxes, as numbers are of another life
        told = verdict.boxes.get(broker.name)
        numbers = [] if told is None else told.boxes.tolist()
        assert len(set(numbers)) == len(numbers), self.story
        assert self.is_listing or not numbers, self.story
        for number, (box, came_with) in broker.boxes.items():
            if came_with <= version and matches(box, verdict.tag.point):
                is_told = number in numbers or not self.is_listing
                is_told &= broker.name in verdict.receivers
                assert is_told, (broker.name, number, box, verdict, self.story)

    # Quiet ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing happens any more, and all that is on its way arrives."""
        self.dial_all()
        for _ in range(3):
            for _ in range(8):
                self.hear_all()
                for broker in list(self.brokers.values()):
                    broker.side.turn(self.now)
                self.drain()
                for side in list(self.matchers.values()):
                    self.tick_matcher(side)
                self.now += 0.2
            self.now += max(FEED_NARROW_SECONDS, MATCHER_JOIN_SECONDS_MAX, MATCHER_LINGER_SECONDS)

    def drain(self) -> None:
        while True:
            busy = [pair for pair, link in self.links.items() if link.there or link.back]
            for pair in busy:
                self.carry_one(pair)
            worked = [self.work_at(side) for side in self.matchers.values()]
            if not busy and not any(worked):
                return

    def check_quiet(self) -> None:
        """Every publication is answered for exactly, but by brokers with boxes that are wide."""
        self.verdicts.clear()
        asker = self.random.choice(list(self.brokers.values()))
        for _ in range(20):
            self.ask(asker, tuple(self.value(bound) for bound in BOUNDS))
        asker.side.questions.flush(self.now)
        self.look(asker.name)
        self.drain()
        assert len(self.verdicts) == 20
        for verdict in self.verdicts:
            self.check_exactly(verdict)

    def check_exactly(self, verdict: Verdict[Published]) -> None:
        are_there = any(
            side.lifecycle is not None and side.lifecycle.phase is Phase.SERVING
            for side in self.matchers.values()
        )
        for broker in self.brokers.values():
            kinds = broker.side.feeds.own_boxes[self.space].announced_kinds()
            is_broad = 0 in kinds or (bool(kinds) and not are_there)
            assert (broker.name in verdict.unsure) == is_broad, (broker.name, verdict, self.story)
            if is_broad:
                continue
            told = verdict.boxes.get(broker.name)
            expected = [
                number
                for number, (box, _) in broker.boxes.items()
                if matches(box, verdict.tag.point)
            ]
            assert (broker.name in verdict.receivers) == bool(expected), self.story
            if self.is_listing:
                assert sorted(told.boxes.tolist() if told else []) == sorted(expected), self.story


def deeds(world: Plane) -> list[Callable[[], None]]:
    weights: dict[Callable[[], None], int] = {
        world.carry: 60,
        world.turn: 30,
        world.work: 30,
        world.publish: 20,
        world.gossip: 20,
        world.tick: 12,
        world.subscribe: 5,
        world.unsubscribe: 5,
        world.wait: 5,
        world.reconnect: 3,
        world.start_matcher: 1,
        world.leave: 1,
        world.crash: 1,
        world.break_one: 2,
        world.restart_broker: 1,
    }
    return [deed for deed, weight in weights.items() for _ in range(weight)]


@pytest.mark.parametrize("seed", range(20))
def test_no_match_is_missing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "FEED_FRAME_BOXES_MAX", 3)  # so that feeds have many steps
    monkeypatch.setattr(feed, "FEED_FRAMES_MAX", 2)
    world = Plane(seed)
    for _ in range(world.random.randrange(1, 4)):
        world.start_matcher()
    for _ in range(20):
        world.subscribe()
    if world.random.random() < 0.8:
        world.settle()
    possible = deeds(world)
    for _ in range(600):
        deed = world.random.choice(possible)
        world.story.append(deed.__name__)
        deed()
    world.settle()
    for broker in world.brokers.values():
        assert broker.side.questions.open_points == 0, (broker.name, world.story)
    world.check_quiet()
