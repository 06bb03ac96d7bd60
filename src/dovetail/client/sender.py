"""Many messages to an MQTT server, in their order, each at least once: for programs, not people.

- Some are on the way at a time, as many as the server takes. `finish` returns when all of them are
  acknowledged.
- A connection that is lost is made again, and what was not acknowledged is sent again, from the
  oldest on. A server that is away is waited for, so long and no longer.
- A message that is refused ends it: the error has its topic and the server's reason.
- Servers acknowledge in the order of messages of one QoS [MQTT-4.6.0-2], so the answer that comes
  is for the oldest. Before one of another QoS goes all others are in.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from paho.mqtt.packettypes import PacketTypes

from dovetail.client.connection import (
    ConnectError,
    Connection,
    LostError,
    RefusedError,
    in_words,
    make_properties,
)
from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.publisher import answer_seconds_max
from dovetail.errors import ReasonCode
from dovetail.process.logs import about

log = logging.getLogger("dovetail.client")

WINDOW_MESSAGES_MAX = 1_000
_AGAIN_SECONDS = 0.5


class Outgoing(NamedTuple):
    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    user_properties: tuple[tuple[str, str], ...] = ()


class Sender:
    """One connection at a time, made when there is something to send."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._rest = rest
        self._connection: Connection | None = None
        self._unanswered: deque[Outgoing] = deque()
        self._bytes = 0
        self._refusal: RefusedError | None = None

    def send(self, message: Outgoing) -> None:
        if self._unanswered and self._unanswered[0].qos != message.qos:
            self.finish()
        self._settle(self._window - 1)
        self._unanswered.append(message)
        self._bytes += len(message.payload)
        try:
            self._publish(self._opened(), message)
        except LostError as error:
            self._again(error)

    def finish(self) -> None:
        """Everything was taken by the server."""
        self._settle(0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _window(self) -> int:
        return min(WINDOW_MESSAGES_MAX, self._opened().receive_max)

    def _settle(self, left: int) -> None:
        """Until no more than so many are without an answer."""
        while len(self._unanswered) > left:
            before = len(self._unanswered)
            try:
                self._opened().wait(
                    lambda: len(self._unanswered) < before or None,  # noqa: B023
                    answer_seconds_max(self._bytes),
                )
            except LostError as error:
                self._again(error)
            if self._refusal is not None:
                raise self._refusal

    def _opened(self) -> Connection:
        if self._connection is None:
            self._again(None)
        assert self._connection is not None
        return self._connection

    def _again(self, lost: LostError | None) -> None:
        """A new connection, and on it what was not acknowledged."""
        since = self._clock()
        while True:
            if lost is not None and not lost.passing:
                raise lost
            self.close()
            try:
                connection = Connection(self._options)
                connection.on_published = self._on_published
                connection.open()
                self._connection = connection
                for message in [*self._unanswered]:
                    self._publish(connection, message)
            except LostError as error:
                lost = error
            except (ConnectError, RefusedError) as error:
                is_passing = not isinstance(error, RefusedError) or error.passing
                if not is_passing or self._clock() - since >= self._wait_seconds:
                    raise
                log.warning(
                    "%s is waited for: %s",
                    self._options.address,
                    error.message,
                    extra=about(self._options.address),
                )
            else:
                return
            if self._clock() - since >= self._wait_seconds:
                assert lost is not None
                raise lost
            self._rest(_AGAIN_SECONDS)

    def _publish(self, connection: Connection, message: Outgoing) -> None:
        if message.qos > connection.qos_max:  # [MQTT-3.2.2-11]
            raise RefusedError(
                ReasonCode.QOS_NOT_SUPPORTED,
                f"{connection.address} takes QoS {connection.qos_max} at most.",
            )
        if message.retain and not connection.retain_available:  # [MQTT-3.2.2-14]
            raise RefusedError(
                ReasonCode.RETAIN_NOT_SUPPORTED, f"{connection.address} retains no messages."
            )
        if len(message.payload) > connection.packet_bytes_max:  # [MQTT-3.2.2-15]
            raise RefusedError(
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

    def _on_published(self, reason: int, said: str | None) -> None:
        if not self._unanswered:
            return
        message = self._unanswered.popleft()
        self._bytes -= len(message.payload)
        if reason >= ReasonCode.UNSPECIFIED_ERROR and self._refusal is None:
            self._refusal = RefusedError(
                reason,
                f"{self._options.address} refused the publication to {message.topic}: "
                f"{in_words(reason, said)}",
            )
