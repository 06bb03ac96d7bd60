"""Where-clauses without parentheses, read by one regular expression: a short way for `grammar.py`.

    plain       = alternative {"or" alternative}
    alternative = factor {"and" factor}
    factor      = number comparison name [comparison number] | name comparison number
                | name "in" interval | name "==" text | name "in" "(" text {"," text} ")"

Most clauses are written so, and all that are stored: it is how clauses are written back. Token by
token one takes ten times as long, which a start with a million of them would feel.

Rules:

- Nothing is refused here, and nothing is explained. A clause that is not plain, breaks a limit, has
  a backslash in it, or cannot be satisfied is None, and `grammar.py` reads it from its beginning.
- Of all others it says what `grammar.py` would. Tests compare the two.
- The pattern never goes back over what it has read (`*+`, `(?>`): the work is linear in the text.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from dovetail.attributes.conjunctions import Conjunction, Together
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


class Plain(NamedTuple):
    """Alternatives that can be satisfied, in their order; where each attribute first stands."""

    alternatives: list[Conjunction]
    places: Mapping[str, int]


def read_plain(text: str) -> Plain | None:
    """What a plain clause says; None: it is not one, or not for us."""
    reader = _Reader()
    position = 0
    while True:
        found = _FACTOR.match(text, position)
        if found is None or not reader.take(found):
            return None
        position = found.end()
        word = found[11]
        if word is None:
            return reader.whole()
        if word in _OR:
            reader.end_alternative()


class _Reader:
    """What has been read, and what of the alternative that is being read."""

    __slots__ = ("_alternatives", "_is_text", "_places", "_together")

    def __init__(self) -> None:
        self._alternatives: list[Conjunction] = []
        self._places: dict[str, int] = {}
        self._is_text: dict[str, bool] = {}
        self._together = Together()

    def end_alternative(self) -> None:
        if self._together.is_possible:
            self._alternatives.append(self._together.conjunction())
        self._together = Together()

    def whole(self) -> Plain | None:
        self.end_alternative()
        if not 0 < len(self._alternatives) <= WHERE_CONJUNCTIONS_MAX:
            return None
        if len(self._places) > WHERE_NAMES_MAX:
            return None
        return Plain(self._alternatives, self._places)

    def take(self, found: re.Match[str]) -> bool:
        """A factor; False if it is not for us."""
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
        self._together.compare(name, comparison, number)
        is_text = self._is_text.setdefault(name, False)
        return not is_text and -WHERE_NUMBER_MAX <= number <= WHERE_NUMBER_MAX

    def _one_of(self, name: str, quoted: str) -> bool:
        texts = [text[1:-1] for text in _EACH_TEXT.findall(quoted)]
        self._together.one_of(name, texts)
        is_text = self._is_text.setdefault(name, True)
        return is_text and len(texts) <= WHERE_MEMBERS_MAX
