"""The spaces of a broker: finds the space of a topic or a filter, and parses clauses there. Pure.

Rules:

- A topic has at most one space. A subscription with a clause lies entirely in one space: the space
  governs every topic that its filter matches.
- A clause comes as the user property `where` of SUBSCRIBE, or behind the filter (`filter?query`).
  `?` is special only in topics that a space governs.
- Attributes are a publication's user properties and, if the space says so, fields of its payload.
  User properties win over fields. If a name occurs twice, the last value counts.
- A publication with unreadable attributes, or without attributes, satisfies no clause.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from dovetail.attributes.clauses import Clause, key_of
from dovetail.attributes.filter_query import parse_query, split_query
from dovetail.attributes.grammar import parse
from dovetail.attributes.limits import CLAUSE_CHARACTERS_MAX
from dovetail.attributes.space import Point, Space
from dovetail.attributes.where_clause import WhereClause
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings.filters import covers
from dovetail.topics.names import SEPARATOR, check_filter, matches, split_shared


class SpaceRegistry:
    """All spaces of a broker. A registry does not change: a reload makes a new one."""

    def __init__(self, spaces: Iterable[Space] = ()) -> None:
        self.all: tuple[Space, ...] = tuple(spaces)
        self._levels: Sequence[tuple[Space, list[str]]] = [
            (space, space.topics.split(SEPARATOR)) for space in self.all
        ]
        # The clause that was parsed last: the caller asks for its meaning next.
        self._last: tuple[str, str, Clause | None] = ("", "", None)
        # The last clause as it was written, in each space (None: in no space). A packet has one
        # clause for thousands of filters; parsing it for each would block all other clients.
        self._readings: dict[str | None, _ParsedClause] = {}

    def space_of_topic(self, topic: bytes) -> Space | None:
        """Return the space of a (valid) topic."""
        if not self.all:
            return None
        name = topic.decode()
        return next((space for space in self.all if matches(space.topics, name)), None)

    def space_of_filter(self, topic_filter: str) -> Space | None:
        """Return the space that governs all topics of a (valid, not shared) filter."""
        levels = topic_filter.split(SEPARATOR)
        return next((space for space, own in self._levels if covers(own, levels)), None)

    # Subscriptions --------------------------------------------------------------------------------

    def parse_subscription(self, topic_filter: str, where: str | None) -> tuple[str, str]:
        """Return the filter of a subscription, and its clause as keys have it; empty without one.

        A ClientError says why there cannot be such a subscription.
        """
        plain, query = self._split(topic_filter)
        if where is None and query is None:
            return plain, ""
        space = self.space_of_filter(_inner(plain))
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
        """Return a clause as keys have it, and its boxes in a space."""
        name = None if space is None else space.name
        reading = self._readings.get(name)
        if reading is None or (reading.where, reading.query) != (where, query):
            reading = self._readings[name] = _parse_and_check(where, query, space)
        if reading.error is not None:
            raise reading.error.with_traceback(None)
        return reading.text, reading.clause

    def key_to_drop(self, topic_filter: str, where: str | None) -> str:
        """Return the key of a subscription to remove. Spaces may have changed since it was made."""
        plain, query = split_query(topic_filter)
        with suppress(ClientError):
            return key_of(*self.parse_subscription(topic_filter, where))
        with suppress(ClientError):
            if where is not None:
                return key_of(topic_filter, self._meaning(where, None, None)[0])
            if query is not None:
                return key_of(plain, self._meaning(None, query, None)[0])
        return topic_filter

    def _split(self, topic_filter: str) -> tuple[str, str | None]:
        """Return the filter and the query behind its `?`, where `?` is special."""
        plain, query = split_query(topic_filter)
        if query is None:
            return topic_filter, None
        if _is_filter(plain) and self.space_of_filter(_inner(plain)) is not None:
            return plain, query
        check_filter(topic_filter)  # so far only the part before the `?` was checked
        return topic_filter, None

    def clause(self, topic_filter: str, text: str) -> Clause | None:
        """Return the boxes of a stored clause; None if it has no meaning in the spaces of now.

        Spaces may have changed since, or differ at the broker that it comes from.
        """
        if (topic_filter, text) == self._last[:2]:
            return self._last[2]
        space = self.space_of_filter(topic_filter)
        if space is None:
            return None
        try:
            where = parse(text, characters_max=CLAUSE_CHARACTERS_MAX)
            # No caller needs the reason, and to find it takes long: there may be many clauses.
            return Clause(space, space.boxes(where)) if space.knows_all(where.places) else None
        except ClientError:
            return None


def point_with(space: Space, attributes: Mapping[str, str]) -> Point | None:
    """Return the point of these attributes; None if the space knows none of them."""
    point = space.point(attributes)
    if point.texts:
        return point
    for value in point.values:
        if value == value:  # noqa: PLR0124 (NaN is not)
            return point
    return None


class _ParsedClause(NamedTuple):
    """A clause as it was written, and the result of parsing it."""

    where: str | None
    query: str | None
    text: str = ""
    clause: Clause | None = None
    error: ClientError | None = None


def _parse_and_check(where: str | None, query: str | None, space: Space | None) -> _ParsedClause:
    try:
        read = _parse(where, query, space)
        # The space may refuse it too.
        clause = None if space is None else Clause(space, space.boxes(read))
        text = str(read)
        if "\0" in text:  # keys have one between filter and clause
            raise _refused("a where-clause holds no null character U+0000")
    except ClientError as error:
        return _ParsedClause(where, query, error=error)
    return _ParsedClause(where, query, text, clause)


def _parse(where: str | None, query: str | None, space: Space | None) -> WhereClause:
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
    """Is the text before a `?` a valid filter?"""
    try:
        check_filter(plain)
    except ClientError:
        return False
    return True
