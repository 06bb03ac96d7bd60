"""The fast path for where-clauses against the whole grammar: the same result, or none."""

import math
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.attributes.conjunctions import Conjunction, Range, below
from dovetail.attributes.grammar import parse, parse_fully
from dovetail.attributes.limits import WHERE_CONJUNCTIONS_MAX, WHERE_MEMBERS_MAX, WHERE_NAMES_MAX
from dovetail.attributes.simple_grammar import parse_simple
from dovetail.attributes.tokens import as_number
from dovetail.attributes.where_clause import WhereClause
from dovetail.errors import WhereError
from dovetail.limits import WHERE_CHARACTERS_MAX
from support.strategies.where_clauses import PIECES, Tree, nonsense, trees, written

FACTORS = (
    *("a < 1", "a<=-2.5e1", "b.c >= .5", "_D > +3", "a == 1", "a=0", "1 < a", "1>=a", "-1 = a"),
    *("0 <= a < 2", "0<a<=1e22", "3 >= a > 1", "1 == a == 1", "2 < a < 1", "1 < a == 1"),
    *("a in [0, 1)", "a IN[-1,1]", "`odd name` in [ 1 , 2 )", "a in [2, 1]", "`a` < 5e-324"),
    *('t == "x"', "t='x'", 't in ("x", "y")', "t in('', 'é\n日本',\"x\")", "t == 'and'"),
    *("`in` > 1", "`t` in ('or')", "inf < 1", "nan > 2", "a.and < 1", "android < 1", "orb > 2"),
    # Not plain, or refused.
    *("(a < 1)", "a in (1, 2)", "'x' == t", "t == 'it\\'s'", "a < 'x'", "a < 1e999", "a < 1 2"),
    *("1 < a in [1, 2]", "1 < t == 'x'", "a", "1", "1 < 2", "1 < a < b", "1 < 2 < a", "in < 1"),
    *("a < 1and", "aand < 1", "a in[1,2]and", "a in (1]", "t in ['x']", "a <> 1", "a != 1", "``<1"),
)  # fmt: skip
JOINTS = (" and ", " or ", " AND ", " Or ", "and", "or", "\tand\n", "\N{NO-BREAK SPACE}and ", " ")


def outcome(text: str, *, is_short: bool) -> tuple[object, ...]:
    """Return everything that can be compared."""
    read = parse if is_short else parse_fully
    try:
        where = read(text, characters_max=max(len(text), WHERE_CHARACTERS_MAX))
    except WhereError as error:
        return str(error), error.position
    return where.conjunctions, str(where), where.text, dict(where.places)


def check(text: str) -> None:
    assert outcome(text, is_short=True) == outcome(text, is_short=False)


@given(trees, st.randoms(use_true_random=False))
def test_whatever_is_written_is_read_the_same(tree: Tree, random: Random) -> None:
    text = written(tree, random)
    check(text)
    try:
        where = parse_fully(text)
    except WhereError:
        return
    check(str(where))


@given(nonsense)
@example("a" + " " * 200 + "x")
@example("0 < 1 < `a` <")
@example("\N{LATIN SMALL LETTER DOTLESS I}n < 1 and a \N{LATIN SMALL LETTER DOTLESS I}n [1, 2]")
@example("a < 1 orK")
def test_nonsense_is_refused_the_same(text: str) -> None:
    check(text)


@given(
    st.lists(st.sampled_from(FACTORS), min_size=1, max_size=4),
    st.lists(st.sampled_from(JOINTS), min_size=3, max_size=3),
    st.integers(0, 60),
    st.sampled_from(("", "", *PIECES)),
)
def test_nearly_plain_clauses_are_read_the_same(
    factors: list[str], joints: list[str], position: int, piece: str
) -> None:
    text = factors[0]
    for joint, factor in zip(joints, factors[1:], strict=False):
        text += joint + factor
    check(text[:position] + piece + text[position:])


@given(trees, st.randoms(use_true_random=False))
def test_all_that_is_stored_is_plain(tree: Tree, random: Random) -> None:
    try:
        where = parse_fully(written(tree, random))
    except WhereError:
        return
    text = str(where)
    plain = parse_simple(text)
    assert (plain is None) == ("\\" in text)
    if plain is not None:
        assert tuple(plain.alternatives) == where.conjunctions


@pytest.mark.parametrize(
    "text",
    [
        "40 <= lat < 41 and -74 <= lon < -73",
        "lat in [40, 41) and lon in [-74, -73]",
        "speed < 25 and speed >= 5",
        "speed < 25 or road == 'A1' and surface in ('ice', \"snow\")",
    ],
)
def test_common_clauses_are_plain(text: str) -> None:
    assert parse_simple(text) is not None
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        " or ".join(f"a < {number}" for number in range(WHERE_CONJUNCTIONS_MAX + 1)),
        " and ".join(f"a{number} < 1" for number in range(WHERE_NAMES_MAX + 1)),
        "t in (" + ", ".join(["'x'"] * (WHERE_MEMBERS_MAX + 1)) + ")",
        "a < 1e309",
        "a < 1 and a > 2",
        "a < 1 and a == 'x'",
        "a == 'x' or a < 1",
        "",
        " ",
    ],
)
def test_whatever_is_wrong_is_left_to_who_can_say_why(text: str) -> None:
    assert parse_simple(text) is None
    with pytest.raises(WhereError):
        parse(text)
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 500_000 + "x",
        "1" * 500_000 + "x",
        "a in (" + '"x",' * 100_000,
        "a < 1 and " * 50_000 + "a",
        "a == '" + "x" * 500_000,
        "`" * 500_000,
        "1 < " * 100_000,
    ],
)
def test_the_pattern_does_not_go_back(text: str) -> None:
    """With backtracking this would take hours."""
    assert parse_simple(text) is None


@given(st.floats(-1e308, 1e308), st.booleans())
@example(5e-324, True)
@example(-5e-324, True)
@example(2.5e-310, False)
@example(1e22, True)
@example(math.nextafter(25, 26), True)
def test_of_two_ways_to_write_a_border_the_shorter_is_taken(value: float, is_low: bool) -> None:
    value += 0.0
    range_ = Range(value, math.inf) if is_low else Range(-math.inf, value)
    here, before = as_number(value), as_number(below(value))
    signs = (">=", ">") if is_low else ("<", "<=")
    shown = f"x {signs[0]} {here}" if len(here) <= len(before) else f"x {signs[1]} {before}"
    assert str(Conjunction({"x": range_})) == shown
    assert parse(shown) == WhereClause((Conjunction({"x": range_}),), shown, {})
