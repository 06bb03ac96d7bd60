"""MQTT over WebSocket (section 6): a connection whose bytes travel in binary frames.

The library's sans-I/O protocol does the handshake and the frames. This module checks the path and
the subprotocol, and closes the connection of a peer that breaks the rules.
"""

import http
import logging
from collections.abc import Sequence
from typing import cast

from websockets.exceptions import ConnectionClosed, InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from dovetail.broker.net.server import BrokerServer, ClientConnection
from dovetail.settings import ListenerSettings

_SUBPROTOCOLS = (Subprotocol("mqtt"),)  # [MQTT-6.0.0-4]
_CLOSE_UNSUPPORTED = 1003
_FRAME_OVERHEAD_BYTES = 65_536

_quiet = logging.getLogger("dovetail.websocket")
_quiet.setLevel(logging.WARNING)


class WebSocketConnection(ClientConnection):
    """A connection whose bytes travel in WebSocket frames."""

    __slots__ = ("_protocol",)

    def __init__(self, server: BrokerServer, listener: ListenerSettings) -> None:
        super().__init__(server, listener)
        self._protocol = ServerProtocol(
            # None is allowed too: only browsers send an origin.
            origins=[*(cast("Origin", origin) for origin in listener.allowed_origins), None]
            if listener.allowed_origins
            else None,
            subprotocols=_SUBPROTOCOLS,
            # A client that names no known subprotocol is accepted without one.
            select_subprotocol=lambda _, offered: self._choose(offered),
            max_size=server.shared.limits.packet_bytes_max + _FRAME_OVERHEAD_BYTES,
            logger=_quiet,
        )

    @staticmethod
    def _choose(offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return next((known for known in _SUBPROTOCOLS if known in offered), None)

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._shake_hands(event)
            elif isinstance(event, Frame) and not self._take(event):
                break
        self._pass_on()

    def _keep(self, data: bytes) -> None:
        """Take it now: the next frame may be one that ends the connection."""
        self.take_kept(data)

    def _shake_hands(self, request: Request) -> None:
        protocol = self._protocol
        path = request.path.partition("?")[0]
        if path.rstrip("/") != self.listener.path.rstrip("/"):
            response = protocol.reject(
                http.HTTPStatus.NOT_FOUND, f"MQTT is spoken at {self.listener.path}\n"
            )
        else:
            response = protocol.accept(request)
        protocol.send_response(response)

    def _take(self, frame: Frame) -> bool:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            if frame.data:
                super().data_received(bytes(frame.data))
            return not self.link.is_closed
        if frame.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
            self._protocol.fail(_CLOSE_UNSUPPORTED, "MQTT travels in binary frames")
            self.link.close()
            return False
        return True

    def _pass_on(self) -> None:
        """Write the protocol's data for the client: frames, pongs, the close."""
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()
        self.unwritten()

    def write(self, pieces: list[bytes]) -> int:
        data = b"".join(pieces)
        try:
            self._protocol.send_binary(data)
        except (ConnectionClosed, InvalidState):
            return 0
        self._pass_on()
        return len(data)

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        self._pass_on()
        return False

    def close(self) -> None:
        try:
            self._protocol.send_close()
            self._pass_on()
        except (ConnectionClosed, InvalidState):
            pass
        super().close()
