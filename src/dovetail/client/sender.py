"""Sends many messages to an MQTT server in order, each at least once. For use by programs.

- Up to a window of messages is in flight. `finish` returns when all are acknowledged.
- After a lost connection it reconnects and resends unacknowledged messages, the oldest first. It
  waits at most `wait_seconds` for a server that is away.
- The first refused message ends it: the error has the topic and the server's reason.
- A server acknowledges messages of one QoS in order [MQTT-4.6.0-2], so each answer is for the
  oldest message. Before the QoS changes, all answers must be in.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from paho.mqtt.packettypes import PacketTypes

from dovetail.client.connection import (
    ConnectError,
    ConnectionLostError,
    MqttConnection,
    RequestRefusedError,
    describe_reason,
    make_properties,
)
from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.publisher import answer_seconds_max
from dovetail.errors import ReasonCode
from dovetail.process.logs import about

log = logging.getLogger("dovetail.client")

WINDOW_MESSAGES_MAX = 1_000
_RETRY_SECONDS = 0.5


class MqttMessage(NamedTuple):
    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    user_properties: tuple[tuple[str, str], ...] = ()


class Sender:
    """Sends messages on a connection that it opens at the first message."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._sleep = sleep
        self._connection: MqttConnection | None = None
        self._unanswered: deque[MqttMessage] = deque()
        self._bytes = 0
        self._refusal: RequestRefusedError | None = None

    def send(self, message: MqttMessage) -> None:
        if self._unanswered and self._unanswered[0].qos != message.qos:
            self.finish()
        self._await_answers(self._window - 1)
        self._unanswered.append(message)
        self._bytes += len(message.payload)
        try:
            self._publish(self._ready_connection(), message)
        except ConnectionLostError as error:
            self._reconnect(error)

    def finish(self) -> None:
        """Wait until the server has acknowledged every message."""
        self._await_answers(0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _window(self) -> int:
        return min(WINDOW_MESSAGES_MAX, self._ready_connection().receive_max)

    def _await_answers(self, outstanding: int) -> None:
        """Wait until at most `outstanding` messages have no answer."""
        while len(self._unanswered) > outstanding:
            before = len(self._unanswered)
            try:
                self._ready_connection().wait(
                    lambda: len(self._unanswered) < before or None,  # noqa: B023
                    answer_seconds_max(self._bytes),
                )
            except ConnectionLostError as error:
                self._reconnect(error)
            if self._refusal is not None:
                raise self._refusal

    def _ready_connection(self) -> MqttConnection:
        if self._connection is None:
            self._reconnect(None)
        assert self._connection is not None
        return self._connection

    def _reconnect(self, lost: ConnectionLostError | None) -> None:
        """Open a new connection and resend what was not acknowledged."""
        since = self._clock()
        while True:
            if lost is not None and not lost.is_transient:
                raise lost
            self.close()
            try:
                connection = MqttConnection(self._options)
                connection.on_published = self._on_published
                connection.open()
                self._connection = connection
                for message in [*self._unanswered]:
                    self._publish(connection, message)
            except ConnectionLostError as error:
                lost = error
            except (ConnectError, RequestRefusedError) as error:
                is_transient = not isinstance(error, RequestRefusedError) or error.is_transient
                if not is_transient or self._clock() - since >= self._wait_seconds:
                    raise
                log.warning(
                    "waiting for %s: %s",
                    self._options.address,
                    error.message,
                    extra=about(self._options.address),
                )
            else:
                return
            if self._clock() - since >= self._wait_seconds:
                assert lost is not None
                raise lost
            self._sleep(_RETRY_SECONDS)

    def _publish(self, connection: MqttConnection, message: MqttMessage) -> None:
        if message.qos > connection.qos_max:  # [MQTT-3.2.2-11]
            raise RequestRefusedError(
                ReasonCode.QOS_NOT_SUPPORTED,
                f"{connection.address} takes QoS {connection.qos_max} at most.",
            )
        if message.retain and not connection.retain_available:  # [MQTT-3.2.2-14]
            raise RequestRefusedError(
                ReasonCode.RETAIN_NOT_SUPPORTED, f"{connection.address} retains no messages."
            )
        if len(message.payload) > connection.packet_bytes_max:  # [MQTT-3.2.2-15]
            raise RequestRefusedError(
                ReasonCode.PACKET_TOO_LARGE,
                f"{connection.address} takes packets of {connection.packet_bytes_max:,} bytes at "
                f"most, and one to {message.topic} has more.",
            )
        properties = None
        if message.user_properties:
            properties = make_properties(
                PacketTypes.PUBLISH, UserProperty=[*message.user_properties]
            )
        connection.publish(
            message.topic,
            message.payload,
            qos=message.qos,
            retain=message.retain,
            properties=properties,
        )

    def _on_published(self, reason: int, reason_string: str | None) -> None:
        if not self._unanswered:
            return
        message = self._unanswered.popleft()
        self._bytes -= len(message.payload)
        if reason >= ReasonCode.UNSPECIFIED_ERROR and self._refusal is None:
            self._refusal = RequestRefusedError(
                reason,
                f"{self._options.address} refused the publication to {message.topic}: "
                f"{describe_reason(reason, reason_string)}",
            )
