"""Moves to the places of a plan: fed first, in force for all at once, within a time limit."""

from collections.abc import Mapping

from dovetail.attributes.partition import Bounds
from dovetail.matcher.coverage import Cover
from dovetail.matcher.layout import Layout
from dovetail.matcher.lifecycle import MatcherLifecycle
from dovetail.matcher.limits import MATCHER_MOVE_SECONDS_MAX
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import (
    MatcherDirectory,
    MatcherRecord,
    Phase,
    PlannedMove,
    decode_record,
    encode_record,
)

LAYOUT = Layout("s", (Bounds(0, 100),), (0,))
SPACE = LAYOUT.id
OLD = {"a": (0.0,), "b": (50.0,)}
ORDER = MoveOrder(7, {"a": {SPACE: (0.0,)}, "b": {SPACE: (80.0,)}})


class TwoMatchers:
    """Matchers a and b, and a broker's directory of them."""

    def __init__(self) -> None:
        self.views = {name: MatcherDirectory({SPACE: LAYOUT}) for name in ("a", "b", "broker")}
        self.ones = {
            name: MatcherLifecycle(name, self.views[name], 0.0, {SPACE: tokens})
            for name, tokens in OLD.items()
        }
        self.has_fed = True
        self.gossip()
        self.tick(1.0)
        self.gossip()

    def gossip(self, *names: str) -> None:
        for name in names or self.ones:
            for directory in self.views.values():
                directory.put(name, self.ones[name].record)

    def fed(self, _broker: str, _covers: Mapping[str, Cover]) -> bool:
        return self.has_fed

    def tick(self, now: float, *names: str) -> None:
        for name in names or self.ones:
            self.ones[name].tick(now, ["broker"], self.fed, lambda _: True)

    def asked(self) -> Mapping[str, tuple[float, ...]]:
        """By the broker."""
        return self.views["broker"].now(SPACE).table.tokens

    def places(self) -> dict[str, tuple[float, ...]]:
        return {name: one.record.tokens[SPACE] for name, one in self.ones.items()}


def test_all_are_fed_before_anybody_is_asked_there() -> None:
    two = TwoMatchers()
    two.has_fed = False
    assert all(one.move(ORDER, 2.0) for one in two.ones.values())
    two.gossip()
    assert two.asked() == OLD
    # What it needs in its new place is fed besides.
    assert two.views["broker"].cover(SPACE, "a") == ((((-float("inf"), 80.0)),),)
    two.tick(3.0)
    two.has_fed = True
    two.tick(4.0, "a")
    two.gossip()
    two.tick(5.0, "a")
    assert (two.asked(), two.places()) == (OLD, OLD)
    two.tick(6.0, "b")
    two.gossip("b")  # of a it is known that it is ready
    assert two.asked() == {"a": (0.0,), "b": (80.0,)}
    assert two.places() == OLD
    two.tick(7.0)
    two.gossip()
    assert two.places() == two.asked() == {"a": (0.0,), "b": (80.0,)}
    assert {one.record.moved for one in two.ones.values()} == {7}


def test_who_has_gone_tells_that_the_plan_is_in_force() -> None:
    two = TwoMatchers()
    for one in two.ones.values():
        one.move(ORDER, 2.0)
    two.gossip()
    two.tick(3.0)
    for name in two.ones:
        two.views["a"].put(name, two.ones[name].record)
    two.tick(4.0, "a")
    two.gossip("a")  # that b is ready has not come to the broker
    assert two.asked() == {"a": (0.0,), "b": (80.0,)}


def test_it_waits_until_the_others_have_heard_of_it() -> None:
    two = TwoMatchers()
    two.ones["a"].move(ORDER, 2.0)
    two.gossip()
    two.tick(3.0)
    assert two.ones["a"].record.move == PlannedMove(7, 2, {SPACE: (0.0,)})
    assert two.asked() == OLD


def test_nobody_waits_for_who_is_dead() -> None:
    two = TwoMatchers()
    two.ones["a"].move(ORDER, 2.0)
    for directory in two.views.values():
        directory.gone("b")
    two.tick(3.0, "a")
    two.tick(4.0, "a")
    assert two.ones["a"].record.moved == 7


def test_nor_for_ever() -> None:
    two = TwoMatchers()
    two.ones["b"].move(ORDER, 0.0)
    two.gossip()
    two.tick(MATCHER_MOVE_SECONDS_MAX - 1, "b")
    assert two.ones["b"].record.move == PlannedMove(7, 2, {SPACE: (80.0,)})
    two.tick(MATCHER_MOVE_SECONDS_MAX, "b")
    two.tick(2 * MATCHER_MOVE_SECONDS_MAX - 1, "b")
    assert two.ones["b"].record.move == PlannedMove(7, 2, {SPACE: (80.0,)}, is_ready=True)
    two.tick(2 * MATCHER_MOVE_SECONDS_MAX, "b")
    assert two.places() == {"a": (0.0,), "b": (80.0,)}


def test_a_later_plan_takes_its_place() -> None:
    two = TwoMatchers()
    one = two.ones["b"]
    assert one.move(ORDER, 1.0)
    assert not one.move(ORDER, 1.0)
    assert not one.move(MoveOrder(6, ORDER.places), 1.0)
    assert one.move(MoveOrder(8, {"b": {SPACE: (30.0,)}}), 1.0)
    assert one.record.next_tokens(SPACE) == (30.0,)


def test_an_order_for_others_or_for_another_space_is_not_taken() -> None:
    one = TwoMatchers().ones["a"]
    wrong: list[dict[str, dict[str, tuple[float, ...]]]] = [
        {"b": {SPACE: (1.0,)}},
        {"a": {}},
        {"a": {"other": (1.0,)}},
        {"a": {SPACE: (1.0, 2.0)}},
        {"a": {SPACE: (float("inf"),)}},
    ]
    for places in wrong:
        assert not one.move(MoveOrder(9, places), 1.0)


def test_who_leaves_or_joins_does_not_move() -> None:
    two = TwoMatchers()
    two.ones["a"].move(ORDER, 1.0)
    two.ones["a"].leave(2.0)
    assert two.ones["a"].record.move is None
    assert not two.ones["a"].move(MoveOrder(9, ORDER.places), 3.0)


def test_a_place_that_another_one_has_for_a_while_is_nobody_else_s() -> None:
    """A goes to where b was; neither gives way, whoever hears of it first."""
    two = TwoMatchers()
    order = MoveOrder(7, {"a": {SPACE: (50.0,)}, "b": {SPACE: (0.0,)}})
    two.ones["a"].move(order, 2.0)
    two.gossip()
    two.tick(3.0)
    two.ones["b"].move(order, 4.0)
    for now in (5.0, 6.0, 7.0):
        two.gossip("a")
        two.tick(now)
        two.gossip("b")
    assert two.places() == {"a": (50.0,), "b": (0.0,)}


def test_records_say_it() -> None:
    record = MatcherRecord(
        Phase.SERVING, {SPACE: (1.0,)}, 0.5, PlannedMove(3, 4, {SPACE: (2.0,)}, is_ready=True), 2
    )
    assert decode_record(encode_record(record)) == record
    assert (record.plan, record.next_tokens(SPACE), record.next_tokens("other")) == (
        3,
        (2.0,),
        None,
    )
