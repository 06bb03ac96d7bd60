"""The errors that Dovetail raises on purpose.

The message is a sentence for the person who can do something about the error; an optional hint
says what to do. The command line prints both without a traceback. Any other exception is a bug and
keeps its traceback. A fault of a client carries the MQTT reason code of the answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

_SHOWN_BEFORE_MAX = 50
_SHOWN_MAX = 80


class ReasonCode(IntEnum):
    """Reason codes of MQTT 5.0, section 2.4, with the names of the specification."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class DovetailError(Exception):
    """An error that the user can understand, and often repair."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class ConfigError(DovetailError):
    """An invalid setting, option or argument."""


class MissingDependencyError(DovetailError):
    """An extra of the package or a program is not installed."""


class ClientError(DovetailError):
    """A client made a mistake; the broker answers with the code `reason`."""

    def __init__(self, reason: ReasonCode, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WhereError(ClientError):
    """An invalid where-clause; the hint is the clause, with a caret below the fault.

    The reason is 0x83: a SUBSCRIBE "is valid but the Server does not accept it" (section 3.9.3).
    0x8F would blame the topic filter, and a client that trusts the code would change the wrong
    part.
    """

    def __init__(self, why: str, text: str, position: int) -> None:
        super().__init__(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"where-clause: {why}")
        self.text = text
        self.position = position
        self.hint = _with_caret(text, position)


class PeerError(DovetailError):
    """Another node, or an impostor, broke the protocol. Its connection ends."""


class SketchError(DovetailError):
    """Two sketches do not fit each other, or a sketch cannot do an operation."""


class SketchFormatError(SketchError):
    """Bytes are not a complete sketch: the fault of the sender, or of the file."""


class StoreError(DovetailError):
    """The data folder cannot be used, or a write to it failed."""


class DamageError(StoreError):
    """The data folder is damaged: `dovetail repair` keeps the intact part of it."""


@contextmanager
def explain_file_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or path} cannot be used: {error.strerror or error}.",
            hint="Mend that, or choose another folder with --data.",
        ) from error


def _with_caret(text: str, position: int) -> str:
    """Return two lines: the text around the position, one column per character, and a caret."""
    first = max(0, position - _SHOWN_BEFORE_MAX)
    end = first + _SHOWN_MAX
    shown = "".join(char if char.isprintable() else " " for char in text[first:end])
    before = "…" if first else ""
    after = "…" if end < len(text) else ""
    return f"{before}{shown}{after}\n{' ' * (len(before) + position - first)}^"
