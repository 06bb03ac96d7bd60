"""A request over HTTP/1.1, one on each connection."""

import asyncio
import json
from typing import Any

_ANSWER_BYTES_MAX = 16 << 20


class HttpError(OSError):
    """The server's answer is not valid HTTP."""


async def request(
    host: str,
    port: int,
    method: str,
    path: str,
    body: object = None,
    *,
    seconds: float,
) -> tuple[int, Any]:
    """Return the status and the JSON of the answer. Raise an OSError if there is none in time."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(host, port, limit=_ANSWER_BYTES_MAX)
        try:
            writer.write(head.encode() + data)
            answer = await reader.read()
        finally:
            writer.transport.abort()
    return _parse(answer)


def _parse(answer: bytes) -> tuple[int, Any]:
    head, separator, body = answer.partition(b"\r\n\r\n")
    fields = head.split(b"\r\n")
    try:
        status = int(fields[0].split(b" ")[1])
        lengths = [
            int(one.split(b":")[1]) for one in fields if one.lower().startswith(b"content-l")
        ]
        if not separator or (lengths and len(body) != lengths[0]):
            raise HttpError("the answer was cut off")
        return status, json.loads(body) if body else None
    except (ValueError, IndexError) as error:
        raise HttpError(f"no answer of HTTP: {error}") from None
