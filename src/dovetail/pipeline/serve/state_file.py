"""What a serving stream remembers beside Spark's checkpoint, in one file there.

The engine's name is the history that brokers go by: with its checkpoint a stream goes on under the
name that it had. The rest is what Spark does not know: which rows others had served before, how far
lists had been followed when the last batch began, and which brokers are owed rows that they were
not there for.
"""

import os
import secrets
from pathlib import Path

import msgspec

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.source.offsets import Offsets

FILE = "dovetail-serving.json"
_VERSION = 1


class State(msgspec.Struct):
    """See the module."""

    engine: str
    version: int = _VERSION
    floors: dict[str, Offsets] = {}
    """By space: rows of each broker up to here were served before this history began."""
    marks: dict[str, dict[str, tuple[int, int]]] = {}
    """By space and broker: life and version of its list when the last batch began."""
    owed: dict[str, Offsets] = {}
    """By broker: it has got its share up to these offsets only."""


def load(checkpoint: Path) -> State:
    """A new history where there is none."""
    file = checkpoint / FILE
    try:
        state = msgspec.json.decode(file.read_bytes(), type=State)
    except FileNotFoundError:
        if (checkpoint / "offsets").exists():
            raise ConfigError(
                f"{checkpoint} is the checkpoint of another stream.",
                hint="Name a folder that is empty, or is not there yet.",
            ) from None
        return State(secrets.token_hex(8))
    except (OSError, msgspec.DecodeError) as error:
        raise DovetailError(f"{file} cannot be read: {error}.") from None
    if state.version != _VERSION:
        raise DovetailError(f"{file} is of another version of Dovetail.")
    return state


def save(checkpoint: Path, state: State) -> None:
    """Whole or not at all."""
    file = checkpoint / FILE
    beside = file.with_name(f".{FILE}.new")
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as output:
            output.write(msgspec.json.encode(state))
            output.flush()
            os.fsync(output.fileno())
        beside.replace(file)
    except OSError as error:
        raise DovetailError(f"{file} cannot be written: {error.strerror or error}.") from None


def copied(state: State) -> State:
    return msgspec.json.decode(msgspec.json.encode(state), type=State)
