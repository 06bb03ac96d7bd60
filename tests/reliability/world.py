"""What all clients of a run share: the clock, the history, and the addresses of brokers."""

import asyncio
from dataclasses import dataclass

from reliability.history import Action, Completed, Event, Invoked, Outcome, Recorder


@dataclass(frozen=True)
class Place:
    """The addresses at which clients reach a broker."""

    host: str
    mqtt_port: int
    http_port: int


class World:
    def __init__(self, recorder: Recorder, nodes: tuple[str, ...], rate: float) -> None:
        self.recorder = recorder
        self.nodes = nodes
        self.rate = rate
        """Publications a second, of all clients together."""
        self.places: dict[str, Place] = {}
        """The addresses of brokers that are up, or were at the last query."""
        self.is_publishing = False
        self.is_disrupting = False
        """Whether clients lose their connections now and then."""
        self.acknowledged = 0
        self.published = 0
        self.delivered = 0
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return round(self._loop.time() - self._began_at, 6)

    def record(self, event: Event) -> None:
        self.recorder.record(event)

    def invoke(self, client: str, node: str, action: Action) -> int:
        """Record that an operation begins; return its number."""
        number = self.recorder.next_number()
        self.record(Invoked(self.now(), number, client, node, action))
        return number

    def complete(
        self,
        number: int,
        outcome: Outcome,
        reason: int = 0,
        *,
        session_present: bool = False,
        message: str = "",
    ) -> None:
        self.record(Completed(self.now(), number, outcome, reason, session_present, message))
