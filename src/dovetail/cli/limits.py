"""Defaults of the command line."""

COMPACT_FILE_BYTES_MAX = 268_435_456
"""Bytes of a compacted file: work for some Spark tasks, and still easy to copy."""

HTTP_URL = "http://127.0.0.1:8080"
"""The default HTTP address of `dovetail up`, unless the port is taken."""
