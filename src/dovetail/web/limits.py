"""Limits of HTTP requests."""

ENGINE_REQUEST_BYTES_MAX = (256 << 20) + (64 << 20)
"""Bytes of the body of an engine's request. A single publication may be larger than a usual
request, and it comes with an id for each matching subscription."""

HTTP_BODY_BYTES_MAX = 262_144
"""Bytes of an HTTP request body, as many as of a CONNECT packet. The server does not read a longer
one."""
