"""Reads the credentials, queries and bodies of requests, and writes answers and errors.

Rules:

- A user authenticates as in MQTT, with HTTP Basic, or is anonymous. A request that a proxy has
  forwarded does not count as local.
- An error is a status and `{"error": a sentence}`. The reason code of a ClientError decides the
  status.
- Bodies are JSON or msgpack, declare their media type, and are bounded before they are read. A web
  page cannot send such a media type to another site without permission. Requests with an Origin
  are refused, because no page belongs to this server.
- Caches must not store an answer.
"""

import base64
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.engine import MEDIA_TYPE as MSGPACK_MEDIA_TYPE
from dovetail.api.handles import ErrorBody
from dovetail.errors import ClientError, ReasonCode
from dovetail.web.limits import ENGINE_REQUEST_BYTES_MAX, HTTP_BODY_BYTES_MAX
from dovetail.web.views import HttpCredentials

T = TypeVar("T")

STATUSES: Mapping[ReasonCode, int] = {
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 401,
    ReasonCode.NOT_AUTHORIZED: 403,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 404,
    ReasonCode.SESSION_TAKEN_OVER: 409,
    ReasonCode.TOPIC_FILTER_INVALID: 400,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: 400,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 429,
    ReasonCode.QUOTA_EXCEEDED: 503,
    ReasonCode.SERVER_BUSY: 503,
    ReasonCode.SERVER_UNAVAILABLE: 503,
    ReasonCode.SERVER_SHUTTING_DOWN: 503,
}

_CHALLENGE = {"www-authenticate": 'Basic realm="dovetail", charset="UTF-8"'}
_RETRY_LATER = {503: {"retry-after": "1"}, 429: {"retry-after": "60"}}
_PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")


class BodyFormat(NamedTuple):
    """The encoding of a body, and the most bytes of one that we read."""

    name: str
    media_type: str
    bytes_max: int
    encode: Callable[[Any], bytes]
    decode: Callable[..., Any]


JSON = BodyFormat(
    "JSON", "application/json", HTTP_BODY_BYTES_MAX, msgspec.json.encode, msgspec.json.decode
)
MSGPACK = BodyFormat(
    "msgpack",
    MSGPACK_MEDIA_TYPE,
    ENGINE_REQUEST_BYTES_MAX,
    msgspec.msgpack.encode,
    msgspec.msgpack.decode,
)
"""For the engine of a space (api/engine.py)."""


# Answers ----------------------------------------------------------------------------------------


def reply(
    what: msgspec.Struct,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    body: BodyFormat = JSON,
) -> Response:
    return Response(
        body.encode(what),
        status,
        {"cache-control": "no-store", **(headers or {})},
        body.media_type,
    )


async def _error(_request: Request, error: Exception) -> Response:
    if isinstance(error, ClientError):
        status = STATUSES.get(error.reason, 400)
        headers = _CHALLENGE if status == 401 else _RETRY_LATER.get(status, {})
        return reply(ErrorBody(error.message), status, headers)
    assert isinstance(error, HTTPException)
    return reply(ErrorBody(error.detail), error.status_code, error.headers)


async def _disconnected(_request: Request, _error: Exception) -> Response:
    """Answer a client that has left in the middle of its request; nobody reads this."""
    return Response(status_code=400)


ERROR_HANDLERS: Mapping[Any, Any] = {
    ClientError: _error,
    HTTPException: _error,
    ClientDisconnect: _disconnected,
}


def resource(path: str, **endpoints: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return one route for all methods of a path, so that `Allow` names them for other methods."""

    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method](request)

    return Route(path, serve, methods=[*endpoints])


# Requests ---------------------------------------------------------------------------------------


def credentials_of(request: Request) -> HttpCredentials:
    """Return the credentials of a request, not checked yet. Refuse requests of web pages."""
    if "origin" in request.headers:
        raise HTTPException(403, "requests of web pages are not taken")
    host = "?" if request.client is None else request.client.host
    return HttpCredentials(*_name_and_password(request), host, _is_local(request))


def _name_and_password(request: Request) -> tuple[str | None, bytes | None]:
    """Return the name and password (RFC 7617), or None for both."""
    given = request.headers.get("authorization")
    if given is None:
        return None, None
    scheme, _, encoded = given.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        if not colon:
            raise ValueError
        return user.decode(), password
    except ValueError:
        raise HTTPException(
            401, "the Authorization header has to be Basic, of a name and a password", _CHALLENGE
        ) from None


def _is_local(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in _PROXY_HEADERS):
        return False
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def query_of(request: Request, kind: type[T]) -> T:
    """Return the query of the URL, read as `kind`."""
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    try:
        if len(names) != len(set(names)):
            raise msgspec.ValidationError("a name is there twice")
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise HTTPException(400, f"the query of the URL: {error}") from None


async def body_of(request: Request, kind: type[T], body: BodyFormat = JSON) -> T:
    """Return the body of a request, read as `kind`."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != body.media_type:
        raise HTTPException(
            415, f"the body has to be {body.name}, with content-type: {body.media_type}"
        )
    too_long = HTTPException(413, f"the body has more than {body.bytes_max:,} bytes")
    if int(request.headers.get("content-length", "0")) > body.bytes_max:
        raise too_long
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > body.bytes_max:
            raise too_long
    try:
        decoded: T = body.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body: {error}") from None
    return decoded
