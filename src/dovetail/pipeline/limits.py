"""Limits of Spark jobs: of streams, of serving a space, and of the data source."""

ENGINE_BODY_BYTES = 4 << 20
"""Bytes of publications in one request of an engine to a broker."""

STREAM_BATCH_ROWS_MAX = 1_000_000
"""Default for the rows that a stream reads from an archive in one batch."""

STREAM_TASK_ROWS_MAX = 100_000
"""Default for the rows of one task of such a batch."""

STREAM_WAIT_SECONDS = 600.0
"""Default for how long a batch waits for a broker that is down and has rows for it."""

STREAM_SEND_WAIT_SECONDS = 30.0
"""Default for how long a publishing task waits for a server that is down."""

STREAM_ANSWER_SECONDS = 1.0
"""A stream that looks for new rows waits this long for each broker's answer, then continues
without."""

STREAM_MEMBERS_SECONDS = 5.0
"""Seconds between two looks for new brokers."""

SERVE_BATCH_ROWS_MAX = 100_000
"""Default for the publications in one batch of a stream that serves spaces."""

SERVE_BODY_MATCHES_MAX = 5_000
"""Publications and ids in one request of such a stream to a broker: some tenths of a second of
work."""

SERVE_ANSWER_SECONDS = 10.0
"""A serving stream waits this long for the answer to such a request. A broker that hangs delays the
others once, by this time."""

SERVE_WAIT_SECONDS = 10.0
"""Default for how long a batch waits for a broker that is down. Then it continues, and the broker
gets its share when it returns."""

SERVE_BEAT_SECONDS = 1
"""Seconds between two requests for clauses while nothing is published."""

SERVE_SPACES_SECONDS = 5.0
"""Seconds between two looks for new spaces. A publication in an unknown space also triggers a
look."""

SERVE_CHANGES_MIN = 1_000
"""Changed clauses are shipped separately from the others while they are this few, or fewer than a
quarter of all."""

STREAM_READ_BYTES_MAX = 1_073_741_824
"""Bytes of one answer with rows: above the largest MQTT packet."""

STREAM_TABLE_SECONDS = 10.0
"""Default interval of batches that are written to a table: few files, and little delay."""

STREAM_PUBLISH_SECONDS = 1.0
"""Default interval of batches that are published."""

STREAM_COMMAND_TASK_ROWS = 25_000
"""Rows of one task of `dovetail stream`. Matching them takes a core about a second."""

STREAM_SUBSCRIPTIONS_SECONDS = 10.0
"""A batch waits this long for a broker to list its subscriptions, then uses the last list."""

STREAM_LOOK_SECONDS = 2.0
"""Seconds between two counts of the rows that wait for `dovetail stream`."""

STREAM_END_SECONDS = 30.0
"""A stream that ends waits at most this long for its running batch."""

STREAM_STOP_SECONDS = 10
"""After that it waits this long for Spark to stop, then ends the Java process."""
