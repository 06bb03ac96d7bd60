"""`dovetail pub`: one message, the same one many times, or one for each line of standard input.

It succeeds when the server has acknowledged every message; at QoS 0, when the network has taken
them. The first refusal ends it.
"""

import itertools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dovetail.client.connection import (
    ANSWER_SECONDS_MAX,
    PACKET_BYTES_MAX,
    ConnectionLostError,
    MqttConnection,
    RequestRefusedError,
    describe_reason,
    make_properties,
)
from dovetail.client.endpoint import (
    MQTT_5,
    TEXT_BYTES_MAX,
    ConnectionOptions,
    check_text,
    check_topic,
    read_failure,
)
from dovetail.errors import ConfigError, ReasonCode
from dovetail.process.terminal import complain

WINDOW_MESSAGES_MAX = 100
"""Messages in flight at most: enough to hide the round-trip time."""

LINE_BYTES_PER_SECOND_MIN = 16_384
"""The slowest network that gets no time-out."""

STANDARD_INPUT = "-"

_READ_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class PayloadSource:
    """Where payloads come from. Exactly one field is set."""

    payload: str | None = None
    file: Path | None = None
    stdin: bool = False
    lines: bool = False
    null: bool = False

    def check(self) -> None:
        given = [self.payload is not None, self.file is not None, self.stdin, self.lines, self.null]
        if not any(given):
            raise ConfigError(
                "there is nothing to publish.",
                hint="Give a payload, --file FILE, --stdin, --lines, or --null for an empty one.",
            )
        if sum(given) > 1:
            raise ConfigError("give one of a payload, --file, --stdin, --lines and --null.")
        if (self.stdin or self.lines or self.payload == STANDARD_INPUT) and sys.stdin is None:
            raise ConfigError("standard input is closed.")

    def read(self) -> bytes:
        """Return the payload. Not for `lines`, which has many."""
        if self.stdin or self.payload == STANDARD_INPUT:
            data = sys.stdin.buffer.read(PACKET_BYTES_MAX + 1)
            source = "standard input"
        elif self.file is not None:
            data, source = _read_file(self.file), str(self.file)
        else:
            data, source = os.fsencode(self.payload or ""), "the payload"
        if len(data) > PACKET_BYTES_MAX:
            raise _too_large(source)
        return data


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """The topic and properties that all messages of the command share."""

    topic: str
    qos: int = 0
    retain: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    user_properties: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: str | None = None
    expiry_seconds: int | None = None

    def check(self, options: ConnectionOptions) -> None:
        check_topic("cannot publish", self.topic)
        if self.attributes and options.version != MQTT_5:
            raise ConfigError(
                f"--attr needs MQTT 5, and this is MQTT {options.version}.",
                hint="There attributes are fields of a JSON payload, in a space with json_fields.",
            )
        options.require_mqtt_5(
            {
                "--property": self.user_properties,
                "--content-type": self.content_type is not None,
                "--response-topic": self.response_topic is not None,
                "--correlation-data": self.correlation_data is not None,
                "--expiry": self.expiry_seconds is not None,
            }
        )
        for option, pairs in (("--attr", self.attributes), ("--property", self.user_properties)):
            for text in itertools.chain.from_iterable(pairs):
                check_text(option, text)
        check_text("--content-type", self.content_type)
        if self.response_topic is not None:  # [MQTT-3.3.2-14]
            check_topic("--response-topic", self.response_topic)
        if len(os.fsencode(self.correlation_data or "")) > TEXT_BYTES_MAX:
            raise ConfigError(f"--correlation-data has more than {TEXT_BYTES_MAX:,} bytes.")

    def properties(self) -> Properties:
        correlation_data = self.correlation_data
        return make_properties(
            PacketTypes.PUBLISH,
            UserProperty=[*self.attributes, *self.user_properties] or None,
            ContentType=self.content_type,
            ResponseTopic=self.response_topic,
            CorrelationData=None if correlation_data is None else os.fsencode(correlation_data),
            MessageExpiryInterval=self.expiry_seconds,
        )


def publish(
    options: ConnectionOptions,
    publication: PublishRequest,
    source: PayloadSource,
    *,
    repeat: int = 1,
    interval_seconds: float = 0.0,
    verbose: bool = False,
) -> None:
    options.check()
    publication.check(options)
    source.check()
    if source.lines and repeat > 1:
        raise ConfigError("--repeat sends one message again and again; --lines has many.")
    # Before the connection, so that a missing file costs the server nothing.
    payload = b"" if source.lines else source.read()
    connection = MqttConnection(options)
    try:
        connection.open()
        publisher = _Publisher(connection, publication, options.version == MQTT_5, verbose)
        payloads = publisher.lines() if source.lines else itertools.repeat(payload, repeat)
        publisher.run(payloads, interval_seconds)
    finally:
        connection.close()


