"""Where-clauses against trees that are evaluated directly, and every kind of invalid clause."""

import math
from random import Random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dovetail.attributes.conjunctions import Conjunction, Range
from dovetail.attributes.grammar import parse
from dovetail.attributes.limits import (
    WHERE_CONJUNCTIONS_MAX,
    WHERE_DEPTH_MAX,
    WHERE_MEMBERS_MAX,
    WHERE_NAMES_MAX,
)
from dovetail.attributes.space import matches
from dovetail.attributes.where_clause import WhereClause
from dovetail.errors import ReasonCode, WhereError
from dovetail.limits import WHERE_CHARACTERS_MAX
from support.strategies.where_clauses import (
    SPACE,
    Attributes,
    Tree,
    alternatives,
    holds,
    nonsense,
    publications,
    trees,
    written,
)

INFINITY = math.inf


def after(number: float) -> float:
    return math.nextafter(number, INFINITY)


def refusal(text: str) -> WhereError:
    with pytest.raises(WhereError) as refused:
        parse(text)
    return refused.value


def attempt(text: str) -> WhereClause | WhereError:
    try:
        return parse(text, characters_max=max(len(text), WHERE_CHARACTERS_MAX))
    except WhereError as error:
        return error


def parse_or_none(text: str) -> WhereClause | None:
    """Parse a drawn clause; None if nothing can satisfy it, its only possible error."""
    tried = attempt(text)
    if isinstance(tried, WhereClause):
        return tried
    assert "no publication can satisfy it" in tried.message
    return None


# What clauses mean ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("speed < 25", Range(-INFINITY, 25)),
        ("25 > speed", Range(-INFINITY, 25)),
        ("speed <= 25", Range(-INFINITY, after(25))),
        ("speed > 25", Range(after(25), INFINITY)),
        ("speed >= 25", Range(25, INFINITY)),
        ("speed = 25", Range(25, after(25))),
        ("25 == speed", Range(25, after(25))),
        ("40 <= speed < 41", Range(40, 41)),
        ("41 > speed >= 40", Range(40, 41)),
        ("1 < 40 <= speed < 41 == 41", Range(40, 41)),
        ("speed in [40, 41)", Range(40, 41)),
        ("speed IN [40, 41]", Range(40, after(41))),
        ("speed in (7)", Range(7, after(7))),
        ("speed < 30 And (speed >= 20)", Range(20, 30)),
        ("`speed`<-1.5e1", Range(-INFINITY, -15)),
        ("speed >= +.5", Range(0.5, INFINITY)),
        ("speed >= 1.", Range(1, INFINITY)),
        ("speed > -5e-324", Range(0, INFINITY)),
        ("speed < 1e308", Range(-INFINITY, 1e308)),
    ],
)
def test_numbers_become_half_open_ranges(text: str, expected: Range) -> None:
    assert parse(text).conjunctions == (Conjunction({"speed": expected}),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('location == "roomA"', {"roomA"}),
        ("'roomA' = location", {"roomA"}),
        ("location in (\"a\", 'b')", {"a", "b"}),
        ("location in ('a', 'b') and location in ('b', 'c')", {"b"}),
        (r"location == 'it\'s \\ \"'", {"it's \\ \""}),
        ("location == ''", {""}),
    ],
)
def test_texts_become_sets(text: str, expected: set[str]) -> None:
    assert parse(text).conjunctions == (Conjunction(texts={"location": frozenset(expected)}),)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("b<1 and a <= 25", "a <= 25 and b < 1"),
        ("a in (2, 1, 2)", "a == 1 or a == 2"),
        ("x < 1 and (y < 2 or z < 3)", "x < 1 and y < 2 or x < 1 and z < 3"),
        ("a < 1 or a < 2 or a < 1", "a < 2"),
        ("a < 1 or (a < 0 and b < 1)", "a < 1"),
        ("t in ('x', 'y') or t == 'x'", 't in ("x", "y")'),
        ("a < 1 or (b < 1 and b > 2)", "a < 1"),
        ("5 < a < 3 or b > 0 or 2 < 1 < c", "b > 0"),
        ("40<=lat and lat<41.50", "40 <= lat < 41.5"),
        ("a > 0 and a <= 1e22", "0 < a <= 1e+22"),
        ("a > -0", "a > 0"),
        ("a >= -0.0", "a >= 0"),
        ("`in` < 1 and `Or`='\"'", '`Or` == "\\"" and `in` < 1'),
        ("`a b` < 1 and `a.b` < 2", "`a b` < 1 and a.b < 2"),
    ],
)
def test_a_clause_has_one_canonical_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


