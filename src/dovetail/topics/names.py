"""Topic names and topic filters: what is valid, and what matches (MQTT 5.0 section 4.7).

`matches` is the oracle that everything faster is tested against: the trie, the sketches and
their kernels. It is written to be read beside the specification, not to be fast.

Inside Dovetail a name or filter is UTF-8 bytes. Every name and filter from outside passes
`check_name` or `check_filter`, which raise an error with a reason code and a sentence.
"""

import re
from typing import NamedTuple

from dovetail.errors import ClientError, ReasonCode
from dovetail.limits import TOPIC_BYTES_MAX

SEPARATOR = "/"
SINGLE_LEVEL = "+"
MULTI_LEVEL = "#"
SHARE_PREFIX = "$share"
SYS_PREFIX = b"$SYS/"
"""Topics about the broker itself. Clients may not publish to them, they are built anew at every
start, and each broker of a cluster has its own."""

_SHOWN_MAX = 80
_PLAINLY_VALID = re.compile(r"(?!\Z)(?:(?:\+|[^+#/\0]*)/)*(?:\+|#|[^+#/\0]*)")


class SharedFilter(NamedTuple):
    """The parts of `$share/{group}/{filter}` (MQTT 5.0 section 4.8.2)."""

    group: str
    filter: str


def check_name(topic: str | bytes) -> bytes:
    """Return the name's UTF-8 bytes, or raise a ClientError that says why it is no topic name."""
    errors = _ErrorBuilder(ReasonCode.TOPIC_NAME_INVALID, "topic name", topic)
    text, encoded = _check_text(topic, errors)
    for wildcard in (SINGLE_LEVEL, MULTI_LEVEL):
        if wildcard in text:  # [MQTT-3.3.2-2], [MQTT-4.7.1-1]
            raise errors.error(f"{wildcard!r} is a wildcard, and names have none")
    return encoded


def check_filter(topic_filter: str | bytes) -> bytes:
    """Return the filter's UTF-8 bytes, or raise a ClientError that says why it is no topic filter.

    A filter whose first level is `$share` has to be a whole shared subscription.
    """
    if isinstance(topic_filter, str) and is_plainly_valid(topic_filter):
        return topic_filter.encode()
    errors = _ErrorBuilder(ReasonCode.TOPIC_FILTER_INVALID, "topic filter", topic_filter)
    text, encoded = _check_text(topic_filter, errors)
    shared = _split_shared(text, errors)
    levels = (text if shared is None else shared.filter).split(SEPARATOR)
    for position, level in enumerate(levels):
        if MULTI_LEVEL in level:  # [MQTT-4.7.1-1]
            if level != MULTI_LEVEL:
                raise errors.error(f"'#' must be a whole level, not part of {_shown(level)}")
            if position != len(levels) - 1:
                raise errors.error("'#' must be the last level")
        if SINGLE_LEVEL in level and level != SINGLE_LEVEL:  # [MQTT-4.7.1-2]
            raise errors.error(f"'+' must be a whole level, not part of {_shown(level)}")
    return encoded


def split_shared(topic_filter: str) -> SharedFilter | None:
    """Return the group and the filter of a shared subscription; None for a plain filter."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None
    errors = _ErrorBuilder(ReasonCode.TOPIC_FILTER_INVALID, "topic filter", topic_filter)
    return _split_shared(topic_filter, errors)


def matches(topic_filter: str, topic: str) -> bool:
    """Does this (valid, not shared) filter match this (valid) name?"""
    if topic.startswith("$") and topic_filter[:1] in {SINGLE_LEVEL, MULTI_LEVEL}:
        return False  # [MQTT-4.7.2-1]
    wanted = topic_filter.split(SEPARATOR)
    given = topic.split(SEPARATOR)
    if wanted[-1] == MULTI_LEVEL:
        # The multi-level wildcard stands for its parent too: a/# matches a (section 4.7.1.2).
        wanted.pop()
        if len(given) < len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(
        level in {SINGLE_LEVEL, name} for level, name in zip(wanted, given, strict=True)
    )


class _ErrorBuilder:
    """Builds the errors for one name or filter, so that each check is one line."""

    def __init__(self, reason: ReasonCode, noun: str, text: str | bytes) -> None:
        self._reason = reason
        self._noun = noun
        self._text = text

    def error(self, why: str) -> ClientError:
        return ClientError(self._reason, f"{self._noun} {_shown(self._text)}: {why}")


def _shown(text: str | bytes) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"


def _check_text(text: str | bytes, errors: _ErrorBuilder) -> tuple[str, bytes]:
    """Check the rules for both names and filters (sections 1.5.4, 4.7.3). Return text and bytes."""
    if not text:  # [MQTT-4.7.3-1]
        raise errors.error("it is empty; a topic has at least one character")
    try:
        encoded = text if isinstance(text, bytes) else text.encode()
        text = encoded.decode()
    except (UnicodeEncodeError, UnicodeDecodeError) as error:  # [MQTT-1.5.4-1]
        raise errors.error(f"it is not well-formed UTF-8 ({error.reason})") from None
    if len(encoded) > TOPIC_BYTES_MAX:  # [MQTT-4.7.3-3]
        raise errors.error(f"it has {len(encoded):,} bytes of at most {TOPIC_BYTES_MAX:,}")
    if "\0" in text:  # [MQTT-4.7.3-2]
        raise errors.error("it holds the null character U+0000")
    return text, encoded


def is_plainly_valid(topic_filter: str) -> bool:
    """Is the filter valid at first sight, as nearly all are? False means: check it in full."""
    return (
        topic_filter.isascii()
        and len(topic_filter) <= TOPIC_BYTES_MAX
        and not topic_filter.startswith(SHARE_PREFIX)
        and _PLAINLY_VALID.fullmatch(topic_filter) is not None
    )


def _split_shared(text: str, errors: _ErrorBuilder) -> SharedFilter | None:
    prefix, _, rest = text.partition(SEPARATOR)
    if prefix != SHARE_PREFIX:
        return None
    group, separator, topic_filter = rest.partition(SEPARATOR)
    if not group or any(wildcard in group for wildcard in (SINGLE_LEVEL, MULTI_LEVEL)):
        # [MQTT-4.8.2-1], [MQTT-4.8.2-2]
        raise errors.error("the share name must have a character, and none of '/', '+', '#'")
    if not separator or not topic_filter:  # [MQTT-4.8.2-2]
        raise errors.error("a shared subscription is $share/{group}/{filter}")
    return SharedFilter(group, topic_filter)
