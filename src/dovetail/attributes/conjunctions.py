"""Conditions joined by `and`: a range for some attributes, a set of texts for others.

- A range is half-open, [low, high). `<=`, `>` and `==` use the next float above their number. All
  numbers are floats, those of publications too, so this is exact.
- An open end is an infinity. No range has two: a condition on a number has a number in it.
- An attribute that a publication lacks fails every condition on it.

`holds` is the oracle: it is written to be read. `str` gives a clause with exactly the same meaning.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.attributes.tokens import as_name, as_number, as_text

_EVERY_NUMBER = (-math.inf, math.inf)
COMPARISONS = ("<", "<=", ">", ">=", "==")
_DIGITS_FEW = 15  # decimals of so many digits are further apart than floats
_TINY = 1e-300


class Range(NamedTuple):
    """low <= value < high."""

    low: float
    high: float


def above(value: float) -> float:
    """Return the next float above; never -0.0."""
    return math.nextafter(value, math.inf) + 0.0


def below(value: float) -> float:
    return math.nextafter(value, -math.inf) + 0.0


def narrow_range(low: float, high: float, comparison: str, value: float) -> tuple[float, float]:
    """Return the part of [low, high) where `x {comparison} {value}` is true; it may be empty."""
    if comparison == "<":
        return (low, value) if value < high else (low, high)
    if comparison == ">=":
        return (value, high) if value > low else (low, high)
    next_one = above(value)
    if comparison == "<=":
        return low, min(high, next_one)
    if comparison == ">":
        return max(low, next_one), high
    return max(low, value), min(high, next_one)


def range_of(comparison: str, value: float) -> Range:
    """Return the range of numbers x for which `x {comparison} {value}` is true."""
    return Range(*narrow_range(*_EVERY_NUMBER, comparison, value))


@dataclass(frozen=True)
class Conjunction:
    """Each attribute named here is a number in its range, or one of its texts."""

    ranges: Mapping[str, Range] = field(default_factory=dict)
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def holds(self, attributes: Mapping[str, float | str]) -> bool:
        for name, (low, high) in self.ranges.items():
            value = attributes.get(name)
            if value is None or isinstance(value, str) or not low <= value < high:
                return False
        return all(attributes.get(name) in allowed for name, allowed in self.texts.items())

    def intersect(self, other: "Conjunction") -> "Conjunction | None":
        """Return the conjunction of both; None if nothing can satisfy it."""
        ranges = {**self.ranges}
        for name, (low, high) in other.ranges.items():
            mine = ranges.get(name, Range(-math.inf, math.inf))
            ranges[name] = Range(max(low, mine.low), min(high, mine.high))
            if ranges[name].low >= ranges[name].high:
                return None
        texts = {**self.texts}
        for name, allowed in other.texts.items():
            texts[name] = allowed & texts.get(name, allowed)
            if not texts[name]:
                return None
        return Conjunction(ranges, texts)

    def contains(self, other: "Conjunction") -> bool:
        """Does everything that satisfies the other one satisfy this one?"""
        for name, (low, high) in self.ranges.items():
            inner = other.ranges.get(name)
            if inner is None or inner.low < low or inner.high > high:
                return False
        for name, allowed in self.texts.items():
            fewer = other.texts.get(name)
            if fewer is None or not fewer <= allowed:
                return False
        return True

    def __str__(self) -> str:
        conditions = [(name, _range_clause(name, its)) for name, its in self.ranges.items()]
        conditions += [(name, _texts_clause(name, its)) for name, its in self.texts.items()]
        conditions.sort()
        return " and ".join([clause for _, clause in conditions])


class ConjunctionBuilder:
    """Collects the conditions of a conjunction."""

    __slots__ = ("_ranges", "_texts", "is_possible")

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[float, float]] = {}
        self._texts: dict[str, frozenset[str]] = {}
        self.is_possible = True
        """Can anything satisfy all of them?"""

    def compare(self, name: str, comparison: str, value: float) -> None:
        low, high = self._ranges.get(name, _EVERY_NUMBER)
        low, high = self._ranges[name] = narrow_range(low, high, comparison, value)
        if low >= high:
            self.is_possible = False

    def one_of(self, name: str, texts: Iterable[str]) -> None:
        allowed = frozenset(texts)
        self._texts[name] = allowed = allowed & self._texts.get(name, allowed)
        if not allowed:
            self.is_possible = False

    def build(self) -> Conjunction:
        """Return the conjunction of all conditions so far."""
        ranges = {name: Range(low, high) for name, (low, high) in self._ranges.items()}
        return Conjunction(ranges, self._texts)


def _range_clause(name: str, its: Range) -> str:
    low, high = its
    if high == above(low):
        return f"{as_name(name)} == {as_number(low)}"
    if high == math.inf:
        is_itself, least = _border(low)
        return f"{as_name(name)} {'>=' if is_itself else '>'} {least}"
    is_next, most = _border(high)
    upper = f"{as_name(name)} {'<' if is_next else '<='} {most}"
    if low == -math.inf:
        return upper
    is_itself, least = _border(low)
    return f"{least} {'<=' if is_itself else '<'} {upper}"


def _border(value: float) -> tuple[bool, str]:
    """Return whether to write a range's border itself or the float below it, and the text.

    The shorter one is what a client wrote, as in `<= 25`: the neighbour of a float with few digits
    has many, except near zero.
    """
    text = as_number(value)
    if len(text) <= _DIGITS_FEW and not 0.0 < abs(value) < _TINY:
        return True, text
    other = as_number(below(value))
    return (True, text) if len(text) <= len(other) else (False, other)


def _texts_clause(name: str, allowed: frozenset[str]) -> str:
    if len(allowed) == 1:
        return f"{as_name(name)} == {as_text(*allowed)}"
    return f"{as_name(name)} in ({', '.join(map(as_text, sorted(allowed)))})"
