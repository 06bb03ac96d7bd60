"""Where-clauses: which publications a subscription wants, by their attributes.

    clause      = both {"or" both}
    both        = factor {"and" factor}
    factor      = "(" clause ")" | chain | name "in" interval | name "in" set
    chain       = operand comparison operand {comparison operand}     one operand is a name
    operand     = name | number | text
    comparison  = "<" | "<=" | ">" | ">=" | "==" | "="                texts have the last two
    interval    = "[" number "," number ("]" | ")")
    set         = "(" number {"," number} ")" | "(" text {"," text} ")"

Keywords may be written in capitals. What is read becomes a `Where`, by the rules of
`where_clause.py`; most clauses have no parentheses and are read by `simple_grammar.py`, in a
shorter time.
"""

import operator
from typing import NoReturn

from dovetail.attributes.conjunctions import COMPARISONS, Conjunction
from dovetail.attributes.limits import WHERE_DEPTH_MAX, WHERE_MEMBERS_MAX
from dovetail.attributes.simple_grammar import read_plain
from dovetail.attributes.tokens import Kind, Token, shown, tokens
from dovetail.attributes.where_clause import Draft, Where, settled
from dovetail.limits import WHERE_CHARACTERS_MAX

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
_NEVER_NUMBERS = frozenset({"nan", "inf", "infinity"})


def parse(text: str, *, characters_max: int = WHERE_CHARACTERS_MAX) -> Where:
    """What the clause means, or a WhereError that says why it means nothing.

    `str` of a `Where` may be longer than what it was made of, as parentheses are multiplied out.
    """
    plain = read_plain(text) if len(text) <= characters_max else None
    if plain is not None:
        return Where(settled(plain.alternatives), text, plain.places)
    return parse_fully(text, characters_max=characters_max)


def parse_fully(text: str, *, characters_max: int = WHERE_CHARACTERS_MAX) -> Where:
    """The same, by the grammar alone."""
    return _Parser(text, Draft(text, characters_max)).whole()