def test_a_where_knows_what_was_written() -> None:
    where = parse("lat < 1 or (speed < 1 and speed > 2) or lat < 0")
    assert where.text == "lat < 1 or (speed < 1 and speed > 2) or lat < 0"
    assert where.places == {"lat": 0, "speed": 12}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"speed": 24.9, "location": "roomA"}, True),
        ({"speed": 25.0, "location": "roomA"}, False),
        ({"speed": 1.0, "location": "rooma"}, False),
        ({"speed": 1.0}, False),
        ({"location": "roomA"}, False),
        ({"speed": "1", "location": "roomA"}, False),
        ({"speed": 1.0, "location": 1.0}, False),
        ({"speed": math.nan, "location": "roomA"}, False),
    ],
)
def test_an_attribute_that_is_missing_or_of_another_kind_fails(
    attributes: Attributes, expected: bool
) -> None:
    assert parse("speed < 25 and location == 'roomA'").holds(attributes) is expected


@given(trees, st.randoms(use_true_random=False), st.lists(publications, max_size=10))
def test_a_clause_and_its_boxes_mean_what_the_tree_says(
    tree: Tree, random: Random, drawn: list[Attributes]
) -> None:
    assume(alternatives(tree) <= WHERE_CONJUNCTIONS_MAX)
    where = parse_or_none(written(tree, random))
    boxes = SPACE.boxes(where) if where is not None else ()
    for attributes in drawn:
        expected = holds(tree, attributes)
        assert (where is not None and where.holds(attributes)) is expected
        point = SPACE.point(attributes)
        assert any(matches(box, point) for box in boxes) is expected
        as_properties = SPACE.point({name: str(value) for name, value in attributes.items()})
        assert repr(as_properties) == repr(point)


@given(trees, st.randoms(use_true_random=False))
def test_the_canonical_form_is_read_as_the_same(tree: Tree, random: Random) -> None:
    assume(alternatives(tree) <= WHERE_CONJUNCTIONS_MAX)
    where = parse_or_none(written(tree, random))
    if where is not None:
        again = parse_or_none(str(where))
        assert again == where
        assert str(again) == str(where)


@given(trees, st.randoms(use_true_random=False))
def test_no_conjunction_is_within_another(tree: Tree, random: Random) -> None:
    assume(alternatives(tree) <= WHERE_CONJUNCTIONS_MAX)
    where = parse_or_none(written(tree, random))
    conjunctions = where.conjunctions if where is not None else ()
    for one in conjunctions:
        assert [other for other in conjunctions if other.contains(one)] == [one]
        for low, high in one.ranges.values():
            assert low < high
            assert (low, high) != (-INFINITY, INFINITY)


# What is refused --------------------------------------------------------------------------------

