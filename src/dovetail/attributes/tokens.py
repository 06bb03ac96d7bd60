"""Split a where-clause into tokens: names, numbers, texts, signs and keywords with positions.

This module decides how numbers, names and texts are written, for clauses, queries and publications
alike. Names that are not plain words are in backticks, texts in double or single quotes. Within
them a backslash escapes a quote or a backslash. `as_name`, `as_number` and `as_text` write the same
forms.
"""

import functools
import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from dovetail.attributes.limits import WHERE_NUMBER_MAX
from dovetail.errors import WhereError

_SHOWN_MAX = 80
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
_TOKEN = re.compile(
    rf"(?P<space>\s+)|(?P<number>{NUMBER})(?![A-Za-z0-9_.])|(?P<word>{WORD})|(?P<quote>[\"'`])"
    r"|(?P<sign><=|>=|==|[<>=()\[\],])"
)
_WHOLE_NUMBER = re.compile(NUMBER)
_WHOLE_WORD = re.compile(WORD)
_LIKE_A_NUMBER = re.compile(r"[+-]?\.?[0-9][A-Za-z0-9_.]*")
_KEYWORDS = frozenset({"and", "or", "in", "not"})
_FOREIGN_SIGNS = {
    "!=": "there is no '!='; say which values are wanted, as in x < 1 or x > 1",
    "<>": "there is no '<>'; say which values are wanted, as in x < 1 or x > 1",
    "&&": "'and' is written as a word",
    "||": "'or' is written as a word",
}


class TokenKind(Enum):
    """The kind of a token; the value is its name in error messages."""

    NAME = "an attribute"
    NUMBER = "a number"
    TEXT = "a text"
    SIGN = "a sign"
    KEYWORD = "a keyword"
    END = "the end"


class Token(NamedTuple):
    """`text` is a name, a sign, a text without quotes, or a keyword in lower case."""

    kind: TokenKind
    text: str
    position: int
    number: float = 0.0


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a clause. The last one is END, so there is always a next token."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or text[position : position + 2] in _FOREIGN_SIGNS:
            raise WhereError(_why_it_is_no_token(text, position), text, position)
        match found.lastgroup:
            case "number":
                yield Token(
                    TokenKind.NUMBER, found[0], position, number_at(found[0], text, position)
                )
            case "word":
                yield _word(found[0], position)
            case "sign":
                yield Token(TokenKind.SIGN, "==" if found[0] == "=" else found[0], position)
            case "quote":
                token, position = _quoted(text, position)
                yield token
                continue
        position = found.end()
    yield Token(TokenKind.END, "", len(text))


def number_at(digits: str, text: str, position: int) -> float:
    """Convert `digits`, which `text` has at the position, to a float. A WhereError if too large."""
    number = float(digits) + 0.0
    if abs(number) > WHERE_NUMBER_MAX:
        raise WhereError(
            f"{shown(digits)} is too large; numbers go up to {WHERE_NUMBER_MAX:g}", text, position
        )
    return number


def is_number(text: str) -> bool:
    """Does the text have the form of a number? It may still be too large."""
    return _WHOLE_NUMBER.fullmatch(text) is not None


def as_number(value: float) -> str:
    return repr(value).removesuffix(".0")


def as_text(value: str) -> str:
    return _between(value, '"')


@functools.lru_cache(maxsize=256)
def as_name(name: str) -> str:
    is_plain = _WHOLE_WORD.fullmatch(name) and name.lower() not in _KEYWORDS
    return name if is_plain else _between(name, "`")


def shown(text: str) -> str:
    """Quote a text for an error message; a long one is cut."""
    quoted = repr(text)
    return quoted if len(quoted) <= _SHOWN_MAX else f"{quoted[:_SHOWN_MAX]}…"


def _word(word: str, position: int) -> Token:
    if word.lower() in _KEYWORDS:
        return Token(TokenKind.KEYWORD, word.lower(), position)
    return Token(TokenKind.NAME, word, position)


def _quoted(text: str, first: int) -> tuple[Token, int]:
    """Return the quoted token, and the position behind it."""
    quote = text[first]
    characters: list[str] = []
    position = first + 1
    while position < len(text):
        character = text[position]
        if character == quote:
            return _unquoted("".join(characters), text, first), position + 1
        if character == "\\":
            position += 1
            character = text[position : position + 1]
            if not character or character not in "\\\"'`":
                why = "behind a backslash stands a quote or another backslash"
                raise WhereError(why, text, position - 1)
        characters.append(character)
        position += 1
    raise WhereError(f"the quote {quote} that begins here has no end", text, first)


def _unquoted(inside: str, text: str, first: int) -> Token:
    if text[first] != "`":
        return Token(TokenKind.TEXT, inside, first)
    if not inside:
        raise WhereError("the name between these backticks is empty", text, first)
    return Token(TokenKind.NAME, inside, first)


def _between(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def _why_it_is_no_token(text: str, position: int) -> str:
    foreign = _FOREIGN_SIGNS.get(text[position : position + 2])
    if foreign is not None:
        return foreign
    number = _LIKE_A_NUMBER.match(text, position)
    if number is not None:
        return f"{shown(number[0])} is not a number; a name like this stands in backticks"
    return f"{shown(text[position])} has no meaning here; texts stand in quotes"