class _Parser:
    """A function for each line of the grammar gives the conjunctions of what it has read."""

    def __init__(self, text: str, draft: Draft) -> None:
        self._draft = draft
        self._tokens = list(tokens(text))
        self._index = 0
        self._depth = 0

    def whole(self) -> Where:
        if self._peek().kind is Kind.END:
            self._draft.refuse("it is empty; it has at least one comparison", 0)
        conjunctions = self._clause()
        if self._peek().kind is not Kind.END:
            self._refuse_next("'and', 'or' or the end")
        return self._draft.whole(conjunctions)

    def _clause(self) -> list[Conjunction]:
        alternatives = self._both()
        while self._take("or"):
            position = self._peek().position
            alternatives = alternatives + self._both()
            self._draft.check_count(len(alternatives), position)
        return alternatives

    def _both(self) -> list[Conjunction]:
        factors = [(self._peek().position, self._factor())]
        while self._take("and"):
            factors.append((self._peek().position, self._factor()))
        if len(factors) == 1:
            return factors[0][1]
        # The narrow ones first: then few are multiplied with many alternatives.
        factors.sort(key=lambda factor: len(factor[1]))
        furthest, together = factors[0]
        for position, alternatives in factors[1:]:
            furthest = max(furthest, position)
            together = self._draft.both(together, alternatives, furthest)
        return together

    def _factor(self) -> list[Conjunction]:
        if self._is_next("not"):
            self._refuse("there is no 'not'; say what is wanted, as in x < 1 or x > 1")
        opening = self._peek()
        if not self._take("("):
            return self._chain()
        if self._depth == WHERE_DEPTH_MAX:
            self._refuse(f"more than {WHERE_DEPTH_MAX} parentheses within each other", opening)
        self._depth += 1
        inside = self._clause()
        if not self._take(")"):
            self._refuse_next("'and', 'or' or ')'")
        self._depth -= 1
        return inside

    def _chain(self) -> list[Conjunction]:
        operands = [self._operand()]
        if self._take("in"):
            return self._membership(operands[0])
        comparisons = []
        while self._peek().kind is Kind.SIGN and self._peek().text in COMPARISONS:
            comparisons.append(self._advance().text)
            operands.append(self._operand())
        if not comparisons:
            self._refuse_next("a comparison, as in x < 1 or x in (1, 2)")
        self._check_names(operands)
        together: list[Conjunction] | None = None
        for left, comparison, right in zip(operands, comparisons, operands[1:], strict=False):
            met = self._comparison(left, comparison, right)
            if together is not None:
                met = self._draft.both(together, met, operands[0].position)
            together = met
        assert together is not None
        return together

    def _check_names(self, operands: list[Token]) -> None:
        names = [operand for operand in operands if operand.kind is Kind.NAME]
        if not names:
            self._refuse("this compares no attribute", operands[0])
        if len(names) > 1:
            for name in names:
                if name.text.lower() in _NEVER_NUMBERS:
                    self._refuse(f"{shown(name.text)} is no number; leave that end open", name)
            self._refuse("a comparison has one attribute, and this is a second one", names[1])

    def _comparison(self, left: Token, comparison: str, right: Token) -> list[Conjunction]:
        if right.kind is Kind.NAME:
            left, comparison, right = right, _MIRRORED[comparison], left
        if left.kind is Kind.NAME:
            value = right.number if right.kind is Kind.NUMBER else right.text
            return [self._draft.compare(left.text, comparison, value, left.position)]
        if left.kind is not Kind.NUMBER or right.kind is not Kind.NUMBER:
            self._refuse("a text is compared with an attribute, and this is none", right)
        return [Conjunction()] if _COMPARED[comparison](left.number, right.number) else []

    def _membership(self, name: Token) -> list[Conjunction]:
        if name.kind is not Kind.NAME:
            self._refuse("'in' has an attribute on its left", name)
        if self._take("["):
            return self._interval(name)
        if not self._take("("):
            self._refuse_next("'[' and an interval, or '(' and a set")
        return self._set(name)

    def _interval(self, name: Token) -> list[Conjunction]:
        low = self._interval_end()
        if not self._take(","):
            self._refuse_next("',' and the interval's other end")
        high = self._interval_end()
        first = [self._draft.compare(name.text, ">=", low, name.position)]
        is_closed = self._take("]")
        if not is_closed and not self._take(")"):
            self._refuse_next("')' or ']'")
        comparison = "<=" if is_closed else "<"
        last = [self._draft.compare(name.text, comparison, high, name.position)]
        return self._draft.both(first, last, name.position)

    def _interval_end(self) -> float:
        if self._peek().kind is not Kind.NUMBER:
            self._refuse_next("a number")
        return self._advance().number

    def _set(self, name: Token) -> list[Conjunction]:
        members = [self._member()]
        while self._take(","):
            members.append(self._member())
            if len(members) > WHERE_MEMBERS_MAX:
                self._refuse(f"a set has at most {WHERE_MEMBERS_MAX} values", members[-1])
            if members[-1].kind is not members[0].kind:
                self._refuse("a set has numbers or texts, and not both", members[-1])
        if self._take("]"):
            self._refuse("an interval begins with '['; a set ends with ')'", name)
        if not self._take(")"):
            self._refuse_next("',' or ')'")
        if members[0].kind is Kind.TEXT:
            texts = [member.text for member in members]
            return [self._draft.one_of(name.text, texts, name.position)]
        numbers = {member.number for member in members}
        self._draft.check_count(len(numbers), name.position)
        return [self._draft.compare(name.text, "==", one, name.position) for one in numbers]

    def _member(self) -> Token:
        kind = self._peek().kind
        if kind is not Kind.NUMBER and kind is not Kind.TEXT:
            self._refuse_next("a number or a text in quotes")
        return self._advance()

    def _operand(self) -> Token:
        kind = self._peek().kind
        if kind is not Kind.NAME and kind is not Kind.NUMBER and kind is not Kind.TEXT:
            self._refuse_next("an attribute, a number or a text in quotes")
        return self._advance()

    def _peek(self) -> Token:
        return self._tokens[self._index]

    def _advance(self) -> Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _take(self, word: str) -> bool:
        """Is this the next sign or keyword? Then it is behind us."""
        is_next = self._is_next(word)
        self._index += is_next
        return is_next

    def _is_next(self, word: str) -> bool:
        token = self._tokens[self._index]
        # Identity, and no set of kinds: their hashes are most of the time that a clause takes.
        return token.text == word and (token.kind is Kind.SIGN or token.kind is Kind.KEYWORD)

    def _refuse(self, why: str, token: Token | None = None) -> NoReturn:
        self._draft.refuse(why, (token or self._peek()).position)

    def _refuse_next(self, expected: str) -> NoReturn:
        found = self._peek()
        if found.kind is Kind.END:
            self._refuse(f"it ends where {expected} should stand")
        self._refuse(f"here should stand {expected}, and not {shown(found.text)}")