REFUSED = [
    ("", "it is empty", 0),
    ("  ", "it is empty", 0),
    ("speed", "ends where a comparison", 5),
    ("speed 25", "here should stand a comparison", 6),
    ("speed < ", "ends where an attribute, a number or a text", 8),
    ("speed < and", "here should stand an attribute, a number or a text", 8),
    ("speed < 25 lat", "here should stand 'and', 'or' or the end, and not 'lat'", 11),
    ("speed < 25)", "and not ')'", 10),
    ("(speed < 25", "ends where 'and', 'or' or ')'", 11),
    ("(speed < 25]", "here should stand 'and', 'or' or ')'", 11),
    ("a < b", "one attribute, and this is a second", 4),
    ("0 < a < b < 3", "one attribute, and this is a second", 8),
    ("a < 5 < a", "one attribute, and this is a second", 8),
    ("1 < 2", "compares no attribute", 0),
    ("'x' == 'x'", "compares no attribute", 0),
    ("a == 'x' == 'x'", "a text is compared with an attribute", 12),
    ("a < 1 < 'x'", "a text is compared with an attribute", 8),
    ("a < inf", "'inf' is no number; leave that end open", 4),
    ("-1 < NaN < a", "'NaN' is no number", 5),
    ("a < 1e999", "'1e999' is too large; numbers go up to 1e+308", 4),
    ("a > -1.1e308", "too large", 4),
    ("a < 25abc", "'25abc' is not a number", 4),
    ("a < 1_000", "'1_000' is not a number", 4),
    ("a < 1.2.3", "'1.2.3' is not a number", 4),
    ("a < 0x10", "'0x10' is not a number", 4),
    ("a < --5", "'-' has no meaning here", 4),
    ("a < 5;", "';' has no meaning here; texts stand in quotes", 5),
    ("a != 5", "there is no '!='", 2),
    ("a <> 5", "there is no '<>'", 2),
    ("a < 5 && b < 5", "'and' is written as a word", 6),
    ("a < 5 || b < 5", "'or' is written as a word", 6),
    ("not a < 5", "there is no 'not'", 0),
    ("t > 'x'", "'>' compares numbers", 0),
    ("'x' <= t", "'>=' compares numbers", 7),
    ("a in 5", "'[' and an interval, or '(' and a set", 5),
    ("5 in (5)", "'in' has an attribute on its left", 0),
    ("a in ()", "here should stand a number or a text in quotes", 6),
    ("a in (b)", "here should stand a number or a text in quotes", 6),
    ("a in (1, 'x')", "numbers or texts, and not both", 9),
    ("a in (1, 2]", "an interval begins with '['", 0),
    ("a in (1 2)", "here should stand ',' or ')'", 8),
    ("a in (1, 2", "ends where ',' or ')'", 10),
    ("a in [1)", "here should stand ',' and the interval's other end", 7),
    ("a in ['x', 'y']", "here should stand a number", 6),
    ("a in [1, 2, 3]", "here should stand ')' or ']'", 10),
    ("t == 'x", "the quote ' that begins here has no end", 5),
    ("`t == 'x'", "the quote ` that begins here has no end", 0),
    (r"t == 'x\n'", "behind a backslash", 7),
    ("t == 'x\\", "behind a backslash", 7),
    ("`` == 'x'", "between these backticks is empty", 0),
    ("a < 1 and a == 'x'", "'a' is compared with a text, and elsewhere with a number", 10),
    ("a == 'x' or a < 1", "'a' is compared with a number, and elsewhere with a text", 12),
    ("a < 1 and a > 2", "no publication can satisfy it", 10),
    ("a < 1 and (b < 1 or c < 1) and 5 < a", "no publication can satisfy it", 31),
    ("t == 'x' and t == 'y'", "no publication can satisfy it", 13),
    ("a in (1, 2) and b < 1 and a > 5", "no publication can satisfy it", 26),
    ("a in [5, 1)", "no publication can satisfy it", 0),
    ("a in [5, 5)", "no publication can satisfy it", 0),
    ("2 < 1 < a", "no publication can satisfy it", 0),
]


@pytest.mark.parametrize(("text", "why", "position"), REFUSED)
def test_a_bad_clause_is_refused_with_the_reason_and_the_place(
    text: str, why: str, position: int
) -> None:
    error = refusal(text)
    assert why in error.message
    assert error.message.startswith("where-clause: ")
    assert "\n" not in error.message
    assert (error.text, error.position) == (text, position)
    assert error.reason is ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert error.hint == f"{text}\n{' ' * position}^"


def test_a_long_clause_is_shown_around_its_fault() -> None:
    error = refusal("a < 1\nand " * 50 + "a ! 5" + " or a < 1" * 50)
    assert error.hint is not None
    clause, caret = error.hint.splitlines()
    assert clause[caret.index("^")] == "!"
    assert clause.startswith("…")
    assert clause.endswith("…")
    assert len(clause) < 90
    assert len(str(refusal("a" * 3_000))) < 400
    assert len(str(refusal("1" * 3_000 + " < a"))) < 400


@given(nonsense)
@example("a<1" + " or a<1" * 100)
def test_any_text_is_taken_or_refused_and_nothing_else(text: str) -> None:
    tried = attempt(text)
    if isinstance(tried, WhereClause):
        assert attempt(str(tried)) == tried
    else:
        assert tried.text == text
        assert 0 <= tried.position <= len(text)
        assert tried.hint is not None
        assert len(tried.hint.split("\n")) == 2


@given(trees, st.randoms(use_true_random=False), st.data())
def test_a_slip_is_taken_or_refused_and_nothing_else(
    tree: Tree, random: Random, data: st.DataObject
) -> None:
    text = written(tree, random)
    first = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(first, min(first + 2, len(text))))
    slipped = text[:first] + data.draw(nonsense) + text[end:]
    tried = attempt(slipped)
    assert isinstance(tried, WhereClause) or 0 <= tried.position <= len(slipped)


