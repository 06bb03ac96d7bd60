"""A network of datagrams: it delays, loses and doubles them from a seed, and can be cut. Pure.

Messages between two nodes may overtake each other. A message that is on its way is lost when the
network is cut or its receiver crashes.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from dovetail.sim.clock import Clock


@dataclass(frozen=True)
class NetworkConditions:
    """Delays, and the probabilities of loss and doubling."""

    delay_seconds: tuple[float, float] = (0.000_2, 0.002)
    loss: float = 0.0
    doubling: float = 0.0


QUIET = NetworkConditions()


class Network:
    """Carries bytes between named nodes. A node that is not attached gets nothing."""

    def __init__(self, clock: Clock, random: Random, conditions: NetworkConditions = QUIET) -> None:
        self.conditions = conditions
        self.bytes_sent: Counter[str] = Counter()
        self.messages_sent: Counter[str] = Counter()
        self._clock = clock
        self._random = random
        self._receivers: dict[str, Callable[[str, bytes], None]] = {}
        self._sides: dict[str, int] = {}

    def attach(self, name: str, receive: Callable[[str, bytes], None]) -> None:
        self._receivers[name] = receive

    def detach(self, name: str) -> None:
        self._receivers.pop(name, None)

    def cut(self, *sides: Iterable[str]) -> None:
        """Separate the sides from each other. Names that are on no side form one more."""
        self._sides = {name: number for number, side in enumerate(sides, 1) for name in side}

    def heal(self) -> None:
        self._sides = {}

    def is_open(self, one: str, other: str) -> bool:
        return self._sides.get(one, 0) == self._sides.get(other, 0)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        self.bytes_sent[sender] += len(data)
        self.messages_sent[sender] += 1
        conditions = self.conditions
        copies = 2 if self._random.random() < conditions.doubling else 1
        for _ in range(copies):
            if self._random.random() < conditions.loss:
                continue
            target = self._receivers.get(receiver)
            delay = self._random.uniform(*conditions.delay_seconds)
            self._clock.after(delay, self._deliver, sender, receiver, target, data)

    def _deliver(
        self,
        sender: str,
        receiver: str,
        target: Callable[[str, bytes], None] | None,
        data: bytes,
    ) -> None:
        # A receiver that has crashed and restarted since does not get it.
        if (
            target is not None
            and target == self._receivers.get(receiver)
            and self.is_open(sender, receiver)
        ):
            target(sender, data)