class _Publisher:
    """Sends messages and counts the server's answers."""

    def __init__(
        self,
        connection: MqttConnection,
        publication: PublishRequest,
        properties: bool,
        verbose: bool,
    ) -> None:
        self._connection = connection
        self._publication = publication
        self._properties = publication.properties() if properties else None
        self._verbose = verbose
        self._window = min(WINDOW_MESSAGES_MAX, connection.receive_max)
        self._sent = 0
        self._answered = 0
        self._payload_bytes_max = 0
        self._refusal: RequestRefusedError | None = None
        connection.on_published = self._on_published
        if publication.qos > connection.qos_max:  # [MQTT-3.2.2-11]
            raise RequestRefusedError(
                ReasonCode.QOS_NOT_SUPPORTED,
                f"{connection.address} takes QoS {connection.qos_max} at most.",
            )
        if publication.retain and not connection.retain_available:  # [MQTT-3.2.2-14]
            raise RequestRefusedError(
                ReasonCode.RETAIN_NOT_SUPPORTED, f"{connection.address} retains no messages."
            )

    def run(self, payloads: Iterator[bytes], interval_seconds: float) -> None:
        try:
            for number, payload in enumerate(payloads):
                if number and interval_seconds:
                    self._pause(interval_seconds)
                self._send(payload)
            self._await_answers(0)
        except ConnectionLostError as error:
            if self._sent > 1:
                message = f"{error.message} {self._answered:,} of {self._sent:,} messages arrived."
                raise ConnectionLostError(message, is_transient=error.is_transient) from None
            raise

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of standard input as they come, without blank ones."""
        number = sys.stdin.fileno()
        begun = bytearray()
        while True:
            while not self._connection.pump(ANSWER_SECONDS_MAX, readable=number):
                self._raise_refusal()
            data = os.read(number, _READ_BYTES)
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = bytes(begun) + whole[0]
                begun.clear()
            begun += rest
            if not data:
                whole = [bytes(begun)]
            yield from filter(None, (line.removesuffix(b"\r") for line in whole))
            if not data:
                return
            if len(begun) > PACKET_BYTES_MAX:
                raise _too_large("a line")

    def _send(self, payload: bytes) -> None:
        self._await_answers(self._window - 1)
        publication, connection = self._publication, self._connection
        if len(payload) > connection.packet_bytes_max:  # [MQTT-3.2.2-15]
            raise RequestRefusedError(
                ReasonCode.PACKET_TOO_LARGE,
                f"{connection.address} takes packets of {connection.packet_bytes_max:,} bytes "
                "at most.",
            )
        self._sent += 1
        self._payload_bytes_max = max(self._payload_bytes_max, len(payload))
        try:
            connection.publish(
                publication.topic,
                payload,
                qos=publication.qos,
                retain=publication.retain,
                properties=self._properties,
            )
        except ValueError:  # the payload fits, but not with the packet's header
            raise _too_large("the message") from None

    def _await_answers(self, outstanding: int) -> None:
        """Wait until at most `outstanding` messages have no answer."""
        while self._sent - self._answered > outstanding:
            answered = self._answered
            unanswered_bytes = (self._sent - answered) * self._payload_bytes_max
            self._connection.wait(
                lambda: self._answered > answered or None,  # noqa: B023
                answer_seconds_max(unanswered_bytes),
            )
        self._raise_refusal()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._connection.pump(left)
            self._raise_refusal()

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _on_published(self, reason: int, reason_string: str | None) -> None:
        self._answered += 1
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._refusal = self._refusal or RequestRefusedError(
                reason,
                f"{self._connection.address} refused the publication to "
                f"{self._publication.topic}: {describe_reason(reason, reason_string)}",
            )
        elif reason == ReasonCode.NO_MATCHING_SUBSCRIBERS and self._verbose:
            complain(f"dovetail: note: {describe_reason(reason, reason_string)}")


def answer_seconds_max(unanswered_bytes: int) -> float:
    """Return how long the server may take to answer after it got these bytes."""
    return ANSWER_SECONDS_MAX + unanswered_bytes / LINE_BYTES_PER_SECOND_MIN


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # Bounded: a device or a pipe has no size, and may have no end.
            return file.read(PACKET_BYTES_MAX + 1)
    except OSError as error:
        raise read_failure(path, error) from None


def _too_large(subject: str) -> ConfigError:
    return ConfigError(f"{subject} does not fit into a packet of {PACKET_BYTES_MAX:,} bytes.")
