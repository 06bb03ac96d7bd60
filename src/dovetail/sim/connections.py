"""Connections out of a seed: reliable and in order, until they break. Pure.

A node dials another by name, and tries again while it is not there. What is sent on a connection
comes in order, after a delay, or is lost with the connection; both ends hear that it broke.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol

from dovetail.sim.clock import Clock

REDIAL_SECONDS = 0.2


class End(Protocol):
    """A node, as its connections see it. `receive`: it was dialed; `answered`: it dialed."""

    name: str

    def connected(self, name: str) -> None: ...

    def lost(self, name: str) -> None: ...

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None: ...

    def answered(self, name: str, kind: int, body: bytes) -> None: ...


class _Connection:
    __slots__ = ("acceptor", "dialer", "is_open", "last_at")

    def __init__(self, dialer: End, acceptor: End) -> None:
        self.dialer = dialer
        self.acceptor = acceptor
        self.is_open = True
        self.last_at = [0.0, 0.0]  # when what was sent last arrives, there and back


class Links:
    """All connections. Who is attached can be dialed, and dials whoever it was told to."""

    def __init__(
        self, clock: Clock, random: Random, delay_seconds: tuple[float, float] = (0.000_2, 0.002)
    ) -> None:
        self.delay_seconds = delay_seconds
        self.is_cut: Callable[[str, str], bool] = lambda _one, _other: False
        self.bytes_sent: Counter[tuple[str, int]] = Counter()
        """Of bodies, by sender and kind."""
        self._clock = clock
        self._random = random
        self._ends: dict[str, End] = {}
        self._open: dict[tuple[str, str], _Connection] = {}

    def attach(self, end: End) -> None:
        self._ends[end.name] = end

    def detach(self, end: End) -> None:
        """It crashed, or is gone: those at the other ends find out."""
        if self._ends.get(end.name) is end:
            del self._ends[end.name]
        for connection in list(self._open.values()):
            if end in (connection.dialer, connection.acceptor):
                self.break_(connection.dialer.name, connection.acceptor.name)

    def dial(self, dialer: End, name: str) -> None:
        """As long as the dialer is there."""
        if self._ends.get(dialer.name) is not dialer:
            return
        acceptor = self._ends.get(name)
        if (dialer.name, name) not in self._open:
            if acceptor is None or self.is_cut(dialer.name, name):
                self._clock.after(REDIAL_SECONDS, self.dial, dialer, name)
                return
            self._open[dialer.name, name] = _Connection(dialer, acceptor)
            dialer.connected(name)

    def break_(self, dialer: str, acceptor: str) -> None:
        connection = self._open.pop((dialer, acceptor), None)
        if connection is not None:
            connection.is_open = False
            self._clock.after(self._delay(), self._lost, connection)

    def _lost(self, connection: _Connection) -> None:
        dialer, name = connection.dialer, connection.acceptor.name
        if self._ends.get(dialer.name) is dialer and (dialer.name, name) not in self._open:
            dialer.lost(name)
            self._clock.after(REDIAL_SECONDS * self._random.random(), self.dial, dialer, name)

    def pairs(self) -> list[tuple[str, str]]:
        """Dialer and acceptor of every connection."""
        return list(self._open)

    def send(self, dialer: End, name: str, kind: int, body: bytes) -> bool:
        connection = self._open.get((dialer.name, name))
        if connection is None or connection.dialer is not dialer:
            return False
        self._carry(connection, 0, kind, body)
        return True

    def answer(self, acceptor: End, name: str, kind: int, body: bytes) -> None:
        """To whoever dialed us."""
        connection = self._open.get((name, acceptor.name))
        if connection is not None and connection.acceptor is acceptor:
            self._carry(connection, 1, kind, body)

    def _carry(self, connection: _Connection, way: int, kind: int, body: bytes) -> None:
        sender = connection.acceptor if way else connection.dialer
        self.bytes_sent[sender.name, kind] += len(body)
        at = max(connection.last_at[way], self._clock.now + self._delay())
        connection.last_at[way] = at
        self._clock.at(at, self._arrive, connection, way, kind, body)

    def _arrive(self, connection: _Connection, way: int, kind: int, body: bytes) -> None:
        if not connection.is_open:
            return
        dialer, acceptor = connection.dialer, connection.acceptor
        if way:
            dialer.answered(acceptor.name, kind, body)
        else:
            acceptor.receive(
                dialer.name,
                kind,
                body,
                lambda kind, body: self._carry(connection, 1, kind, body),
            )

    def _delay(self) -> float:
        return self._random.uniform(*self.delay_seconds)
