"""Parse a where-clause behind a topic filter: `sensor/+/temperature?location=roomA&value>25`.

This form is for clients that cannot send properties; EMQX 6.2 has it too. Comparisons are joined by
`&`, and all must hold. Names and values are percent-encoded where necessary. `?` is special only in
topics that a space governs. So `split_query` comes first, before the space is known, and
`parse_query` comes after.

A query has no quotes. A value that looks like a number is one, except for attributes that are texts
in the space: there `floor=3` is a text.
"""

import re
from collections.abc import Collection, Iterator
from urllib.parse import unquote_to_bytes

from dovetail.attributes.conjunctions import ConjunctionBuilder
from dovetail.attributes.tokens import is_number, number_at
from dovetail.attributes.where_clause import WhereBuilder, WhereClause

_COMPARISON = re.compile(r"!=|<=|>=|[=<>]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def split_query(topic_filter: str) -> tuple[str, str | None]:
    """Return the filter, and the text behind its first `?`; None if there is no `?`."""
    plain, separator, query = topic_filter.partition("?")
    return plain, query if separator else None


def parse_query(query: str, texts: Collection[str] = ()) -> WhereClause:
    """Parse a query in which these attributes are texts. A WhereError points into the query."""
    builder = WhereBuilder(query)
    conjunction = ConjunctionBuilder()
    for part, position in _parts(query):
        name, comparison, value = _comparison(builder, part, position, texts)
        builder.check(name, comparison, value, position)
        if isinstance(value, str):
            conjunction.one_of(name, (value,))
        else:
            conjunction.compare(name, comparison, value)
        if not conjunction.is_possible:
            builder.mark_unsatisfiable(position)
    return builder.build([conjunction.build()] if conjunction.is_possible else [])


def _parts(query: str) -> Iterator[tuple[str, int]]:
    position = 0
    for part in query.split("&"):
        yield part, position
        position += len(part) + 1


def _comparison(
    builder: WhereBuilder, part: str, position: int, texts: Collection[str]
) -> tuple[str, str, float | str]:
    """Return the name, the sign and the value of a comparison."""
    sign = _COMPARISON.search(part)
    if sign is None:
        builder.refuse("here should stand a comparison, as in x=1", position)
    if sign[0] == "!=":
        builder.refuse("there is no '!='; say which values are wanted", position + sign.start())
    name = _decoded(builder, part[: sign.start()], position)
    if not name:
        builder.refuse("here should stand an attribute's name", position)
    value = _value(builder, part[sign.end() :], position + sign.end(), is_text=name in texts)
    return name, "==" if sign[0] == "=" else sign[0], value


def _value(builder: WhereBuilder, encoded: str, position: int, *, is_text: bool) -> float | str:
    if encoded.startswith(("=", "<", ">")):
        escape = f"%{ord(encoded[0]):X}"
        builder.refuse(f"a value that begins with {encoded[0]!r} has it as {escape}", position)
    decoded = _decoded(builder, encoded, position)
    if is_text or not is_number(decoded):
        return decoded
    return number_at(decoded, builder.text, position)


def _decoded(builder: WhereBuilder, encoded: str, position: int) -> str:
    if "%" not in encoded and encoded.isascii():
        return encoded
    bad = _BAD_ESCAPE.search(encoded)
    if bad is not None:
        why = "behind '%' stand two hexadecimal digits; '%' itself is %25"
        builder.refuse(why, position + bad.start())
    try:
        return unquote_to_bytes(encoded).decode()
    except ValueError:
        builder.refuse("percent-decoded, this is not UTF-8", position)
