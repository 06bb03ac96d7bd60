"""Payloads that identify their message and reveal damage. Pure.

A payload is a JSON object with the message's identifier and its attributes. Its padding follows
from the identifier, so a reader can build the same payload and compare every byte.
"""

import json
from collections.abc import Mapping
from zlib import crc32

_PADDING_BYTES = 200
_LONG_PADDING_BYTES = 20_000
_LONG_ONE_IN = 97


def encode(message: str, attributes: Mapping[str, float] | None = None) -> bytes:
    digest = crc32(message.encode())
    length = digest % _PADDING_BYTES
    if digest % _LONG_ONE_IN == 0:
        length = _LONG_PADDING_BYTES
    body = {"id": message, **(attributes or {}), "padding": (f"{digest:08x}" * length)[:length]}
    return json.dumps(body).encode()


def decode(payload: bytes) -> tuple[str, bool]:
    """Return the message's identifier, and whether the payload is damaged."""
    try:
        body = json.loads(payload)
        message = body.pop("id")
        body.pop("padding")
        return str(message), encode(message, body) != payload
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", True
