"""Open addressing with linear probing, for the ledger and the trie.

A key has a home slot. It stands there or in a slot after it, with no free slot between. When an
entry leaves, entries behind it move up (`may_fill`), so no slot is ever marked as deleted.
"""

import numpy as np

from dovetail.compilation import inlined
from dovetail.topics.kernels.hashing import U64, scale

_SPREAD = U64(0x9E3779B97F4A7C15)


@inlined
def home_of(key: np.uint64, slots: np.uint64) -> np.uint64:
    return scale(key * _SPREAD, slots)


@inlined
def after(slot: np.uint64, slots: np.uint64) -> np.uint64:
    slot += U64(1)
    return U64(0) if slot == slots else slot


@inlined
def may_fill(hole: np.uint64, slot: np.uint64, home: np.uint64) -> bool:
    """May the entry in `slot` move to `hole`? Not if its home lies cyclically in (hole, slot]."""
    if hole <= slot:
        return home <= hole or home > slot
    return slot < home <= hole
