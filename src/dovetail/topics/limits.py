"""Limits of sketches, of their search, and of the bank that searches many at once."""

SKETCH_FALSE_POSITIVE_RATE = 0.001
"""False positives per query, as in the wildcard paper's example (section IV-A)."""

SKETCH_CHANGES_MAX = 65_536
"""Changed elements that a broker remembers for peers that lag. A peer that is further behind gets
the whole sketch."""

SKETCH_BITS_MIN = 1_024
"""The smallest sketch that is planned. In fewer bits the hashes of a key collide, and false
positives become frequent."""

SKETCH_BITS_MAX = 1 << 32
"""Bits of a sketch: 512 MiB. A 32-bit multiplication picks bit positions."""

SKETCH_HASHES_MAX = 64
"""Hashes per key: more than a false-positive rate of 1e-19 needs."""

SKETCH_BYTES_MAX = SKETCH_BITS_MAX // 8 + (64 << 20)
"""Bytes of a serialised sketch: its bits, and room for a header and patterns."""

SKETCH_PATTERNS_MAX = 1_000_000
"""Wildcard patterns in one sketch of the BFP method."""

SEARCH_QUERIES_MAX = 4_096
"""Queries after which a search gives up and answers yes; it still finishes the current node.
Wildcards at every level are exponential in every method, and a false positive loses no message."""

BANK_LANES = 64
"""Sketches that are bit-sliced into one word and searched together."""

BANK_PLAIN_MAX = 6
"""Up to this many sketches of one size stay side by side and are searched one by one. Bit-slicing
so few would leave most lanes empty."""

BANK_FILL_BITS_MAX = 1 << 20
"""Bits of a peer's sketch that are sampled to estimate its fill. A metrics scrape must not read a
hundred megabytes; the sample is accurate to 0.0005."""

SEARCH_BLOCK_TOPICS = 16
"""Topics of a column that are searched in step, so that cache misses of one overlap with work on
others. 8 to 32 measured alike."""

BANK_BLOCK_TOPICS = 4
"""Topics that a bank searches in step. Each query reads up to eight cache lines, so more topics
would evict each other from the first-level cache."""

SEARCH_BLOCK_BYTES_MAX = 1_024
"""Columns with longer topics are searched one topic at a time: scratch space is block x bytes."""
