"""A report from a node, over HTTP; or why there is none, and what to do."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from typing import TypeVar

import msgspec

from dovetail.errors import DovetailError

_SECONDS_MAX = 10.0
_BYTES_MAX = 64 << 20
_PLACE = "`dovetail up` says at its start where its HTTP is; --url takes that."

Report = TypeVar("Report")


class _Refusal(msgspec.Struct):
    error: str


def fetch(url: str, path: str, kind: type[Report], **query: str) -> Report:
    """What the node at `url` says there."""
    base = url if "://" in url else f"http://{url}"
    asked = f"{base.rstrip('/')}{path}"
    if query:
        asked += f"?{urllib.parse.urlencode(query)}"
    body = _get(base, path, asked)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        raise _no_node(base) from None


def _get(base: str, path: str, asked: str) -> bytes:
    # A node is asked directly, whatever proxies there are for the world outside.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=_SECONDS_MAX) as response:
            body: bytes = response.read(_BYTES_MAX)
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(base, path, error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        # urllib hides the cause behind an error of its own.
        cause = getattr(error, "reason", error)
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise DovetailError(f"no node answers at {base}: {why}.", hint=_PLACE) from None


def _refused(base: str, path: str, error: urllib.error.HTTPError) -> DovetailError:
    if error.code == 400:
        try:
            told = msgspec.json.decode(error.read(_BYTES_MAX), type=_Refusal)
        except msgspec.DecodeError:
            return DovetailError(f"the node at {base} cannot be asked that: it is too long.")
        return DovetailError(f"{told.error}.")
    if error.code == 404:
        return DovetailError(
            f"what answers at {base} has no {path}.",
            hint=f"It is a matcher, an older Dovetail, or another program. {_PLACE}",
        )
    return DovetailError(f"the node at {base} answers with HTTP {error.code}.")


def _no_node(base: str) -> DovetailError:
    return DovetailError(f"what answers at {base} is no Dovetail of this version.", hint=_PLACE)