# Bounds -----------------------------------------------------------------------------------------


def count_meets(monkeypatch: pytest.MonkeyPatch) -> list[Conjunction]:
    """Return a list that grows by one with each intersection of two conjunctions."""
    meets: list[Conjunction] = []
    meet = Conjunction.intersect

    def counted(one: Conjunction, other: Conjunction) -> Conjunction | None:
        meets.append(one)
        return meet(one, other)

    monkeypatch.setattr(Conjunction, "intersect", counted)
    return meets


def test_a_clause_has_a_length() -> None:
    clause = "a < 1" + " " * (WHERE_CHARACTERS_MAX - 5)
    parse(clause)
    error = refusal(clause + " ")
    assert "it has 4,097 characters of at most 4,096" in error.message
    assert error.position == WHERE_CHARACTERS_MAX


def test_parentheses_have_a_depth() -> None:
    def nested(depth: int) -> str:
        return "(" * depth + "a < 1" + ")" * depth

    parse(nested(WHERE_DEPTH_MAX))
    parse(f"{nested(WHERE_DEPTH_MAX)} and {nested(WHERE_DEPTH_MAX)}")
    error = refusal(nested(WHERE_DEPTH_MAX + 1))
    assert "more than 32 parentheses within each other" in error.message
    assert error.position == WHERE_DEPTH_MAX
    refusal("(" * WHERE_CHARACTERS_MAX)


def test_a_set_has_a_number_of_members() -> None:
    def texts(count: int) -> str:
        members = ", ".join(f"'{index}'" for index in range(count))
        return f"t in ({members})"

    assert len(parse(texts(WHERE_MEMBERS_MAX)).conjunctions) == 1
    assert "a set has at most 256 values" in refusal(texts(WHERE_MEMBERS_MAX + 1)).message


def test_a_clause_names_so_many_attributes() -> None:
    def names(count: int) -> str:
        return " and ".join(f"a{index} < 1" for index in range(count))

    parse(names(WHERE_NAMES_MAX))
    error = refusal(names(WHERE_NAMES_MAX + 1))
    assert "more than 32 attributes" in error.message
    assert error.text[error.position :] == "a32 < 1"


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (
            " or ".join(f"a == {index}" for index in range(64)),
            " or ".join(f"a == {index}" for index in range(65)),
        ),
        (f"a in ({', '.join(map(str, range(64)))})", f"a in ({', '.join(map(str, range(65)))})"),
        (
            " and ".join(f"(a{index} < 1 or b{index} < 1)" for index in range(6)),
            " and ".join(f"(a{index} < 1 or b{index} < 1)" for index in range(7)),
        ),
    ],
)
def test_alternatives_are_counted_before_they_are_multiplied_out(fits: str, does_not: str) -> None:
    assert len(parse(fits).conjunctions) == WHERE_CONJUNCTIONS_MAX
    error = refusal(does_not)
    assert "alternatives of at most 64" in error.message
    assert error.position > 0 or "in" in error.text


@pytest.mark.parametrize(
    "clause",
    [
        " and ".join(["(a < 1 or b < 1)"] * 200),
        " and ".join(["a in (1, 2, 3, 4, 5, 6, 7, 8)"] * 100),
        " or ".join(["a < 1"] * 400),
        " and ".join(["a < 1"] * 400),
        "(a < 1 or b < 1 and " * 30 + "c < 1" + ")" * 30,
        "(a in (1, 2) and b in (1, 2) and " * 30 + "c < 1" + ")" * 30,
        " and ".join(["t in ('a', 'b', 'c')"] * 150),
        "1 <= " * 800 + "a",
    ],
)
def test_work_is_bounded_by_the_length_of_a_clause(
    clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meets = count_meets(monkeypatch)
    tried = attempt(clause)
    if isinstance(tried, WhereClause):
        assert len(tried.conjunctions) <= WHERE_CONJUNCTIONS_MAX
    else:
        assert "alternatives of at most" in tried.message
    assert len(meets) <= WHERE_CONJUNCTIONS_MAX * len(clause.split())


def test_what_is_narrow_is_joined_before_it_is_multiplied_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meets = count_meets(monkeypatch)
    wide = " and ".join(f"(a{index} < 1 or b{index} < 1)" for index in range(6))
    parse(f"{wide} and {' and '.join(['c < 1'] * 300)}")
    assert len(meets) < 1_000
