"""Limits of spaces, where-clauses and the box index."""

from dovetail.limits import SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX, WHERE_CHARACTERS_MAX

WIDE_SHARE = 0.5
"""A box that covers more than this share of a dimension is not placed along it. A smaller share
leaves some publications fewer candidates, a larger one makes more copies."""

LOAD_WINDOW_SECONDS = 1.0
"""The time over which a matcher averages its rates."""

LOAD_CHANGE = 0.1
"""A matcher announces its load when it has changed by this share (BlueDove IV)."""

CLAUSE_CHARACTERS_MAX = 2 * 64 * WHERE_CHARACTERS_MAX
"""Characters of a where-clause in its stored form, in which parentheses are multiplied out."""

CLAUSES_UNINDEXED_MAX = 32
"""Clauses on one topic filter that are checked one by one. An index would be slower for so few."""

WHERE_DEPTH_MAX = 32
"""Nesting depth of parentheses."""

WHERE_CONJUNCTIONS_MAX = 64
"""Boxes of one where-clause. Each is an entry in every index that holds the clause, and parentheses
multiply them."""

WHERE_MEMBERS_MAX = 256
"""Values in one `in (...)`. Texts are looked up in a set; each number is a box."""

WHERE_NUMBER_MAX = 1e308
"""The largest absolute number in a where-clause. Ranges exclude their high end, so a larger number
has to exist."""

WHERE_NAMES_MAX = SPACE_DIMENSIONS_MAX + SPACE_TEXTS_MAX
"""Attributes in one where-clause: no space has more."""

BOX_DIMENSIONS_MAX = 32
"""Dimensions of a box: a 64-bit sort key has room for two bits of each."""

BOXES_MAX = 100_000_000
"""Boxes in one index. Slots are 32-bit numbers, and so many take some 15 GB."""

LEAF_BOXES_MIN = 16
"""Boxes in a leaf, which has room for 64. A split leaves at least this many in each half, and a
leaf with fewer joins a neighbour."""

LEAVES_MIN = 64
"""The smallest number of leaves that an index has room for: one word of a row has a bit for
each."""

LEAVES_GROWTH = 1.25
"""The factor by which a full index grows. Copying costs little compared with doubling the
memory."""

LEAVES_SHRINK = 0.5
"""An index that uses less than this share of its leaves returns the rest."""

MATCHES_ROOM_MIN = 4_096
"""Matches that a search has room for at first. It doubles the room when there are more."""
