"""A where-clause behind a topic filter: `sensor/+/temperature?location=roomA&value>25`.

For clients that cannot send properties; EMQX 6.2 has the same form. Comparisons are joined by `&`
and all have to hold; names and values are percent-encoded where they would be misread. `?` is
special in topics that a space governs, so splitting comes before it is known whether there is a
clause at all, and reading it after the space is.

A query has no quotes. A value that looks like a number is one, but for attributes that are texts in
the space: there `floor=3` is a text.
"""

import re
from collections.abc import Collection, Iterator
from urllib.parse import unquote_to_bytes

from dovetail.attributes.conjunctions import Together
from dovetail.attributes.tokens import is_number, number_at
from dovetail.attributes.where_clause import Draft, Where

_COMPARISON = re.compile(r"!=|<=|>=|[=<>]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def split_query(topic_filter: str) -> tuple[str, str | None]:
    """The filter, and what stands behind its first `?`; None if there is none."""
    plain, separator, query = topic_filter.partition("?")
    return plain, query if separator else None


def parse_query(query: str, texts: Collection[str] = ()) -> Where:
    """What the query means where these attributes are texts; a WhereError points into the query."""
    draft = Draft(query)
    together = Together()
    for part, position in _parts(query):
        name, comparison, value = _comparison(draft, part, position, texts)
        draft.check(name, comparison, value, position)
        if isinstance(value, str):
            together.one_of(name, (value,))
        else:
            together.compare(name, comparison, value)
        if not together.is_possible:
            draft.dead_end(position)
    return draft.whole([together.conjunction()] if together.is_possible else [])


def _parts(query: str) -> Iterator[tuple[str, int]]:
    position = 0
    for part in query.split("&"):
        yield part, position
        position += len(part) + 1


def _comparison(
    draft: Draft, part: str, position: int, texts: Collection[str]
) -> tuple[str, str, float | str]:
    """Its name, its sign and its value."""
    sign = _COMPARISON.search(part)
    if sign is None:
        draft.refuse("here should stand a comparison, as in x=1", position)
    if sign[0] == "!=":
        draft.refuse("there is no '!='; say which values are wanted", position + sign.start())
    name = _decoded(draft, part[: sign.start()], position)
    if not name:
        draft.refuse("here should stand an attribute's name", position)
    value = _value(draft, part[sign.end() :], position + sign.end(), is_text=name in texts)
    return name, "==" if sign[0] == "=" else sign[0], value


def _value(draft: Draft, encoded: str, position: int, *, is_text: bool) -> float | str:
    if encoded.startswith(("=", "<", ">")):
        escape = f"%{ord(encoded[0]):X}"
        draft.refuse(f"a value that begins with {encoded[0]!r} has it as {escape}", position)
    decoded = _decoded(draft, encoded, position)
    if is_text or not is_number(decoded):
        return decoded
    return number_at(decoded, draft.text, position)


def _decoded(draft: Draft, encoded: str, position: int) -> str:
    if "%" not in encoded and encoded.isascii():
        return encoded
    bad = _BAD_ESCAPE.search(encoded)
    if bad is not None:
        why = "behind '%' stand two hexadecimal digits; '%' itself is %25"
        draft.refuse(why, position + bad.start())
    try:
        return unquote_to_bytes(encoded).decode()
    except ValueError:
        draft.refuse("percent-decoded, this is not UTF-8", position)
