"""Which of many clauses a point satisfies, against a check of each."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.attributes.clauses import Clause, ClauseSet, boxes_of, check_key, key_of, split_key
from dovetail.attributes.grammar import parse
from dovetail.attributes.limits import CLAUSES_UNINDEXED_MAX
from dovetail.attributes.space import Dimension, Point, Space
from dovetail.attributes.where_clause import WhereClause
from dovetail.errors import ClientError
from support.strategies.where_clauses import SPACE, Tree, alternatives, publications, trees, written

MANY = 4 * CLAUSES_UNINDEXED_MAX
TWO = Space("two", "s/#", (Dimension("x", 0, 10), Dimension("y", 0, 10)), frozenset({"t"}))


def drawn_clause(random: Random) -> Clause:
    """Clauses of one to three boxes, some with a text. Values are few, so points meet borders."""
    parts = []
    for _ in range(random.randint(1, 3)):
        low = random.randint(0, 8)
        conditions = [f"{low} <= x < {low + random.randint(1, 4)}"]
        if random.random() < 0.7:
            conditions.append(f"y >= {random.randint(0, 9)}")
        if random.random() < 0.3:
            conditions.append(f't == "{random.choice("ab")}"')
        parts.append(" and ".join(conditions))
    return Clause(TWO, TWO.boxes(parse(" or ".join(parts))))


def drawn_point(random: Random) -> Point:
    values = tuple(random.choice([math.nan, *range(12)]) for _ in range(2))
    return Point(values, {"t": random.choice("abc")} if random.random() < 0.5 else {})


@pytest.mark.parametrize("seed", range(20))
def test_clauses_come_and_go(seed: int) -> None:
    random = Random(seed)
    clauses: ClauseSet[int] = ClauseSet("s/#", TWO)
    there: dict[int, Clause] = {}
    number = 0
    for _ in range(60):
        is_growing = random.random() < 0.6
        for _ in range(random.choice([1, 3, MANY])):
            if is_growing or not there:
                number += 1
                there[number] = drawn_clause(random)
                clauses.add(number, there[number])
            else:
                gone = random.choice(list(there))
                del there[gone]
                clauses.remove(gone)
        assert len(clauses) == len(there)
        assert clauses.boxes == sum(len(clause.boxes) for clause in there.values())
        for _ in range(3):
            point = drawn_point(random)
            found = clauses.find(point)
            assert len(found) == len(set(found)), "found twice"
            assert set(found) == {name for name, clause in there.items() if clause.holds(point)}


@settings(max_examples=50)
@given(st.lists(trees, max_size=5), st.lists(publications, min_size=1, max_size=5), st.randoms())
def test_clauses_as_clients_write_them(
    drawn: list[object], published: list[dict[str, float | str]], random: Random
) -> None:
    clauses: ClauseSet[int] = ClauseSet(SPACE.topics, SPACE)
    wheres: dict[int, WhereClause] = {}
    for tree in drawn:
        if alternatives(tree) > 16:  # type: ignore[arg-type]
            continue
        try:
            where = parse(written(tree, random))  # type: ignore[arg-type]
        except ClientError:
            continue  # nothing can satisfy it
        wheres[len(wheres)] = where
        clauses.add(len(wheres) - 1, Clause(SPACE, SPACE.boxes(where)))
    for attributes in published:
        found = clauses.find(SPACE.point(attributes))
        assert sorted(found) == [n for n, where in wheres.items() if where.holds(attributes)]


def test_those_that_wait_for_the_index_can_be_put_there_before_somebody_asks() -> None:
    clauses: ClauseSet[int] = ClauseSet("s/#", TWO)
    random = Random(1)
    there = {number: drawn_clause(random) for number in range(MANY)}
    for number, clause in there.items():
        clauses.add(number, clause)
        if number % 50 == 0:
            clauses.update_index()
    clauses.remove(0)
    del there[0]
    clauses.update_index()
    for _ in range(10):
        point = drawn_point(random)
        found = sorted(number for number, clause in there.items() if clause.holds(point))
        assert sorted(clauses.find(point)) == found


@given(trees, st.randoms(use_true_random=False))
def test_a_key_tells_how_many_boxes_there_are(tree: Tree, random: Random) -> None:
    try:
        where = parse(written(tree, random))
    except ClientError:
        return
    assert boxes_of(key_of("this or that/#", str(where))) == len(where.conjunctions)


def test_words_in_texts_and_filters_are_no_boxes() -> None:
    assert boxes_of("a or b/#") == 1
    clause = str(parse("t == 'a or b' or t == 'it\\'s \" or \"' or `x or y` < 1"))
    assert boxes_of(key_of("a or b/#", clause)) == 3


def test_keys() -> None:
    assert split_key(key_of("a/#", "x < 1")) == ("a/#", "x < 1")
    assert key_of("a/#", "") == "a/#"
    assert split_key("a/#") == ("a/#", "")
    check_key(key_of("$share/g/a/#", "x < 1"))
    for bad in ("a\0", "a\0b\0c", "a/#/b\0x < 1", "\0x < 1"):
        with pytest.raises(ClientError):
            check_key(bad)
