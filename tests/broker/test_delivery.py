"""Deliveries by many clauses, compared with an evaluation of each clause by itself."""

import math
from random import Random
from typing import NamedTuple

import pytest

from dovetail.attributes.clauses import key_of
from dovetail.attributes.grammar import parse
from dovetail.attributes.limits import CLAUSES_UNINDEXED_MAX
from dovetail.attributes.space import Dimension, Point, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.broker.subscription import Subscription
from dovetail.settings import MqttSettings
from dovetail.topics.names import matches

SPACE = Space("s", "s/#", (Dimension("x", 0, 10), Dimension("y", 0, 10)), frozenset({"t"}))
FILTERS = ("s/#", "s/+")
TOPIC = b"s/a"


class ReceivedCopy(NamedTuple):
    qos: int
    retain_as_published: bool
    identifiers: list[int]


class DeliveryWorld:
    """Sessions whose subscriptions come, change and go."""

    def __init__(self, random: Random, sessions: int) -> None:
        limits = MqttSettings()
        self.random = random
        self.router = Router(limits, SpaceRegistry([SPACE]))
        shared = SharedState(limits)
        self.sessions = [Session(shared, number + 1, f"c{number}") for number in range(sessions)]
        self.subscriptions: list[Subscription] = []

    def subscribe(self) -> None:
        random = self.random
        session = random.choice(self.sessions)
        topic_filter = random.choice(FILTERS)
        clause = self._clause() if random.random() < 0.95 else ""
        self._set_options(session, key_of(topic_filter, clause))

    def change(self) -> None:
        if self.subscriptions:
            known = self.random.choice(self.subscriptions)
            self._set_options(known.session, known.key)

    def unsubscribe(self) -> None:
        if self.subscriptions:
            gone = self.subscriptions.pop(self.random.randrange(len(self.subscriptions)))
            assert self.router.unsubscribe(gone.session, gone.key)

    def _set_options(self, session: Session, key: str) -> None:
        random = self.random
        options = random.choice([0, 0, 1, 2]) | 4 * (random.random() < 0.2)
        options |= 8 * (random.random() < 0.2)
        identifier = random.choice([0] * 9 + [7])
        made = self.router.subscribe(session, key, options, identifier)
        if made not in self.subscriptions:
            self.subscriptions.append(made)

    def _clause(self) -> str:
        random = self.random
        parts = []
        for _ in range(random.choice([1, 1, 1, 2])):
            low = random.randint(0, 8)
            part = f"{low} <= x < {low + random.randint(1, 6)}"
            if random.random() < 0.5:
                part += f" and y >= {random.randint(0, 9)}"
            if random.random() < 0.1:
                part += f' and t == "{random.choice("ab")}"'
            parts.append(part)
        return str(parse(" or ".join(parts)))

    def expected(self, origin: str, point: Point | None) -> dict[str, ReceivedCopy]:
        found: dict[str, list[Subscription]] = {}
        for one in self.subscriptions:
            is_wanted = one.key == one.filter or (
                point is not None and one.clause is not None and one.clause.holds(point)
            )
            is_own = one.no_local and one.session.client_id == origin
            if is_wanted and not is_own and matches(one.filter, TOPIC.decode()):
                found.setdefault(one.session.client_id, []).append(one)
        return {
            client_id: ReceivedCopy(
                max(one.qos for one in subscriptions),
                any(one.retain_as_published for one in subscriptions),
                sorted(one.identifier for one in subscriptions if one.identifier),
            )
            for client_id, subscriptions in found.items()
        }

    def found(self, origin: str, point: Point) -> dict[str, ReceivedCopy]:
        deliveries = list(self.router.route(TOPIC).deliveries_with(origin, point))
        found = {
            one.session.client_id: ReceivedCopy(
                one.qos, one.retain_as_published, sorted(one.identifiers)
            )
            for one in deliveries
        }
        assert len(found) == len(deliveries), "a session gets it twice"
        assert all(one.plain == (not one.identifiers) for one in deliveries)
        return found


def drawn_point(random: Random) -> Point:
    values = tuple(random.choice([math.nan, *range(12)]) for _ in range(2))
    return Point(values, {"t": random.choice("abc")} if random.random() < 0.5 else {})


@pytest.mark.parametrize("seed", range(20))
def test_sessions_with_many_clauses(seed: int) -> None:
    random = Random(seed)
    world = DeliveryWorld(random, random.choice([2, 5, 200]))
    acts = [world.subscribe] * 4 + [world.change, world.unsubscribe]
    for step in range(30):
        shrinks = step > 20
        for _ in range(random.choice([1, 5, CLAUSES_UNINDEXED_MAX])):
            (world.unsubscribe if shrinks else random.choice(acts))()
        for _ in range(3):
            origin = random.choice(["publisher", *(one.client_id for one in world.sessions[:5])])
            point = drawn_point(random)
            assert world.found(origin, point) == world.expected(origin, point)


def test_who_has_left_is_not_found_under_anothers_number() -> None:
    world = DeliveryWorld(Random(1), 3)
    first, second, third = world.sessions
    world.router.subscribe(third, key_of("s/#", str(parse("x >= 9"))), 0, 0)  # the set stays
    keys = [key_of("s/#", str(parse(f"x < {1 + n}"))) for n in range(2 * CLAUSES_UNINDEXED_MAX)]
    point = Point((0.0, 0.0), {})
    for session in (first, second):
        for key in keys:
            world.router.subscribe(session, key, 1, 0)
        assert world.found("", point) == {session.client_id: ReceivedCopy(1, False, [])}
        for key in keys[:-1]:
            world.router.unsubscribe(session, key)
        assert world.found("", point) == {session.client_id: ReceivedCopy(1, False, [])}
        world.router.unsubscribe(session, keys[-1])
        assert world.found("", point) == {}
