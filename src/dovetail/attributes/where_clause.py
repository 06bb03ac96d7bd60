"""A parsed where-clause, and the rules for whole clauses in any notation.

`grammar.py` parses clauses and `filter_query.py` queries. Both build a `WhereClause`: a few
conjunctions, one of which must hold.

- Limits are checked before conjunctions are multiplied out, so the text's length bounds the work.
- Conjunctions that nothing can satisfy are dropped, and those that another one contains. A clause
  without a conjunction left is refused.
- An attribute is a number or a text in the whole clause: no space could have it both ways.
- Every error is a `WhereError` that points at a character of what the client wrote. A `WhereClause`
  keeps that text, so that a space can point at it too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from dovetail.attributes.conjunctions import Conjunction, range_of
from dovetail.attributes.limits import WHERE_CONJUNCTIONS_MAX, WHERE_NAMES_MAX
from dovetail.attributes.tokens import TokenKind, shown
from dovetail.errors import WhereError
from dovetail.limits import WHERE_CHARACTERS_MAX


@dataclass(frozen=True)
class WhereClause:
    """Conjunctions in their order as text, none within another; at least one of them holds.

    `text` is what the client wrote, and `places` has the first position of each attribute in it.
    Equal clauses may have different texts.
    """

    conjunctions: tuple[Conjunction, ...]
    text: str = field(compare=False)
    places: Mapping[str, int] = field(compare=False, repr=False)

    def holds(self, attributes: Mapping[str, float | str]) -> bool:
        """The oracle: do a publication's attributes satisfy the clause?"""
        return any(conjunction.holds(attributes) for conjunction in self.conjunctions)

    def __str__(self) -> str:
        """Return a clause that parses to an equal `WhereClause`."""
        return " or ".join(map(str, self.conjunctions))


class WhereBuilder:
    """Builds a clause while it is parsed, and refuses what breaks a rule for whole clauses."""

    def __init__(self, text: str, characters_max: int = WHERE_CHARACTERS_MAX) -> None:
        self.text = text
        self._kinds: dict[str, TokenKind] = {}
        self._places: dict[str, int] = {}
        self._unsatisfiable_at: int | None = None
        if len(text) > characters_max:
            limit = f"{len(text):,} characters of at most {characters_max:,}"
            self.refuse(f"it has {limit}", characters_max)

    def refuse(self, why: str, position: int) -> NoReturn:
        raise WhereError(why, self.text, position)

    def compare(self, name: str, comparison: str, value: float | str, position: int) -> Conjunction:
        """Return the conjunction `name comparison value`; the name is at the position."""
        self.check(name, comparison, value, position)
        if isinstance(value, str):
            return Conjunction(texts={name: frozenset((value,))})
        return Conjunction({name: range_of(comparison, value)})

    def check(self, name: str, comparison: str, value: float | str, position: int) -> None:
        """Refuse a comparison that types do not allow."""
        if not isinstance(value, str):
            self._use(name, TokenKind.NUMBER, position)
            return
        if comparison != "==":
            self.refuse(f"'{comparison}' compares numbers; texts have '==' and 'in'", position)
        self._use(name, TokenKind.TEXT, position)

    def one_of(self, name: str, texts: Sequence[str], position: int) -> Conjunction:
        self._use(name, TokenKind.TEXT, position)
        return Conjunction(texts={name: frozenset(texts)})

    def conjoin(
        self, lefts: list[Conjunction], rights: list[Conjunction], position: int
    ) -> list[Conjunction]:
        """Return `lefts and rights`, multiplied out; the right side begins at the position."""
        self.check_count(len(lefts) * len(rights), position)
        pairs = ((left, right) for left in lefts for right in rights)
        joined = [both for left, right in pairs if (both := left.intersect(right)) is not None]
        if not joined:
            self.mark_unsatisfiable(position)
        return joined

    def mark_unsatisfiable(self, position: int) -> None:
        """Remember that nothing can satisfy the part of the clause that ends here."""
        if self._unsatisfiable_at is None:
            self._unsatisfiable_at = position

    def check_count(self, conjunctions: int, position: int) -> None:
        if conjunctions > WHERE_CONJUNCTIONS_MAX:
            limit = f"{conjunctions:,} alternatives of at most {WHERE_CONJUNCTIONS_MAX}"
            self.refuse(f"multiplied out, it has {limit} from here on", position)

    def build(self, conjunctions: list[Conjunction]) -> WhereClause:
        """Return the clause of the alternatives that are left."""
        if not conjunctions:
            why = "no publication can satisfy it; from here on nothing is left"
            self.refuse(why, self._unsatisfiable_at or 0)
        return WhereClause(normalized(conjunctions), self.text, self._places)

    def _use(self, name: str, kind: TokenKind, position: int) -> None:
        known = self._kinds.setdefault(name, kind)
        self._places.setdefault(name, position)
        if known is not kind:
            both = f"{kind.value}, and elsewhere with {known.value}"
            self.refuse(f"{shown(name)} is compared with {both}", position)
        if len(self._kinds) > WHERE_NAMES_MAX:
            self.refuse(f"it names more than {WHERE_NAMES_MAX} attributes", position)


def normalized(conjunctions: list[Conjunction]) -> tuple[Conjunction, ...]:
    if len(conjunctions) == 1:
        return (conjunctions[0],)
    return tuple(sorted(_without_contained(conjunctions), key=str))


def _without_contained(conjunctions: list[Conjunction]) -> list[Conjunction]:
    kept: list[Conjunction] = []
    for candidate in conjunctions:
        if not any(other.contains(candidate) for other in kept):
            kept = [other for other in kept if not candidate.contains(other)]
            kept.append(candidate)
    return kept
