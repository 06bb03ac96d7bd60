"""Sends requests to a node over HTTP; errors say why there is no answer, and what to do."""

import base64
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from dovetail.api.engine import MEDIA_TYPE
from dovetail.api.handles import ErrorBody
from dovetail.errors import DovetailError

_SECONDS_MAX = 10.0
_BYTES_MAX = 64 << 20
_LOGIN = (
    "--user NAME says who you are, and --password-file or DOVETAIL_PASSWORD proves it; Spark's "
    "source has the options user and password."
)
_ADMINISTRATORS = (
    "access.administrators in the broker's configuration names users who may, of those in its "
    f"access.password_file. {_LOGIN}"
)
_HINTS = {401: _LOGIN, 403: _ADMINISTRATORS}
_LATER = 503
_STOCK = ("Not Found", "Method Not Allowed")
"""The texts of Starlette for a page or method that does not exist."""
_ADDRESS_HINT = "`dovetail up` says at its start where its HTTP is; --url takes that."

Report = TypeVar("Report")

Login = tuple[str, str]
"""A name and its password."""


Query = Mapping[str, str | Sequence[str]]


class NoAnswerError(DovetailError):
    """No node answers, or it is busy. A later request may succeed."""


class RefusalError(DovetailError):
    """A node refuses the request."""

    def __init__(self, message: str, *, hint: str | None = None, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class HttpAnswer(NamedTuple):
    """The body and headers of an answer."""

    body: bytes
    headers: Mapping[str, str]


def fetch(url: str, path: str, kind: type[Report], **query: str | Sequence[str]) -> Report:
    """Return the report at `path` of the node at `url`. Anonymous users only."""
    return fetch_as(None, url, path, kind, query)


def fetch_as(
    login: Login | None, url: str, path: str, kind: type[Report], query: Query | None = None
) -> Report:
    """Return the report at `path` of the node at `url`, with a login if there is one."""
    return _read(_base(url), kind, fetch_bytes(login, url, path, query or {}).body)


def fetch_bytes(
    login: Login | None, url: str, path: str, query: Query, bytes_max: int = _BYTES_MAX
) -> HttpAnswer:
    """Return the undecoded answer at `path` of the node at `url`."""
    base = _base(url)
    address = f"{base.rstrip('/')}{path}"
    if query:
        address += f"?{urllib.parse.urlencode(query, doseq=True)}"
    headers = _authorization(login)
    return _ask(
        base,
        path,
        lambda: urllib.request.Request(address, headers=headers),  # noqa: S310
        bytes_max,
    )


def post(
    url: str, path: str, what: msgspec.Struct, kind: type[Report], login: Login | None = None
) -> Report:
    """Send `what` as JSON to the node at `url`, and return its answer."""
    base = _base(url)
    headers = {"content-type": "application/json", **_authorization(login)}

    def request() -> urllib.request.Request:
        data = msgspec.json.encode(what)
        return urllib.request.Request(f"{base.rstrip('/')}{path}", data, headers)  # noqa: S310

    return _read(base, kind, _ask(base, path, request).body)


def post_msgpack(
    url: str,
    path: str,
    what: msgspec.Struct,
    kind: type[Report],
    login: Login | None = None,
    seconds_max: float = _SECONDS_MAX,
) -> Report:
    """Send `what` as msgpack to the node at `url`, and return its answer, also msgpack."""
    base = _base(url)
    headers = {"content-type": MEDIA_TYPE, **_authorization(login)}
    data = msgspec.msgpack.encode(what)

    def request() -> urllib.request.Request:
        return urllib.request.Request(f"{base.rstrip('/')}{path}", data, headers)  # noqa: S310

    answer = _ask(base, path, request, seconds_max=seconds_max)
    try:
        return msgspec.msgpack.decode(answer.body, type=kind)
    except msgspec.DecodeError:
        raise _not_a_node(base) from None


def _authorization(login: Login | None) -> dict[str, str]:
    if login is None:
        return {}
    proof = base64.b64encode(":".join(login).encode()).decode()
    return {"authorization": f"Basic {proof}"}


def _base(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def _read(base: str, kind: type[Report], body: bytes) -> Report:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        raise _not_a_node(base) from None


def _ask(
    base: str,
    path: str,
    make: Callable[[], urllib.request.Request],
    bytes_max: int = _BYTES_MAX,
    seconds_max: float = _SECONDS_MAX,
) -> HttpAnswer:
    # Nodes are asked directly, even if the environment names a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(make(), timeout=seconds_max) as response:
            return HttpAnswer(response.read(bytes_max), response.headers)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(base, path, error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        # urllib hides the cause behind an error of its own.
        cause = getattr(error, "reason", error)
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise NoAnswerError(f"no node answers at {base}: {why}.", hint=_ADDRESS_HINT) from None


def _refused(base: str, path: str, error: urllib.error.HTTPError) -> DovetailError:
    sentence = _sentence(error)
    if error.code == _LATER:
        return NoAnswerError(f"{sentence or f'the node at {base} is busy'}.")
    if sentence is not None:
        return RefusalError(f"{sentence}.", hint=_HINTS.get(error.code), status=error.code)
    if error.code == 400:
        return DovetailError(f"the node at {base} cannot be asked that: it is too long.")
    if error.code in {404, 405}:
        return DovetailError(
            f"what answers at {base} has no {path}.",
            hint=f"It is a matcher, an older Dovetail, or another program. {_ADDRESS_HINT}",
        )
    return DovetailError(f"the node at {base} answers with HTTP {error.code}.")


def _sentence(error: urllib.error.HTTPError) -> str | None:
    """Return the sentence with which a node explains a refusal; None if there is none."""
    try:
        sentence = msgspec.json.decode(error.read(_BYTES_MAX), type=ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, http.client.HTTPException):
        return None
    return None if sentence in _STOCK else sentence


def _not_a_node(base: str) -> DovetailError:
    return DovetailError(
        f"what answers at {base} is no Dovetail of this version.", hint=_ADDRESS_HINT
    )
