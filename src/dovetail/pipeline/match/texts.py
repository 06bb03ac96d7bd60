"""Which boxes' texts a message has, for many pairs of both at once.

Sets of allowed texts are numbered, and so are the texts in them, by attribute. A message's text is
looked up once; whether it is in a box's set is then a search for one number among sorted ones.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.pipeline.match.arrow_arrays import Bools, Ints, map_entries
from dovetail.pipeline.match.boxes import texts_of

_NOTHING = -1


class _Rule(NamedTuple):
    """Of one attribute."""

    name: str
    texts: pa.Array
    """All that any box allows."""
    set_of: Ints
    """For each box the number of its set; -1: it asks for none."""
    allowed: Ints
    """Set and text as one number each, sorted."""


class TextRules:
    """What texts boxes ask for."""

    def __init__(self, texts: pa.Array) -> None:
        """For each box what it asks for, as JSON, or null."""
        sets: dict[str, dict[tuple[str, ...], int]] = {}
        set_of: dict[str, Ints] = {}
        asking = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
        for box in asking.tolist():
            for name, allowed in texts_of(texts[box].as_py()):
                known = sets.setdefault(name, {})
                own = set_of.setdefault(name, np.full(len(texts), _NOTHING, np.int64))
                own[box] = known.setdefault(tuple(allowed), len(known))
        self._rules = [_rule(name, known, set_of[name]) for name, known in sets.items()]
        self.any = bool(self._rules)

    def hold(self, messages: pa.RecordBatch, rows: Ints, boxes: Ints) -> Bools:
        """Has each of these rows the texts that its box asks for?"""
        holds = np.ones(len(rows), np.bool_)
        for rule in self._rules:
            wanted = rule.set_of[boxes]
            asked = np.flatnonzero(wanted != _NOTHING)
            code = _codes(messages, rule)[rows[asked]]
            keys = wanted[asked] * len(rule.texts) + code
            at = np.searchsorted(rule.allowed, keys)
            at[at == len(rule.allowed)] = 0
            holds[asked] &= (code != _NOTHING) & (rule.allowed[at] == keys)
        return holds


def _rule(name: str, sets: dict[tuple[str, ...], int], set_of: Ints) -> _Rule:
    texts = list(dict.fromkeys(text for allowed in sets for text in allowed))
    number_of = {text: number for number, text in enumerate(texts)}
    allowed = [
        number * len(texts) + number_of[text] for own, number in sets.items() for text in own
    ]
    return _Rule(name, pa.array(texts, pa.string()), set_of, np.array(sorted(allowed), np.int64))


def _codes(messages: pa.RecordBatch, rule: _Rule) -> Ints:
    """For each message which of the rule's texts it has."""
    codes = np.full(len(messages), _NOTHING, np.int64)
    if "texts" not in messages.schema.names:
        return codes
    rows, keys, items = map_entries(messages["texts"])
    own = np.flatnonzero(pc.equal(keys, rule.name).fill_null(False).to_numpy(zero_copy_only=False))
    known = pc.index_in(items.take(pa.array(own)), value_set=rule.texts).fill_null(_NOTHING)
    codes[rows[own]] = known.to_numpy(zero_copy_only=False)
    return codes
