"""The errors that Dovetail raises on purpose.

Each is a sentence for the person who can do something about it, and maybe a hint that
says what. The command line prints both without a traceback; anything that is not a
`DovetailError` is a bug and keeps its traceback. A fault of a remote party carries the
MQTT reason code that answers it.
"""

from enum import IntEnum


class ReasonCode(IntEnum):
    """MQTT 5.0 section 2.4: what a client is told. Grows with the packets we speak."""

    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90


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


class SketchError(DovetailError):
    """Sketches that do not fit each other, or an operation that a sketch cannot do."""


class SketchFormatError(SketchError):
    """Bytes that are not a sketch, or not a whole one: the fault of whoever sent or stored them."""
