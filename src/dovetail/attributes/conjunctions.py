"""Conditions that hold together: a range for some attributes, a set of texts for others.

- A range is half-open, [low, high). `<=`, `>` and `==` become so by the next float above: there is
  none between. All numbers are floats, those of publications too, so nothing is lost by it.
- An open end is an infinity. No range has two: a condition on a number has a number in it.
- An attribute that a publication does not have fails every condition on it.

`holds` is the oracle: it is written to be read. `str` gives a clause that means exactly the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.attributes.tokens import as_name, as_number, as_text

COMPARISONS = ("<", "<=", ">", ">=", "==")


class Range(NamedTuple):
    """low <= value < high."""

    low: float
    high: float


def above(value: float) -> float:
    """The next float; never the zero that has a sign."""
    return math.nextafter(value, math.inf) + 0.0


def below(value: float) -> float:
    return math.nextafter(value, -math.inf) + 0.0


def range_of(comparison: str, value: float) -> Range:
    """The numbers x of which `x {comparison} {value}` is true."""
    match comparison:
        case "<":
            return Range(-math.inf, value)
        case "<=":
            return Range(-math.inf, above(value))
        case ">":
            return Range(above(value), math.inf)
        case ">=":
            return Range(value, math.inf)
    return Range(value, above(value))


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

    def meet(self, other: "Conjunction") -> "Conjunction | None":
        """Both at once; None if nothing can be."""
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
        """Does everything of which the other holds satisfy this one?"""
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
        conditions = {name: _range_clause(name, its) for name, its in self.ranges.items()}
        conditions |= {name: _texts_clause(name, its) for name, its in self.texts.items()}
        return " and ".join(clause for _, clause in sorted(conditions.items()))


def _range_clause(name: str, its: Range) -> str:
    low, high = its
    if high == above(low):
        return f"{as_name(name)} == {as_number(low)}"
    at_least, least = _shorter((">=", low), (">", below(low)))
    at_most, most = _shorter(("<", high), ("<=", below(high)))
    if high == math.inf:
        return f"{as_name(name)} {at_least} {least}"
    if low == -math.inf:
        return f"{as_name(name)} {at_most} {most}"
    return f"{least} {at_least.replace('>', '<')} {as_name(name)} {at_most} {most}"


def _shorter(one: tuple[str, float], other: tuple[str, float]) -> tuple[str, str]:
    """Of two ways to say the same, the one that somebody will have written: `<= 25`."""
    shown = [(comparison, as_number(value)) for comparison, value in (one, other)]
    return min(shown, key=lambda way: len(way[1]))


def _texts_clause(name: str, allowed: frozenset[str]) -> str:
    if len(allowed) == 1:
        return f"{as_name(name)} == {as_text(*allowed)}"
    return f"{as_name(name)} in ({', '.join(map(as_text, sorted(allowed)))})"
