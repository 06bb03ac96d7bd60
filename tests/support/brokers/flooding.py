"""A flood of useless connections: idle ones, slow ones, wrong passwords.

A thread keeps a number of them open. When the server closes one, the thread opens another. It
pauses between two, so that a test leaves some of the machine to others.
"""

import selectors
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

PAUSE_SECONDS = 0.002
"""The pause between two new connections: five hundred a second."""


class Flood:
    """`count` connections from `source` to the ports in turn. Each sends `words` and no more."""

    def __init__(
        self, ports: Iterable[int], count: int, words: bytes = b"", source: str = "127.0.0.1"
    ) -> None:
        self._ports = [*ports]
        self._count = count
        self._words = words
        self._source = source
        self._selector = selectors.DefaultSelector()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.closed = 0
        """The number of connections that the server closed."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        for key in [*self._selector.get_map().values()]:
            self._drop(key.data)
        self._selector.close()

    def _run(self) -> None:
        opened = 0
        while not self._is_over.wait(PAUSE_SECONDS):
            if len(self._selector.get_map()) < self._count:
                self._open(self._ports[opened % len(self._ports)])
                opened += 1
            for key, _ in self._selector.select(0):
                self._read(key.data)

    def _open(self, port: int) -> None:
        with suppress(OSError):  # if the server is down, the next turn tries again
            connection = socket.create_connection(
                ("127.0.0.1", port), timeout=1, source_address=(self._source, 0)
            )
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, connection)
            connection.send(self._words)

    def _read(self, connection: socket.socket) -> None:
        with suppress(ConnectionError):
            if connection.recv(65_536):
                return
        self._drop(connection)
        self.closed += 1

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
