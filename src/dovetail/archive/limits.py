"""Limits of the archive: of its writer, its reader and compaction."""

ARCHIVE_RETRY_SECONDS = 1.0
"""Seconds between attempts to write to an archive folder that refused."""

ARCHIVE_STOP_SECONDS = 5.0
"""A stopping broker writes waiting rows for at most this long. The rest stays on its disk."""

ARCHIVE_CHUNK_ROWS = 2_048
"""Rows that are converted to Arrow columns in one go. Python does nothing else meanwhile."""

ARCHIVE_READ_ROWS_MAX = 65_536
"""Rows in one answer of a broker to a reader of its archive."""

ARCHIVE_READ_BYTES_MAX = 16_777_216
"""Bytes in one such answer, approximately. The broker holds them in memory for each reader; a
reader asks again for more."""

ARCHIVE_RUNS_MAX = 1_000
"""Runs of sequences in a broker's report about its archive: one for each of its lives."""

ARCHIVE_SETTLED_SECONDS = 2.0
"""A reader lists an archive folder again if it changed within this time, whatever its modification
time says."""

ARCHIVE_LISTINGS_MAX = 100
"""How often a reader lists the archive again because a file has gone before it was read."""

ARCHIVE_SUBSCRIPTIONS_KEPT = 24
"""Versions of a broker's subscription table that are kept beside the archive."""

COMPACT_ROW_GROUP_BYTES = 67_108_864
"""Bytes of a row group in memory. Compaction and readers hold one at a time."""

COMPACT_STALE_SECONDS = 3_600.0
"""An unfinished archive file that has not changed for this long belongs to a writer that was
killed."""
