"""Where-clauses as trees: drawn at random, evaluated directly, and written in many ways.

Names, numbers and texts are few, so that publications often satisfy clauses.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from dovetail.attributes.space import Dimension, Space

NUMBER_NAMES = ("a", "b.c", "odd `name", "_D")
TEXT_NAMES = ("t", "In")
TEXTS = ("", "x", "roomA", "it's", 'a "b\\c"', "12", "é\n日本")
SIGNS = ("<", "<=", ">", ">=", "==")

SPACE = Space(
    "drawn",
    "drawn/#",
    tuple(Dimension(name, -1, 1, is_searchable=name == "a") for name in NUMBER_NAMES),
    frozenset(TEXT_NAMES),
)

Attributes = Mapping[str, float | str]

_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Comparison:
    """`name sign value`, or `value sign name`."""

    name: str
    sign: str
    value: float | str
    is_value_first: bool


@dataclass(frozen=True)
class ChainedComparison:
    low: float
    low_sign: str
    name: str
    high_sign: str
    high: float


@dataclass(frozen=True)
class IntervalMembership:
    name: str
    low: float
    high: float
    is_closed: bool


@dataclass(frozen=True)
class SetMembership:
    name: str
    values: tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True)
class BooleanExpression:
    word: str
    parts: tuple["Tree", ...]


Tree = Comparison | ChainedComparison | IntervalMembership | SetMembership | BooleanExpression

_numbers = (
    st.integers(-2, 3).map(float)
    | st.sampled_from([0.5, -0.0, 5e-324, 1e-7, 1e22, 1e308, -1e308, math.nextafter(1, 2)])
    | st.floats(-1e308, 1e308)
)
_texts = st.sampled_from(TEXTS)
_number_name = st.sampled_from(NUMBER_NAMES)
_text_name = st.sampled_from(TEXT_NAMES)
_sign = st.sampled_from(SIGNS)
_leaves: st.SearchStrategy[Tree] = st.one_of(
    st.builds(Comparison, _number_name, _sign, _numbers, st.booleans()),
    st.builds(Comparison, _text_name, st.just("=="), _texts, st.booleans()),
    st.builds(ChainedComparison, _numbers, _sign, _number_name, _sign, _numbers),
    st.builds(IntervalMembership, _number_name, _numbers, _numbers, st.booleans()),
    st.builds(SetMembership, _number_name, st.lists(_numbers, min_size=1, max_size=3).map(tuple)),
    st.builds(SetMembership, _text_name, st.lists(_texts, min_size=1, max_size=3).map(tuple)),
)


def _joined(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(BooleanExpression, st.sampled_from(["and", "or"]), several)


trees: st.SearchStrategy[Tree] = st.recursive(_leaves, _joined, max_leaves=8)

_values = _numbers | _numbers.map(lambda number: math.nextafter(number, math.inf))
publications: st.SearchStrategy[Attributes] = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NUMBER_NAMES, _values),
        **dict.fromkeys(TEXT_NAMES, _texts),
    },
)


def holds(tree: Tree, attributes: Attributes) -> bool:
    """Evaluate the tree for a publication."""
    if isinstance(tree, BooleanExpression):
        every = (holds(part, attributes) for part in tree.parts)
        return all(every) if tree.word == "and" else any(every)
    value = attributes.get(tree.name)
    if value is None:
        return False
    match tree:
        case Comparison():
            pair = (tree.value, value) if tree.is_value_first else (value, tree.value)
            return bool(_COMPARED[tree.sign](*pair))
        case ChainedComparison():
            return bool(
                _COMPARED[tree.low_sign](tree.low, value)
                and _COMPARED[tree.high_sign](value, tree.high)
            )
        case IntervalMembership():
            assert isinstance(value, float)
            is_below = value <= tree.high if tree.is_closed else value < tree.high
            return tree.low <= value and is_below
        case SetMembership():
            return value in tree.values


def alternatives(tree: Tree) -> int:
    """Count the conjunctions of the multiplied-out tree, with none dropped."""
    match tree:
        case BooleanExpression(word="and"):
            return math.prod(map(alternatives, tree.parts))
        case BooleanExpression():
            return sum(map(alternatives, tree.parts))
        case SetMembership() if isinstance(tree.values[0], float):
            return len(tree.values)
    return 1


def written(tree: Tree, random: Random) -> str:
    """Write the tree as a clause; free choices are made at random."""
    clause = ""
    for token in _tokens(tree, random):
        needs_space = clause and _is_wordy(clause[-1]) and _is_wordy(token[0])
        clause += random.choice([" ", "  ", "\t\n"] if needs_space else ["", " "]) + token
    return clause + random.choice(["", " "])


def _is_wordy(character: str) -> bool:
    return character.isalnum() or character in "_.+-"


def _tokens(tree: Tree, random: Random) -> list[str]:
    tokens = _plain_tokens(tree, random)
    return ["(", *tokens, ")"] if random.random() < 0.2 else tokens


def _plain_tokens(tree: Tree, random: Random) -> list[str]:
    if isinstance(tree, BooleanExpression):
        return _joined_tokens(tree, random)
    name = _name(tree.name, random)
    match tree:
        case Comparison():
            sign = random.choice(["=", "=="]) if tree.sign == "==" else tree.sign
            value = _value(tree.value, random)
            return [value, sign, name] if tree.is_value_first else [name, sign, value]
        case ChainedComparison():
            low, high = _value(tree.low, random), _value(tree.high, random)
            return [low, tree.low_sign, name, tree.high_sign, high]
        case IntervalMembership():
            ends = [_value(tree.low, random), ",", _value(tree.high, random)]
            return [name, _word("in", random), "[", *ends, "]" if tree.is_closed else ")"]
        case SetMembership():
            values = [text for one in tree.values for text in (",", _value(one, random))]
            return [name, _word("in", random), "(", *values[1:], ")"]


def _joined_tokens(tree: BooleanExpression, random: Random) -> list[str]:
    tokens: list[str] = []
    for part in tree.parts:
        inside = _tokens(part, random)
        if tree.word == "and" and isinstance(part, BooleanExpression):
            inside = ["(", *inside, ")"]
        tokens += [_word(tree.word, random), *inside]
    return tokens[1:]


def _word(word: str, random: Random) -> str:
    return random.choice([word, word.upper(), word.title()])


def _name(name: str, random: Random) -> str:
    is_plain = name.replace(".", "").isidentifier() and name.lower() != "in"
    if is_plain and random.random() < 0.8:
        return name
    return _quoted(name, "`")


def _value(value: float | str, random: Random) -> str:
    if isinstance(value, str):
        return _quoted(value, random.choice("\"'"))
    ways = [repr(value), f"{value:.17e}", f"{value:+.17g}"]
    if value.is_integer():
        ways += [str(int(value)), f"{int(value)}."]
    return random.choice(ways)


def _quoted(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return quote + escaped + quote


PIECES: Sequence[str] = (
    *("a", "b", "`a b`", "t", "nan", "inf", "1", "-2.5", "1e3", "1e999", "'x'", '"y"', "'", "`"),
    *("<", "<=", ">", ">=", "=", "==", "!=", "!", "(", "(", ")", ")", "[", "]", ",", "\\", "%"),
    *("and", "AND", "or", "in", "not", "é", "\0", " ", "\n", "\ud800", "?", "&"),
)
"""Tokens of clauses, and some invalid ones."""

nonsense = (
    st.text(max_size=30)
    | st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join)
    | st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
)
