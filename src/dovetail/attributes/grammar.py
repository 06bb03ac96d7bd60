"""Parse where-clauses: conditions on the attributes of publications.

    clause      = conjunction {"or" conjunction}
    conjunction = factor {"and" factor}
    factor      = "(" clause ")" | chain | name "in" interval | name "in" set
    chain       = operand comparison operand {comparison operand}     one operand is a name
    operand     = name | number | text
    comparison  = "<" | "<=" | ">" | ">=" | "==" | "="                texts have the last two
    interval    = "[" number "," number ("]" | ")")
    set         = "(" number {"," number} ")" | "(" text {"," text} ")"

Keywords may be written in capitals. The result is a `WhereClause`, by the rules of
`where_clause.py`. Most clauses have no parentheses; `simple_grammar.py` parses them faster.
"""

import operator
from typing import NoReturn

from dovetail.attributes.conjunctions import COMPARISONS, Conjunction
from dovetail.attributes.limits import WHERE_DEPTH_MAX, WHERE_MEMBERS_MAX
from dovetail.attributes.simple_grammar import parse_simple
from dovetail.attributes.tokens import Token, TokenKind, shown, tokens
from dovetail.attributes.where_clause import WhereBuilder, WhereClause, normalized
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


def parse(text: str, *, characters_max: int = WHERE_CHARACTERS_MAX) -> WhereClause:
    """Parse a clause. A WhereError says what is wrong.

    `str` of the result may be longer than the text, because parentheses are multiplied out.
    """
    plain = parse_simple(text) if len(text) <= characters_max else None
    if plain is not None:
        return WhereClause(normalized(plain.alternatives), text, plain.places)
    return parse_fully(text, characters_max=characters_max)


def parse_fully(text: str, *, characters_max: int = WHERE_CHARACTERS_MAX) -> WhereClause:
    """Parse a clause without the fast path."""
    return _Parser(text, WhereBuilder(text, characters_max)).parse()


class _Parser:
    """Recursive descent: a method for each line of the grammar returns conjunctions."""

    def __init__(self, text: str, builder: WhereBuilder) -> None:
        self._builder = builder
        self._tokens = list(tokens(text))
        self._index = 0
        self._depth = 0

    def parse(self) -> WhereClause:
        if self._peek().kind is TokenKind.END:
            self._builder.refuse("it is empty; it has at least one comparison", 0)
        conjunctions = self._clause()
        if self._peek().kind is not TokenKind.END:
            self._refuse_next("'and', 'or' or the end")
        return self._builder.build(conjunctions)

    def _clause(self) -> list[Conjunction]:
        alternatives = self._conjunction()
        while self._take("or"):
            position = self._peek().position
            alternatives = alternatives + self._conjunction()
            self._builder.check_count(len(alternatives), position)
        return alternatives

    def _conjunction(self) -> list[Conjunction]:
        factors = [(self._peek().position, self._factor())]
        while self._take("and"):
            factors.append((self._peek().position, self._factor()))
        if len(factors) == 1:
            return factors[0][1]
        # Those with few alternatives first: then products stay small for long.
        factors.sort(key=lambda factor: len(factor[1]))
        furthest, together = factors[0]
        for position, alternatives in factors[1:]:
            furthest = max(furthest, position)
            together = self._builder.conjoin(together, alternatives, furthest)
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
        while self._peek().kind is TokenKind.SIGN and self._peek().text in COMPARISONS:
            comparisons.append(self._advance().text)
            operands.append(self._operand())
        if not comparisons:
            self._refuse_next("a comparison, as in x < 1 or x in (1, 2)")
        self._check_names(operands)
        together: list[Conjunction] | None = None
        for left, comparison, right in zip(operands, comparisons, operands[1:], strict=False):
            joined = self._comparison(left, comparison, right)
            if together is not None:
                joined = self._builder.conjoin(together, joined, operands[0].position)
            together = joined
        assert together is not None
        return together

    def _check_names(self, operands: list[Token]) -> None:
        names = [operand for operand in operands if operand.kind is TokenKind.NAME]
        if not names:
            self._refuse("this compares no attribute", operands[0])
        if len(names) > 1:
            for name in names:
                if name.text.lower() in _NEVER_NUMBERS:
                    self._refuse(f"{shown(name.text)} is no number; leave that end open", name)
            self._refuse("a comparison has one attribute, and this is a second one", names[1])

    def _comparison(self, left: Token, comparison: str, right: Token) -> list[Conjunction]:
        if right.kind is TokenKind.NAME:
            left, comparison, right = right, _MIRRORED[comparison], left
        if left.kind is TokenKind.NAME:
            value = right.number if right.kind is TokenKind.NUMBER else right.text
            return [self._builder.compare(left.text, comparison, value, left.position)]
        if left.kind is not TokenKind.NUMBER or right.kind is not TokenKind.NUMBER:
            self._refuse("a text is compared with an attribute, and this is none", right)
        return [Conjunction()] if _COMPARED[comparison](left.number, right.number) else []

    def _membership(self, name: Token) -> list[Conjunction]:
        if name.kind is not TokenKind.NAME:
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
        first = [self._builder.compare(name.text, ">=", low, name.position)]
        is_closed = self._take("]")
        if not is_closed and not self._take(")"):
            self._refuse_next("')' or ']'")
        comparison = "<=" if is_closed else "<"
        last = [self._builder.compare(name.text, comparison, high, name.position)]
        return self._builder.conjoin(first, last, name.position)

    def _interval_end(self) -> float:
        if self._peek().kind is not TokenKind.NUMBER:
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
        if members[0].kind is TokenKind.TEXT:
            texts = [member.text for member in members]
            return [self._builder.one_of(name.text, texts, name.position)]
        numbers = {member.number for member in members}
        self._builder.check_count(len(numbers), name.position)
        return [self._builder.compare(name.text, "==", one, name.position) for one in numbers]

    def _member(self) -> Token:
        kind = self._peek().kind
        if kind is not TokenKind.NUMBER and kind is not TokenKind.TEXT:
            self._refuse_next("a number or a text in quotes")
        return self._advance()

    def _operand(self) -> Token:
        kind = self._peek().kind
        if (
            kind is not TokenKind.NAME
            and kind is not TokenKind.NUMBER
            and kind is not TokenKind.TEXT
        ):
            self._refuse_next("an attribute, a number or a text in quotes")
        return self._advance()

    def _peek(self) -> Token:
        return self._tokens[self._index]

    def _advance(self) -> Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _take(self, word: str) -> bool:
        """Consume the next token if it is this sign or keyword. Return whether it was."""
        is_next = self._is_next(word)
        self._index += is_next
        return is_next

    def _is_next(self, word: str) -> bool:
        token = self._tokens[self._index]
        # Identity instead of a set of kinds: hashing them took most of the time of a clause.
        return token.text == word and (
            token.kind is TokenKind.SIGN or token.kind is TokenKind.KEYWORD
        )

    def _refuse(self, why: str, token: Token | None = None) -> NoReturn:
        self._builder.refuse(why, (token or self._peek()).position)

    def _refuse_next(self, expected: str) -> NoReturn:
        found = self._peek()
        if found.kind is TokenKind.END:
            self._refuse(f"it ends where {expected} should stand")
        self._refuse(f"here should stand {expected}, and not {shown(found.text)}")
