"""The printed formats of messages."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.client.message_format import Format, ReceivedMessage, render

NOW = datetime(2026, 3, 4, 5, 6, 7, 891_234, UTC)


def received(payload: bytes, topic: str = "a/b") -> ReceivedMessage:
    return ReceivedMessage(topic=topic, payload=payload, time=NOW)


@pytest.mark.parametrize(
    ("how", "payload", "expected"),
    [
        (Format.TEXT, "21.5 °C".encode(), "21.5 °C\n".encode()),
        (Format.TEXT, b"", b"\n"),
        (Format.TEXT, b"\xff\x00ok", b"\\xff\x00ok\n"),
        (Format.TEXT, b"two\nlines", b"two\nlines\n"),
        (Format.HEX, b"\x00\xffz", b"00ff7a\n"),
        (Format.BASE64, b"\x00\xffz", b"AP96\n"),
        (Format.RAW, b"\x00\xff\n", b"\x00\xff\n"),
    ],
)
def test_formats(how: Format, payload: bytes, expected: bytes) -> None:
    assert render(received(payload), how, verbose=False, terminal=False) == expected


def test_verbose_prints_the_topic() -> None:
    assert render(received(b"1"), Format.TEXT, verbose=True, terminal=False) == b"a/b 1\n"
    assert render(received(b"1"), Format.HEX, verbose=True, terminal=False) == b"a/b 31\n"


def test_a_terminal_gets_no_control_characters() -> None:
    message = received(b"\x1b[2Jred\tand\nblue\x9b \xc2\x9b", topic="a\x1b[31m")
    shown = render(message, Format.TEXT, verbose=True, terminal=True)
    assert shown == b"a\\x1b[31m \\x1b[2Jred\tand\nblue\\x9b \\x9b\n"
    shown = render(received(b"\x7f\xc2\x9b"), Format.JSON, verbose=False, terminal=True)
    assert b"\x7f" not in shown
    assert b"\xc2\x9b" not in shown
    assert json.loads(shown)["payload"] == "\x7f\x9b"


def test_json_has_all_properties() -> None:
    message = ReceivedMessage(
        topic="é",
        payload=b'say "hi"',
        qos=2,
        retain=True,
        time=NOW,
        user_properties=(("unit", "°C"), ("unit", "K")),
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\xff",
        subscription_identifiers=(1, 300),
        expiry_seconds=60,
    )
    line = render(message, Format.JSON, verbose=False, terminal=False)
    assert line.endswith(b"}\n")
    assert "é" in line.decode()
    assert json.loads(line) == {
        "topic": "é",
        "payload": 'say "hi"',
        "qos": 2,
        "retain": True,
        "time": "2026-03-04T05:06:07.891+00:00",
        "user_properties": [["unit", "°C"], ["unit", "K"]],
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": "/w==",
        "correlation_encoding": "base64",
        "subscription_identifiers": [1, 300],
        "expiry_seconds": 60,
    }


def test_json_leaves_out_missing_properties() -> None:
    line = render(received(b""), Format.JSON, verbose=False, terminal=False)
    assert list(json.loads(line)) == ["topic", "payload", "qos", "retain", "time"]


@given(st.binary(), st.booleans())
def test_json_gives_every_payload_back_in_one_line(payload: bytes, terminal: bool) -> None:
    line = render(received(payload), Format.JSON, verbose=False, terminal=terminal)
    assert line.count(b"\n") == 1
    fields = json.loads(line)
    if fields.get("encoding") == "base64":
        assert base64.b64decode(fields["payload"]) == payload
    else:
        assert fields["payload"].encode() == payload
