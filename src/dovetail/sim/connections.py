"""Simulated connections: reliable and in order until they break. Pure.

A node dials another by name and retries until it is there. Frames arrive in order after a random
delay, or are lost with the connection. The dialer learns that the connection broke, and redials.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol

from dovetail.sim.clock import Clock

REDIAL_SECONDS = 0.2


class ConnectionEnd(Protocol):
    """A node as its connections see it: `receive` for the acceptor, `answered` for the dialer."""

    name: str

    def connected(self, name: str) -> None: ...

    def lost(self, name: str) -> None: ...

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None: ...

    def answered(self, name: str, kind: int, body: bytes) -> None: ...


class _VirtualConnection:
    __slots__ = ("acceptor", "dialer", "is_open", "last_at")

    def __init__(self, dialer: ConnectionEnd, acceptor: ConnectionEnd) -> None:
        self.dialer = dialer
        self.acceptor = acceptor
        self.is_open = True
        self.last_at = [0.0, 0.0]  # arrival of the last frame, by direction


class Connections:
    """All connections of a cluster. Attached nodes can dial and be dialed."""

    def __init__(
        self, clock: Clock, random: Random, delay_seconds: tuple[float, float] = (0.000_2, 0.002)
    ) -> None:
        self.delay_seconds = delay_seconds
        self.is_cut: Callable[[str, str], bool] = lambda _one, _other: False
        self.bytes_sent: Counter[tuple[str, int]] = Counter()
        """Bytes of bodies, by sender and kind."""
        self._clock = clock
        self._random = random
        self._ends: dict[str, ConnectionEnd] = {}
        self._open: dict[tuple[str, str], _VirtualConnection] = {}

    def attach(self, end: ConnectionEnd) -> None:
        self._ends[end.name] = end

    def detach(self, end: ConnectionEnd) -> None:
        """Remove a node that crashed or left: its connections break."""
        if self._ends.get(end.name) is end:
            del self._ends[end.name]
        for connection in list(self._open.values()):
            if end in (connection.dialer, connection.acceptor):
                self.break_(connection.dialer.name, connection.acceptor.name)

    def dial(self, dialer: ConnectionEnd, name: str) -> None:
        """Dial a node. Retry while the dialer is attached."""
        if self._ends.get(dialer.name) is not dialer:
            return
        acceptor = self._ends.get(name)
        if (dialer.name, name) not in self._open:
            if acceptor is None or self.is_cut(dialer.name, name):
                self._clock.after(REDIAL_SECONDS, self.dial, dialer, name)
                return
            self._open[dialer.name, name] = _VirtualConnection(dialer, acceptor)
            dialer.connected(name)

    def break_(self, dialer: str, acceptor: str) -> None:
        connection = self._open.pop((dialer, acceptor), None)
        if connection is not None:
            connection.is_open = False
            self._clock.after(self._delay(), self._lost, connection)

    def _lost(self, connection: _VirtualConnection) -> None:
        dialer, name = connection.dialer, connection.acceptor.name
        if self._ends.get(dialer.name) is dialer and (dialer.name, name) not in self._open:
            dialer.lost(name)
            self._clock.after(REDIAL_SECONDS * self._random.random(), self.dial, dialer, name)

    def pairs(self) -> list[tuple[str, str]]:
        """Return dialer and acceptor of every connection."""
        return list(self._open)

    def send(self, dialer: ConnectionEnd, name: str, kind: int, body: bytes) -> bool:
        connection = self._open.get((dialer.name, name))
        if connection is None or connection.dialer is not dialer:
            return False
        self._carry(connection, 0, kind, body)
        return True

    def answer(self, acceptor: ConnectionEnd, name: str, kind: int, body: bytes) -> None:
        """Send a frame back to the dialer `name`."""
        connection = self._open.get((name, acceptor.name))
        if connection is not None and connection.acceptor is acceptor:
            self._carry(connection, 1, kind, body)

    def _carry(
        self, connection: _VirtualConnection, direction: int, kind: int, body: bytes
    ) -> None:
        sender = connection.acceptor if direction else connection.dialer
        self.bytes_sent[sender.name, kind] += len(body)
        at = max(connection.last_at[direction], self._clock.now + self._delay())
        connection.last_at[direction] = at
        self._clock.at(at, self._arrive, connection, direction, kind, body)

    def _arrive(
        self, connection: _VirtualConnection, direction: int, kind: int, body: bytes
    ) -> None:
        if not connection.is_open:
            return
        dialer, acceptor = connection.dialer, connection.acceptor
        if direction:
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
