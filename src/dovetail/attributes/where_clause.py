"""What a where-clause means, and the rules of all of it, however it is written.

`grammar.py` reads clauses and `filter_query.py` queries; both draft a `Where`: a few conjunctions,
of which one has to hold.

- Limits are checked before anything is multiplied out, so the work is bounded by the text's length.
- Conjunctions that nothing can satisfy are dropped, and those that another one contains. A clause
  of which nothing is left is refused.
- An attribute is a number or a text in all of a clause: no space could have it both ways.
- Whatever is wrong is a `WhereError` that points at a character of what the client wrote. A `Where`
  remembers that text, so that a space can point too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from dovetail.attributes.conjunctions import Conjunction, range_of
from dovetail.attributes.limits import WHERE_CONJUNCTIONS_MAX, WHERE_NAMES_MAX
from dovetail.attributes.tokens import Kind, shown
from dovetail.errors import WhereError
from dovetail.limits import WHERE_CHARACTERS_MAX


@dataclass(frozen=True)
class Where:
    """Conjunctions in their order as text, none within another; at least one of them holds.

    `text` is what the client wrote, and `places` where each attribute first stands in it: what is
    equal may have been written in many ways.
    """

    conjunctions: tuple[Conjunction, ...]
    text: str = field(compare=False)
    places: Mapping[str, int] = field(compare=False, repr=False)

    def holds(self, attributes: Mapping[str, float | str]) -> bool:
        """The oracle: do a publication's attributes satisfy the clause?"""
        return any(conjunction.holds(attributes) for conjunction in self.conjunctions)

    def __str__(self) -> str:
        """A clause that is read as an equal `Where`, however this one was written."""
        return " or ".join(map(str, self.conjunctions))


class Draft:
    """What is known of one clause while it is read; refuses what breaks a rule of all of it."""

    def __init__(self, text: str, characters_max: int = WHERE_CHARACTERS_MAX) -> None:
        self.text = text
        self._kinds: dict[str, Kind] = {}
        self._places: dict[str, int] = {}
        self._dead_end: int | None = None
        if len(text) > characters_max:
            limit = f"{len(text):,} characters of at most {characters_max:,}"
            self.refuse(f"it has {limit}", characters_max)

    def refuse(self, why: str, position: int) -> NoReturn:
        raise WhereError(why, self.text, position)

    def compare(self, name: str, comparison: str, value: float | str, position: int) -> Conjunction:
        """`name comparison value`; the name stands at the position."""
        self.check(name, comparison, value, position)
        if isinstance(value, str):
            return Conjunction(texts={name: frozenset((value,))})
        return Conjunction({name: range_of(comparison, value)})

    def check(self, name: str, comparison: str, value: float | str, position: int) -> None:
        """May they be compared?"""
        if not isinstance(value, str):
            self._use(name, Kind.NUMBER, position)
            return
        if comparison != "==":
            self.refuse(f"'{comparison}' compares numbers; texts have '==' and 'in'", position)
        self._use(name, Kind.TEXT, position)

    def one_of(self, name: str, texts: Sequence[str], position: int) -> Conjunction:
        self._use(name, Kind.TEXT, position)
        return Conjunction(texts={name: frozenset(texts)})

    def both(
        self, lefts: list[Conjunction], rights: list[Conjunction], position: int
    ) -> list[Conjunction]:
        """`and`, multiplied out; what is on the right begins at the position."""
        self.check_count(len(lefts) * len(rights), position)
        pairs = ((left, right) for left in lefts for right in rights)
        met = [both for left, right in pairs if (both := left.meet(right)) is not None]
        if not met:
            self.dead_end(position)
        return met

    def dead_end(self, position: int) -> None:
        """Nothing can satisfy what ends here."""
        if self._dead_end is None:
            self._dead_end = position

    def check_count(self, conjunctions: int, position: int) -> None:
        if conjunctions > WHERE_CONJUNCTIONS_MAX:
            limit = f"{conjunctions:,} alternatives of at most {WHERE_CONJUNCTIONS_MAX}"
            self.refuse(f"multiplied out, it has {limit} from here on", position)

    def whole(self, conjunctions: list[Conjunction]) -> Where:
        """What is left of all alternatives."""
        if not conjunctions:
            why = "no publication can satisfy it; from here on nothing is left"
            self.refuse(why, self._dead_end or 0)
        return Where(settled(conjunctions), self.text, self._places)

    def _use(self, name: str, kind: Kind, position: int) -> None:
        known = self._kinds.setdefault(name, kind)
        self._places.setdefault(name, position)
        if known is not kind:
            both = f"{kind.value}, and elsewhere with {known.value}"
            self.refuse(f"{shown(name)} is compared with {both}", position)
        if len(self._kinds) > WHERE_NAMES_MAX:
            self.refuse(f"it names more than {WHERE_NAMES_MAX} attributes", position)


def settled(conjunctions: list[Conjunction]) -> tuple[Conjunction, ...]:
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
