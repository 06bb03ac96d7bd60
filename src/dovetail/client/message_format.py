"""Formats a message as the bytes that `dovetail sub` prints.

In a file or a pipe, text stays as it came; bytes that are no text are escaped. On a terminal unsafe
characters are escaped too (process/terminal.py), because strangers write the messages and a
terminal obeys control characters. Line breaks and tabs of a payload stay. `raw` escapes nothing.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from paho.mqtt.client import MQTTMessage

from dovetail.errors import DovetailError
from dovetail.process.terminal import printable, printable_json


class Format(StrEnum):
    """How `sub` prints messages."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class ReceivedMessage:
    """A message with its properties and the time of its arrival."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    time: datetime
    user_properties: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    expiry_seconds: int | None = None

    @classmethod
    def from_paho(cls, message: MQTTMessage, now: float) -> "ReceivedMessage":
        try:
            topic = message.topic
        except UnicodeDecodeError:
            raise DovetailError("the server sent a topic that is not UTF-8.") from None
        properties = message.properties
        return cls(
            topic=topic,
            payload=bytes(message.payload),
            qos=message.qos,
            retain=bool(message.retain),
            time=datetime.fromtimestamp(now, UTC),
            user_properties=tuple(getattr(properties, "UserProperty", ())),
            content_type=getattr(properties, "ContentType", None),
            response_topic=getattr(properties, "ResponseTopic", None),
            correlation_data=getattr(properties, "CorrelationData", None),
            subscription_identifiers=tuple(getattr(properties, "SubscriptionIdentifier", ())),
            expiry_seconds=getattr(properties, "MessageExpiryInterval", None),
        )


def render(message: ReceivedMessage, format_: Format, *, verbose: bool, terminal: bool) -> bytes:
    """Return the line for a message, or its bare payload. `verbose` puts the topic first."""
    if format_ is Format.RAW:
        return message.payload
    if format_ is Format.JSON:
        text = _as_json(message)
        return (printable_json(text) if terminal else text).encode() + b"\n"
    topic, text = message.topic, _PAYLOADS[format_](message.payload)
    if terminal:
        topic, text = printable(topic), printable(text, keep="\n\t")
    if verbose:
        text = f"{topic} {text}"
    return text.encode() + b"\n"


_PAYLOADS: Mapping[Format, Callable[[bytes], str]] = {
    Format.TEXT: lambda payload: payload.decode("utf-8", "backslashreplace"),
    Format.HEX: lambda payload: payload.hex(),
    Format.BASE64: lambda payload: base64.b64encode(payload).decode(),
}


def _as_json(message: ReceivedMessage) -> str:
    """Return a JSON object, without the properties that the message does not have."""
    optional = {
        "user_properties": list(map(list, message.user_properties)) or None,
        "content_type": message.content_type,
        "response_topic": message.response_topic,
        **_text_or_base64("correlation_data", "correlation_encoding", message.correlation_data),
        "subscription_identifiers": list(message.subscription_identifiers) or None,
        "expiry_seconds": message.expiry_seconds,
    }
    fields = {
        "topic": message.topic,
        **_text_or_base64("payload", "encoding", message.payload),
        "qos": message.qos,
        "retain": message.retain,
        "time": message.time.isoformat(timespec="milliseconds"),
        **{name: value for name, value in optional.items() if value is not None},
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _text_or_base64(name: str, encoding: str, data: bytes | None) -> dict[str, str]:
    if data is None:
        return {}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), encoding: "base64"}
