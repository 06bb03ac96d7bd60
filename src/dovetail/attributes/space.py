"""A space: the attributes of one application. It makes boxes of clauses and points of publications.

A box has a range for each dimension, in the space's order, a point a number. Both may have texts:

- A box that leaves a dimension open has -inf and inf there. A point without the attribute has NaN.
- A point lies in a box if it lies in every range that is not open, and has one of the box's texts
  for every attribute on which the box has a condition. So NaN lies in open ranges only.
- The bounds of a dimension serve to divide it among matchers. Values beyond them are valid.

`matches` is the oracle that everything faster is tested against.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.attributes.conjunctions import Conjunction
from dovetail.attributes.scheme import DEFAULT_SHARING, SpaceSharing
from dovetail.attributes.tokens import as_number, is_number, shown
from dovetail.attributes.where_clause import WhereClause
from dovetail.errors import ClientError, ConfigError, ReasonCode, WhereError
from dovetail.limits import ATTRIBUTE_NAME_CHARACTERS_MAX, SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Box(NamedTuple):
    """One conjunction: low <= value < high in each dimension, and allowed texts by name."""

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    texts: tuple[tuple[str, frozenset[str]], ...] = ()


class Point(NamedTuple):
    """The attributes of one publication."""

    values: tuple[float, ...]
    texts: Mapping[str, str]


def matches(box: Box, point: Point) -> bool:
    """Does the point lie in the box? Both are of one space."""
    for low, high, value in zip(box.lows, box.highs, point.values, strict=True):
        is_open = low == -math.inf and high == math.inf
        if not is_open and not low <= value < high:
            return False
    return has_texts(box, point)


def has_texts(box: Box, point: Point) -> bool:
    """Does the point have an allowed text for each attribute on which the box has a condition?"""
    return all(point.texts.get(name) in allowed for name, allowed in box.texts)


@dataclass(frozen=True)
class Dimension:
    """A number attribute. Matchers divide the searchable ones among them."""

    name: str
    low: float
    high: float
    is_searchable: bool = True

    def __post_init__(self) -> None:
        _check_name(self.name, "a dimension")
        if not -math.inf < self.low < self.high < math.inf:
            bounds = f"[{as_number(self.low)}, {as_number(self.high)}]"
            raise ConfigError(
                f"dimension {shown(self.name)}: {bounds} are no bounds",
                hint="They are two numbers, the smaller one first.",
            )


@dataclass(frozen=True)
class Space:
    """The attributes of the publications whose topics match `topics`.

    Attributes in `texts` are compared as they are. With `json_fields`, fields of a JSON payload are
    attributes too. `sharing` and `is_streamed` only decide which process does the work. With
    `is_streamed` a stream on Spark does it, not brokers and matchers.
    """

    name: str
    topics: str
    dimensions: tuple[Dimension, ...]
    texts: frozenset[str] = frozenset()
    json_fields: bool = False
    sharing: SpaceSharing = DEFAULT_SHARING
    is_streamed: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name, "a space")
        self._check_counts()
        names = [dimension.name for dimension in self.dimensions]
        for text in sorted(self.texts):
            _check_name(text, "an attribute")
        for name in sorted({*names, *self.texts}):
            if names.count(name) + (name in self.texts) > 1:
                raise self._unusable(f"it has two attributes {shown(name)}")
        along = self.sharing.along
        if along and along not in [one.name for one in self.dimensions if one.is_searchable]:
            raise self._unusable(f"it has no searchable dimension {shown(along)} to share along")

    def boxes(self, where: WhereClause) -> tuple[Box, ...]:
        """Return a box for each conjunction. A WhereError points at an unknown attribute."""
        for name, position in where.places.items():
            if not self._knows(name):
                raise WhereError(self._unknown(name), where.text, position)
        return tuple([self._box(conjunction, where) for conjunction in where.conjunctions])

    def knows_all(self, names: Iterable[str]) -> bool:
        """Does the space have attributes with all these names?"""
        return all(map(self._knows, names))

    def point(self, attributes: Mapping[str, str | float]) -> Point:
        """Return the point of these attributes. Attributes unknown to the space are ignored."""
        values = []
        for name in self._indexes:
            given = attributes.get(name)
            values.append(math.nan if given is None else _as_value(name, given))
        texts = {name: _as_text(attributes[name]) for name in self.texts if name in attributes}
        return Point(tuple(values), texts)

    def json_attributes(self, payload: bytes) -> Mapping[str, str]:
        """Return the payload's fields that are attributes: top-level strings and numbers, as text.

        Numbers stay as they are written, and are parsed like user properties. An empty payload has
        no attributes: it deletes a retained message.
        """
        if not self.json_fields or not payload:
            return {}
        try:
            fields = _fields.decode(payload)
            found = {name: _field_text(fields[name]) for name in fields if self._knows(name)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ClientError(
                ReasonCode.PAYLOAD_FORMAT_INVALID,
                f"space {shown(self.name)}: the payload is no JSON object ({error})",
            ) from None
        return {name: text for name, text in found.items() if text is not None}

    @cached_property
    def _indexes(self) -> Mapping[str, int]:
        return {dimension.name: index for index, dimension in enumerate(self.dimensions)}

    @cached_property
    def names_column(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The names of dimensions and, behind them, of texts as bytes; and where each ends."""
        names = [name.encode() for name in (*self._indexes, *sorted(self.texts))]
        ends = np.cumsum([len(name) for name in names])
        return np.frombuffer(b"".join(names), np.uint8), ends

    def _knows(self, name: str) -> bool:
        return name in self._indexes or name in self.texts

    def _box(self, conjunction: Conjunction, where: WhereClause) -> Box:
        indexes = self._indexes
        lows = [-math.inf] * len(indexes)
        highs = [math.inf] * len(indexes)
        for name, (low, high) in conjunction.ranges.items():
            index = indexes.get(name)
            if index is None:
                raise self._mistaken(name, "a text, and is compared with a number here", where)
            lows[index] = low
            highs[index] = high
        for name in conjunction.texts:
            if name in indexes:
                raise self._mistaken(name, "a number, and is compared with a text here", where)
        return Box(tuple(lows), tuple(highs), tuple(sorted(conjunction.texts.items())))

    def _mistaken(self, name: str, why: str, where: WhereClause) -> WhereError:
        message = f"in space {shown(self.name)}, {shown(name)} is {why}"
        return WhereError(message, where.text, where.places[name])

    def _unknown(self, name: str) -> str:
        known = [*self._indexes, *sorted(self.texts)]
        nearest = difflib.get_close_matches(name, known, n=1)
        more = f"is it {shown(nearest[0])}?" if nearest else f"it has {', '.join(known)}"
        return f"space {shown(self.name)} has no attribute {shown(name)}; {more}"

    def _check_counts(self) -> None:
        if not any(dimension.is_searchable for dimension in self.dimensions):
            raise self._unusable("it has no searchable dimension, and needs one")
        for noun, count, limit in (
            ("dimensions", len(self.dimensions), SPACE_DIMENSIONS_MAX),
            ("texts", len(self.texts), SPACE_TEXTS_MAX),
        ):
            if count > limit:
                raise self._unusable(f"it has {count} {noun} of at most {limit}")

    def _unusable(self, why: str) -> ConfigError:
        return ConfigError(f"space {shown(self.name)}: {why}")


def _check_name(name: str, noun: str) -> None:
    if not name or len(name) > ATTRIBUTE_NAME_CHARACTERS_MAX or not name.isprintable():
        raise ConfigError(
            f"{shown(name)} cannot be the name of {noun}",
            hint=f"It has 1 to {ATTRIBUTE_NAME_CHARACTERS_MAX} characters that can be printed.",
        )


def _as_value(name: str, given: str | float) -> float:
    """Parse a number as in where-clauses; spaces around it are allowed."""
    if not isinstance(given, str) or is_number(given) or is_number(given.strip()):
        value = float(given)
        if math.isfinite(value):
            return value
    why = f"{shown(str(given))} is not a number that can be compared"
    raise ClientError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"attribute {shown(name)}: {why}")


def _as_text(given: str | float) -> str:
    return given if isinstance(given, str) else as_number(given)


def _field_text(field: msgspec.Raw) -> str | None:
    """Return a JSON string or number as text; None for anything else."""
    written = bytes(field)
    if written.startswith(b'"'):
        return msgspec.json.decode(field, type=str)
    return written.decode() if written[:1] in b"-0123456789" else None
