"""The spaces of a broker: which of them governs a topic, and what clauses mean there. Pure.

Rules:

- No topic is governed by two spaces. A subscription with a clause lies in one of them wholly: every
  topic that its filter matches is the space's.
- A clause comes as the user property `where` of SUBSCRIBE, or behind the filter (`filter?query`);
  `?` is special in topics that a space governs, and a character like others elsewhere.
- Attributes are a publication's user properties and, if the space says so, fields of its payload;
  the former count where both have one. Of a name that comes twice the last one counts.
- A publication whose attributes cannot be read satisfies no clause. One without any neither.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from dovetail.attributes.clauses import Clause, key_of
from dovetail.attributes.filter_query import parse_query, split_query
from dovetail.attributes.grammar import parse
from dovetail.attributes.limits import CLAUSE_CHARACTERS_MAX
from dovetail.attributes.space import Point, Space
from dovetail.attributes.where_clause import Where
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings.filters import covers
from dovetail.topics.names import SEPARATOR, check_filter, matches, split_shared


class Spaces:
    """All that a broker knows. They do not change: a reload makes new ones."""

    def __init__(self, spaces: Iterable[Space] = ()) -> None:
        self.all: tuple[Space, ...] = tuple(spaces)
        self._levels: Sequence[tuple[Space, list[str]]] = [
            (space, space.topics.split(SEPARATOR)) for space in self.all
        ]
        # The clause that was read last: who read it asks for its meaning next.
        self._last: tuple[str, str, Clause | None] = ("", "", None)
        # And as it was written, in each space (None: in no space): a packet has one for thousands
        # of filters, and reading it again for each would keep all others waiting.
        self._readings: dict[str | None, _Reading] = {}

    def governing(self, topic: bytes) -> Space | None:
        """The space of a (valid) topic."""
        if not self.all:
            return None
        name = topic.decode()
        return next((space for space in self.all if matches(space.topics, name)), None)

    def around(self, topic_filter: str) -> Space | None:
        """The space that governs all topics of a (valid, not shared) filter."""
        levels = topic_filter.split(SEPARATOR)
        return next((space for space, own in self._levels if covers(own, levels)), None)

    # Subscriptions --------------------------------------------------------------------------------

    def read(self, topic_filter: str, where: str | None) -> tuple[str, str]:
        """The filter of a subscription and its clause, as keys have it; empty without one.

        A ClientError says why there cannot be such a subscription.
        """
        plain, query = self._split(topic_filter)
        if where is None and query is None:
            return plain, ""
        space = self.around(_inner(plain))
        if space is None:
            raise _refused(
                f"no space governs all topics of {_inner(plain)!r}, so it cannot have a "
                "where-clause; spaces are declared in the configuration of the broker"
            )
        if where is not None and query is not None:
            raise _refused("one where-clause is behind the topic filter, one a user property")
        text, clause = self._meaning(where, query, space)
        self._last = _inner(plain), text, clause
        return plain, text

    def _meaning(
        self, where: str | None, query: str | None, space: Space | None
    ) -> tuple[str, Clause | None]:
        """A clause as keys have it, and what it means in a space."""
        name = None if space is None else space.name
        reading = self._readings.get(name)
        if reading is None or (reading.where, reading.query) != (where, query):
            reading = self._readings[name] = _read(where, query, space)
        if reading.error is not None:
            raise reading.error.with_traceback(None)
        return reading.text, reading.clause

    def key_to_drop(self, topic_filter: str, where: str | None) -> str:
        """The key of a subscription that is to end; spaces may have changed since it was made."""
        plain, query = split_query(topic_filter)
        with suppress(ClientError):
            return key_of(*self.read(topic_filter, where))
        with suppress(ClientError):
            if where is not None:
                return key_of(topic_filter, self._meaning(where, None, None)[0])
            if query is not None:
                return key_of(plain, self._meaning(None, query, None)[0])
        return topic_filter

    def _split(self, topic_filter: str) -> tuple[str, str | None]:
        """The filter and what stands behind its `?`, where that is special."""
        plain, query = split_query(topic_filter)
        if query is None:
            return topic_filter, None
        if _is_filter(plain) and self.around(_inner(plain)) is not None:
            return plain, query
        check_filter(topic_filter)  # until now only what stands before the `?` had to be one
        return topic_filter, None

    def clause(self, topic_filter: str, text: str) -> Clause | None:
        """What a clause that was read once means now; None: nothing, while spaces are as they are.

        They may have changed since, or be others where it comes from.
        """
        if (topic_filter, text) == self._last[:2]:
            return self._last[2]
        space = self.around(topic_filter)
        if space is None:
            return None
        try:
            where = parse(text, characters_max=CLAUSE_CHARACTERS_MAX)
            # Nobody asks why not, and to say it takes longer than all else: there may be many.
            return Clause(space, space.boxes(where)) if space.knows_all(where.places) else None
        except ClientError:
            return None


def point_with(space: Space, attributes: Mapping[str, str]) -> Point | None:
    """The point of a publication with these attributes; None if the space knows none of them."""
    point = space.point(attributes)
    if point.texts:
        return point
    for value in point.values:
        if value == value:  # noqa: PLR0124 (NaN is not)
            return point
    return None


class _Reading(NamedTuple):
    """A clause as it was written, and what came of reading it."""

    where: str | None
    query: str | None
    text: str = ""
    clause: Clause | None = None
    error: ClientError | None = None


def _read(where: str | None, query: str | None, space: Space | None) -> _Reading:
    try:
        read = _parse(where, query, space)
        # A space has its own reasons to refuse.
        clause = None if space is None else Clause(space, space.boxes(read))
        text = str(read)
        if "\0" in text:  # keys have one between filter and clause
            raise _refused("a where-clause holds no null character U+0000")
    except ClientError as error:
        return _Reading(where, query, error=error)
    return _Reading(where, query, text, clause)


def _parse(where: str | None, query: str | None, space: Space | None) -> Where:
    if where is not None:
        return parse(where)
    assert query is not None
    return parse_query(query, () if space is None else space.texts)


def _refused(why: str) -> ClientError:
    return ClientError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, why)


def _inner(topic_filter: str) -> str:
    shared = split_shared(topic_filter)
    return topic_filter if shared is None else shared.filter


def _is_filter(plain: str) -> bool:
    """Does the text before a `?` stand for topics by itself?"""
    try:
        check_filter(plain)
    except ClientError:
        return False
    return True
