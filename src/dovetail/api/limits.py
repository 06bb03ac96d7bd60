"""Limits of the HTTP interface for programs."""

HANDLE_FILTERS_MAX = 100
"""Topic filters of one handle."""

HANDLE_EXPIRY_SECONDS = 3_600
"""Default expiry of a handle that no request uses."""

HANDLE_EXPIRY_SECONDS_MAX = 31_536_000
"""The longest expiry of a handle: a year. A lost handle must not stay for ever."""

HANDLE_WAIT_SECONDS_MAX = 60
"""The longest time that one request waits for messages. Proxies give up soon after."""

HANDLE_MESSAGES = 100
"""Default for the messages in one answer."""

HANDLE_MESSAGES_MAX = 1_000
"""Messages in one answer, whatever the request asks for."""

HANDLE_IDS_MAX = 10_000
"""Messages that one request acknowledges."""
