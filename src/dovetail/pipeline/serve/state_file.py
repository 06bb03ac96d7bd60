"""The state of a serving stream that Spark's checkpoint lacks, in one file beside it.

Brokers identify a stream's history by the name of its engine. A stream that continues from its
checkpoint keeps that name. The state also has the rows that earlier streams had served, the
version of each list when the last batch began, and the rows that are pending for brokers that were
away.
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
    """The content of the file, as JSON."""

    engine: str
    version: int = _VERSION
    floors: dict[str, Offsets] = {}
    """By space and broker: the offset that was served before this history began."""
    marks: dict[str, dict[str, tuple[int, int]]] = {}
    """By space and broker: life and version of its list when the last batch began."""
    owed: dict[str, Offsets] = {}
    """By broker: the offsets that it has received, if rows above them are pending for it."""


def load(checkpoint: Path) -> State:
    """Read the state; return a new one if there is none."""
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
    """Replace the file atomically."""
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
