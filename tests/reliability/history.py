"""The history of a run: what clients did, what they saw, and which faults were active.

Pure, but for `Recorder`. Rules:

- A history is a list of events in the order in which the tool saw them. Times are seconds since the
  run began, on one monotonic clock.
- An operation has two events: `Invoked` and `Completed`. The outcome is "ok" (the broker
  acknowledged it), "fail" (the broker refused it) or "unknown" (nobody can tell whether it took
  effect). An operation without `Completed` is unknown.
- A message has an identifier of its own, in its payload: `PUBLISHER:NUMBER`. Numbers of a publisher
  rise in the order in which it first sends them.
- A file has one event per line, as JSON, and can be checked without the brokers.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Struct

Outcome = Literal["ok", "fail", "unknown"]
Box = dict[str, tuple[float, float]]
"""A where-clause: for each attribute the lowest value and the first one above the box."""


class _Action(Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    """An operation that a client starts."""


class Connect(_Action, frozen=True):
    version: int = 5
    clean_start: bool = False
    expiry_seconds: int = 0
    will: str = ""
    """The identifier of the will's message."""
    will_topic: str = ""
    will_qos: int = 0


class Disconnect(_Action, frozen=True):
    with_will: bool = False
    """MQTT 5: the client asks the broker to publish the will nevertheless."""


class Subscribe(_Action, frozen=True):
    filter: str
    qos: int = 0
    no_local: bool = False
    group: str = ""
    where: Box | None = None
    is_handle: bool = False
    """Over HTTP: messages of every QoS wait for the reader."""


class Unsubscribe(_Action, frozen=True):
    filter: str


class Publish(_Action, frozen=True):
    message: str
    topic: str
    qos: int = 0
    retain: bool = False
    clears: bool = False
    """The payload is empty: it removes the retained message."""
    attributes: dict[str, float] = {}


class Read(_Action, frozen=True):
    """Reads the retained message of a topic at one broker; `Completed.message` is the result."""

    topic: str


class Acknowledge(_Action, frozen=True):
    """Acknowledges messages that a handle received."""

    messages: tuple[str, ...]


Action = Connect | Disconnect | Subscribe | Unsubscribe | Publish | Read | Acknowledge


class _Event(Struct, frozen=True, tag_field="event", tag=str.lower, omit_defaults=True):
    at: float


class Run(_Event, frozen=True):
    """How the run was started."""

    seed: int
    nodes: tuple[str, ...]
    network: str
    started: str
    version: str
    options: dict[str, str] = {}


class Invoked(_Event, frozen=True):
    number: int
    client: str
    node: str
    action: Action


class Resent(_Event, frozen=True):
    """A publication was sent again, after the connection was lost."""

    number: int
    node: str


class Completed(_Event, frozen=True):
    number: int
    outcome: Outcome
    reason: int = 0
    session_present: bool = False
    message: str = ""


class Delivered(_Event, frozen=True):
    """A message reached a client's program. A QoS 2 packet that the protocol repeats does not."""

    client: str
    node: str
    connection: int
    """The number of the `Connect` that began it."""
    message: str
    topic: str
    qos: int
    retain: bool = False
    duplicate: bool = False
    """The broker marked it so."""
    damaged: bool = False
    """The payload differs from the published one."""


class Ended(_Event, frozen=True):
    """A connection is over. `lost`: neither side announced the end."""

    client: str
    connection: int
    lost: bool = True


class FaultBegan(_Event, frozen=True):
    number: int
    fault: str
    nodes: tuple[str, ...]
    detail: str = ""


class FaultEnded(_Event, frozen=True):
    number: int


class Whole(_Event, frozen=True):
    """Every broker answered every other one, and no fault was active."""


class Exited(_Event, frozen=True):
    """A broker's process ended unasked, or not as it was asked to."""

    node: str
    code: int
    detail: str = ""


class Phase(_Event, frozen=True):
    """A phase of the run begins: start, workload, healing, draining, reading, over."""

    name: str


Event = (
    Run
    | Invoked
    | Resent
    | Completed
    | Delivered
    | Ended
    | FaultBegan
    | FaultEnded
    | Whole
    | Exited
    | Phase
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(line: bytes) -> Event:
    event: Event = _decoder.decode(line)
    return event


class HistoryError(Exception):
    """A file is not a history. The text names the line and the reason."""


def read(path: Path) -> Iterator[Event]:
    """Yield the events of a file. A last line that was cut off is left out."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except msgspec.MsgspecError as error:
                raise HistoryError(f"{path}, line {number}: {error}") from None


def write(path: Path, events: Iterable[Event]) -> None:
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))


class Recorder:
    """Keep events in memory and append each one to a file."""

    def __init__(self, lines: IO[bytes]) -> None:
        self.events: list[Event] = []
        self._lines = lines
        self._next_number = 1

    def record(self, event: Event) -> None:
        self.events.append(event)
        self._lines.write(encode(event) + b"\n")

    def flush(self) -> None:
        """Make the recorded events visible to other processes."""
        self._lines.flush()

    def next_number(self) -> int:
        """Return the number of a new operation or fault."""
        number = self._next_number
        self._next_number += 1
        return number
