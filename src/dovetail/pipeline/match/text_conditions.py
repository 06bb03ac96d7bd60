"""Test the text conditions of boxes on messages, for many pairs at once. No Spark.

For each attribute, the sets of allowed texts are numbered, and so are the texts in them. A
message's text is looked up once. Whether it is in a box's set is then a search for one number among
sorted ones.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.pipeline.match.arrow_arrays import Bools, Ints, map_entries
from dovetail.pipeline.match.boxes import texts_of

_NONE = -1


class _TextCondition(NamedTuple):
    """The conditions of all boxes on one attribute."""

    name: str
    texts: pa.Array
    """All texts that any box allows."""
    set_of: Ints
    """By box: the number of its set; -1: it has no condition on this attribute."""
    allowed: Ints
    """Pairs of set and text, as one number each, sorted."""


class TextConditions:
    """The text conditions of all boxes."""

    def __init__(self, texts: pa.Array) -> None:
        """`texts` has the conditions of each box as JSON, or null."""
        sets: dict[str, dict[tuple[str, ...], int]] = {}
        set_of: dict[str, Ints] = {}
        conditional = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
        for box in conditional.tolist():
            for name, allowed in texts_of(texts[box].as_py()):
                known = sets.setdefault(name, {})
                own = set_of.setdefault(name, np.full(len(texts), _NONE, np.int64))
                own[box] = known.setdefault(tuple(allowed), len(known))
        self._conditions = [_condition(name, known, set_of[name]) for name, known in sets.items()]
        self.any = bool(self._conditions)

    def hold(self, messages: pa.RecordBatch, rows: Ints, boxes: Ints) -> Bools:
        """Return for each pair of row and box whether the row satisfies the box's conditions."""
        holds = np.ones(len(rows), np.bool_)
        for condition in self._conditions:
            sets_wanted = condition.set_of[boxes]
            conditional = np.flatnonzero(sets_wanted != _NONE)
            code = _codes(messages, condition)[rows[conditional]]
            keys = sets_wanted[conditional] * len(condition.texts) + code
            at = np.searchsorted(condition.allowed, keys)
            at[at == len(condition.allowed)] = 0
            holds[conditional] &= (code != _NONE) & (condition.allowed[at] == keys)
        return holds


def _condition(name: str, sets: dict[tuple[str, ...], int], set_of: Ints) -> _TextCondition:
    texts = list(dict.fromkeys(text for allowed in sets for text in allowed))
    number_of = {text: number for number, text in enumerate(texts)}
    allowed = [
        number * len(texts) + number_of[text] for own, number in sets.items() for text in own
    ]
    return _TextCondition(
        name, pa.array(texts, pa.string()), set_of, np.array(sorted(allowed), np.int64)
    )


def _codes(messages: pa.RecordBatch, condition: _TextCondition) -> Ints:
    """Return for each message which of the condition's texts it has; -1: none."""
    codes = np.full(len(messages), _NONE, np.int64)
    if "texts" not in messages.schema.names:
        return codes
    rows, keys, items = map_entries(messages["texts"])
    own = np.flatnonzero(
        pc.equal(keys, condition.name).fill_null(False).to_numpy(zero_copy_only=False)
    )
    known = pc.index_in(items.take(pa.array(own)), value_set=condition.texts).fill_null(_NONE)
    codes[rows[own]] = known.to_numpy(zero_copy_only=False)
    return codes
