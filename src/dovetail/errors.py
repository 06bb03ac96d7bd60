"""The errors that Dovetail raises on purpose.

Each is a sentence for the person who can do something about it, and maybe a hint that
says what. The command line prints both without a traceback; anything that is not a
`DovetailError` is a bug and keeps its traceback. A fault of a remote party carries the
MQTT reason code that answers it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

_SHOWN_BEFORE_MAX = 50
_SHOWN_MAX = 80


class ReasonCode(IntEnum):
    """MQTT 5.0 section 2.4: what a client is told. The names are the specification's."""

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
    """Something that the user can understand, and often mend."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class ConfigError(DovetailError):
    """A setting, option or argument that cannot be used as it stands."""


class MissingDependencyError(DovetailError):
    """Something that has to be installed first: an extra of the package, or a program."""


class ClientError(DovetailError):
    """A client erred; `reason` is what the wire tells it."""

    def __init__(self, reason: ReasonCode, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WhereError(ClientError):
    """A where-clause that cannot be used; the hint is the clause, and a caret below its fault.

    The reason is 0x83: a SUBSCRIBE "is valid but the Server does not accept it" (section 3.9.3).
    0x8F would blame the topic filter, and a client that goes by the code would mend the wrong
    thing.
    """

    def __init__(self, why: str, text: str, position: int) -> None:
        super().__init__(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"where-clause: {why}")
        self.text = text
        self.position = position
        self.hint = _pointed_at(text, position)


class PeerError(DovetailError):
    """Another node, or somebody who poses as one, sent what it must not. Its connection ends."""


class SketchError(DovetailError):
    """Sketches that do not fit each other, or an operation that a sketch cannot do."""


class SketchFormatError(SketchError):
    """Bytes that are not a sketch, or not a whole one: the fault of whoever sent or stored them."""


class StoreError(DovetailError):
    """The data folder cannot be used, or did not take what was to be written."""


class DamageError(StoreError):
    """The data folder is not as it was left: `dovetail repair` keeps what is whole of it."""


@contextmanager
def files_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or path} cannot be used: {error.strerror or error}.",
            hint="Mend that, or choose another folder with --data.",
        ) from error


def _pointed_at(text: str, position: int) -> str:
    """Two lines: the text around the position, each character in one column, and a caret."""
    first = max(0, position - _SHOWN_BEFORE_MAX)
    end = first + _SHOWN_MAX
    shown = "".join(one if one.isprintable() else " " for one in text[first:end])
    before = "…" if first else ""
    after = "…" if end < len(text) else ""
    return f"{before}{shown}{after}\n{' ' * (len(before) + position - first)}^"
