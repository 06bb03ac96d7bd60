"""An MQTT server with scripted answers, which no real server would give."""

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from typing import Self

from support.clusters.closing_context import ClosingContext
from support.processes.broker_process import WAIT_SECONDS

CONNACK = b"\x20\x03\x00\x00\x00"
DISCONNECT_OF_CLIENT = b"\xe0\x00"

CLOSE = b""
"""The answer that closes the connection."""


class ScriptedServer(ClosingContext):
    """Accepts one connection after the other; each has a list of answers, one per packet."""

    def __init__(self, *connections: Iterable[bytes]) -> None:
        self.packets: list[bytes] = []
        self._connections = connections
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(WAIT_SECONDS)

    def _serve(self) -> None:
        for answers in self._connections:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                self._answer(connection, answers)

    def _answer(self, connection: socket.socket, answers: Iterable[bytes]) -> None:
        stream = connection.makefile("rb")
        for answer in answers:
            self.packets.append(_read_packet(stream))
            if answer == CLOSE:
                return
            connection.sendall(answer)
        while packet := _read_packet(stream):
            self.packets.append(packet)
            if packet == DISCONNECT_OF_CLIENT:
                return


def _read_packet(stream: BufferedReader) -> bytes:
    """Read one packet; empty at the end of the stream."""
    head = stream.read(1)
    length = shift = 0
    while head:
        byte = stream.read(1)
        head += byte
        length |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    return head + stream.read(length)
