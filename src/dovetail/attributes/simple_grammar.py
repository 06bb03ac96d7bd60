"""Parse where-clauses without parentheses by one regular expression: a fast path of `grammar.py`.

    clause      = alternative {"or" alternative}
    alternative = factor {"and" factor}
    factor      = number comparison name [comparison number] | name comparison number
                | name "in" interval | name "==" text | name "in" "(" text {"," text} ")"

Most clauses have this form, and all stored ones do: `str` of a `WhereClause` writes it. Token by
token, parsing takes ten times as long. A start with a million clauses would be slow.

Rules:

- This module raises no error. For a clause that has another form, breaks a limit, has a backslash,
  or cannot be satisfied the result is None, and `grammar.py` parses it from the beginning.
- For all others the result is the same as that of `grammar.py`. Tests compare the two.
- The pattern never backtracks (`*+`, `(?>`): the work is linear in the length of the text.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from dovetail.attributes.conjunctions import Conjunction, ConjunctionBuilder
from dovetail.attributes.limits import (
    WHERE_CONJUNCTIONS_MAX,
    WHERE_MEMBERS_MAX,
    WHERE_NAMES_MAX,
    WHERE_NUMBER_MAX,
)
from dovetail.attributes.tokens import NUMBER, WORD

_END = r"(?![A-Za-z0-9_.])"
_NUMBER = rf"((?>{NUMBER})){_END}"
_KEYWORD = rf"(?:[Aa][Nn][Dd]|[Oo][Rr]|[Ii][Nn]|[Nn][Oo][Tt]){_END}"
_SIGN = r"(<=|>=|==|[<>=])"
_TEXT = r"(?:\"[^\"\\]*+\"|'[^'\\]*+')"
_FACTOR = re.compile(
    rf"""\s*+
    (?:{_NUMBER}\s*+{_SIGN}\s*+)?+
    ((?!{_KEYWORD})(?>{WORD})|`[^`\\]++`)\s*+
    (?:
        {_SIGN}\s*+{_NUMBER}
      | ==?\s*+({_TEXT})
      | [Ii][Nn]{_END}\s*+
        (?:
            \[\s*+{_NUMBER}\s*+,\s*+{_NUMBER}\s*+([\])])
          | \(\s*+({_TEXT}(?:\s*+,\s*+{_TEXT})*+)\s*+\)
        )
    )?+
    \s*+(?:([Aa][Nn][Dd]|[Oo][Rr]){_END}|\Z)""",
    re.VERBOSE,
)
_OR = frozenset({"or", "Or", "oR", "OR"})
_EACH_TEXT = re.compile(_TEXT)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "=": "=="}


class SimpleClause(NamedTuple):
    """Alternatives that can be satisfied, in order, and the first position of each attribute."""

    alternatives: list[Conjunction]
    places: Mapping[str, int]


def parse_simple(text: str) -> SimpleClause | None:
    """Parse a simple clause; None if `grammar.py` has to parse it."""
    parser = _SimpleParser()
    position = 0
    while True:
        found = _FACTOR.match(text, position)
        if found is None or not parser.add_factor(found):
            return None
        position = found.end()
        word = found[11]
        if word is None:
            return parser.finish()
        if word in _OR:
            parser.end_alternative()


class _SimpleParser:
    """Collects complete alternatives, and the conditions of the current one."""

    __slots__ = ("_alternatives", "_conjunction", "_is_text", "_places")

    def __init__(self) -> None:
        self._alternatives: list[Conjunction] = []
        self._places: dict[str, int] = {}
        self._is_text: dict[str, bool] = {}
        self._conjunction = ConjunctionBuilder()

    def end_alternative(self) -> None:
        if self._conjunction.is_possible:
            self._alternatives.append(self._conjunction.build())
        self._conjunction = ConjunctionBuilder()

    def finish(self) -> SimpleClause | None:
        self.end_alternative()
        if not 0 < len(self._alternatives) <= WHERE_CONJUNCTIONS_MAX:
            return None
        if len(self._places) > WHERE_NAMES_MAX:
            return None
        return SimpleClause(self._alternatives, self._places)

    def add_factor(self, found: re.Match[str]) -> bool:
        """Add a factor; False if `grammar.py` has to parse the clause."""
        left, left_sign, name, sign, right, text, low, high, close, texts, _ = found.groups()
        if name[0] == "`":
            name = name[1:-1]
        if name not in self._places:
            self._places[name] = found.start(3)
        if low is not None:
            last = "<=" if close == "]" else "<"
            return (
                left is None and self._compare(name, ">=", low) and self._compare(name, last, high)
            )
        if right is not None:
            is_taken = self._compare(name, sign, right)
            return is_taken and (left is None or self._compare(name, _MIRRORED[left_sign], left))
        if left is not None:
            return text is texts is None and self._compare(name, _MIRRORED[left_sign], left)
        return (text or texts) is not None and self._one_of(name, text or texts)

    def _compare(self, name: str, comparison: str, digits: str) -> bool:
        number = float(digits) + 0.0
        self._conjunction.compare(name, comparison, number)
        is_text = self._is_text.setdefault(name, False)
        return not is_text and -WHERE_NUMBER_MAX <= number <= WHERE_NUMBER_MAX

    def _one_of(self, name: str, quoted: str) -> bool:
        texts = [text[1:-1] for text in _EACH_TEXT.findall(quoted)]
        self._conjunction.one_of(name, texts)
        is_text = self._is_text.setdefault(name, True)
        return is_text and len(texts) <= WHERE_MEMBERS_MAX
