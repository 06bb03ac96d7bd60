"""A network out of a seed: it delays, loses, doubles, and is cut. Pure.

Between two nodes messages may overtake each other. What is on its way when the network is cut, or
when its receiver crashes, is lost.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from dovetail.sim.clock import Clock


@dataclass(frozen=True)
class Weather:
    """How bad the network is."""

    delay_seconds: tuple[float, float] = (0.000_2, 0.002)
    loss: float = 0.0
    doubling: float = 0.0


QUIET = Weather()


class Network:
    """Carries bytes between names. Who is not attached gets nothing."""

    def __init__(self, clock: Clock, random: Random, weather: Weather = QUIET) -> None:
        self.weather = weather
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
        """Who stands on different sides cannot talk. Names that are not told stand together."""
        self._sides = {name: number for number, side in enumerate(sides, 1) for name in side}

    def heal(self) -> None:
        self._sides = {}

    def is_open(self, one: str, other: str) -> bool:
        return self._sides.get(one, 0) == self._sides.get(other, 0)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        self.bytes_sent[sender] += len(data)
        self.messages_sent[sender] += 1
        weather = self.weather
        copies = 2 if self._random.random() < weather.doubling else 1
        for _ in range(copies):
            if self._random.random() < weather.loss:
                continue
            target = self._receivers.get(receiver)
            delay = self._random.uniform(*weather.delay_seconds)
            self._clock.after(delay, self._deliver, sender, receiver, target, data)

    def _deliver(
        self,
        sender: str,
        receiver: str,
        target: Callable[[str, bytes], None] | None,
        data: bytes,
    ) -> None:
        # A receiver that has crashed and come back since is another one.
        if (
            target is not None
            and target == self._receivers.get(receiver)
            and self.is_open(sender, receiver)
        ):
            target(sender, data)
