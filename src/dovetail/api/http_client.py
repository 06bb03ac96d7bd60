"""A report from a node, over HTTP; or why there is none, and what to do."""

import base64
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from dovetail.api.engine import MEDIA_TYPE
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
"""What Starlette says of a page that there is not."""
_PLACE = "`dovetail up` says at its start where its HTTP is; --url takes that."

Report = TypeVar("Report")

Login = tuple[str, str]
"""A name and its password."""


Query = Mapping[str, str | Sequence[str]]


class NoAnswerError(DovetailError):
    """Nobody is there, or does not say anything: it may be better later."""


class RefusalError(DovetailError):
    """A node answers, and says no."""

    def __init__(self, message: str, *, hint: str | None = None, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Answer(NamedTuple):
    """What came, as it came."""

    body: bytes
    headers: Mapping[str, str]


class _Refusal(msgspec.Struct):
    error: str


def fetch(url: str, path: str, kind: type[Report], **query: str | Sequence[str]) -> Report:
    """What the node at `url` says there."""
    return fetch_as(None, url, path, kind, query)


def fetch_as(
    login: Login | None, url: str, path: str, kind: type[Report], query: Query | None = None
) -> Report:
    """The same, for who has a name."""
    return _read(_base(url), kind, fetch_bytes(login, url, path, query or {}).body)


def fetch_bytes(
    login: Login | None, url: str, path: str, query: Query, bytes_max: int = _BYTES_MAX
) -> Answer:
    """The same, as it comes."""
    base = _base(url)
    asked = f"{base.rstrip('/')}{path}"
    if query:
        asked += f"?{urllib.parse.urlencode(query, doseq=True)}"
    headers = _proof(login)
    return _ask(
        base,
        path,
        lambda: urllib.request.Request(asked, headers=headers),  # noqa: S310
        bytes_max,
    )


def post(
    url: str, path: str, what: msgspec.Struct, kind: type[Report], login: Login | None = None
) -> Report:
    """What the node at `url` says when it is told this."""
    base = _base(url)
    headers = {"content-type": "application/json", **_proof(login)}

    def request() -> urllib.request.Request:
        data = msgspec.json.encode(what)
        return urllib.request.Request(f"{base.rstrip('/')}{path}", data, headers)  # noqa: S310

    return _read(base, kind, _ask(base, path, request).body)


def post_packed(
    url: str,
    path: str,
    what: msgspec.Struct,
    kind: type[Report],
    login: Login | None = None,
    seconds_max: float = _SECONDS_MAX,
) -> Report:
    """The same as msgpack, both ways."""
    base = _base(url)
    headers = {"content-type": MEDIA_TYPE, **_proof(login)}
    data = msgspec.msgpack.encode(what)

    def request() -> urllib.request.Request:
        return urllib.request.Request(f"{base.rstrip('/')}{path}", data, headers)  # noqa: S310

    answer = _ask(base, path, request, seconds_max=seconds_max)
    try:
        return msgspec.msgpack.decode(answer.body, type=kind)
    except msgspec.DecodeError:
        raise _no_node(base) from None


def _proof(login: Login | None) -> dict[str, str]:
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
        raise _no_node(base) from None


def _ask(
    base: str,
    path: str,
    make: Callable[[], urllib.request.Request],
    bytes_max: int = _BYTES_MAX,
    seconds_max: float = _SECONDS_MAX,
) -> Answer:
    # A node is asked directly, whatever proxies there are for the world outside.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(make(), timeout=seconds_max) as response:
            return Answer(response.read(bytes_max), response.headers)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(base, path, error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        # urllib hides the cause behind an error of its own.
        cause = getattr(error, "reason", error)
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise NoAnswerError(f"no node answers at {base}: {why}.", hint=_PLACE) from None


def _refused(base: str, path: str, error: urllib.error.HTTPError) -> DovetailError:
    told = _sentence(error)
    if error.code == _LATER:
        return NoAnswerError(f"{told or f'the node at {base} is busy'}.")
    if told is not None:
        return RefusalError(f"{told}.", hint=_HINTS.get(error.code), status=error.code)
    if error.code == 400:
        return DovetailError(f"the node at {base} cannot be asked that: it is too long.")
    if error.code in {404, 405}:
        return DovetailError(
            f"what answers at {base} has no {path}.",
            hint=f"It is a matcher, an older Dovetail, or another program. {_PLACE}",
        )
    return DovetailError(f"the node at {base} answers with HTTP {error.code}.")


def _sentence(error: urllib.error.HTTPError) -> str | None:
    """What a node says of its refusal."""
    try:
        told = msgspec.json.decode(error.read(_BYTES_MAX), type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, http.client.HTTPException):
        return None
    return None if told in _STOCK else told


def _no_node(base: str) -> DovetailError:
    return DovetailError(f"what answers at {base} is no Dovetail of this version.", hint=_PLACE)
