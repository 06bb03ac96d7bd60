"""Permissions for each HTTP page of a node."""

import asyncio
import base64
import http.client
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from dovetail.api.engine import MEDIA_TYPE
from dovetail.broker.auth.passwords import set_password
from dovetail.limits import STREAM_USER
from dovetail.node.broker import BrokerNode
from dovetail.settings import AccessRule, AccessSettings, ArchiveSettings, HttpSettings, Settings
from support.processes.broker_process import WAIT_SECONDS

USERS = {"anna": b"correct horse", "bert": b"battery staple"}
JSON = "application/json"
CLOSED = "HTTP is closed (403)"


class Page(NamedTuple):
    """A request for one page."""

    path: str
    kind: str | None = None
    """The media type of its body; None: a GET."""


OPEN = [
    Page(path) for path in ("/", "/healthz", "/metrics", "/cluster", "/spaces", "/openapi.json")
]
"""Pages for everybody: numbers and names of nodes, no data of clients."""

INSPECTED = [Page("/route?topic=a")]
"""Pages with the subscriptions of clients."""

ADMINISTERED = [
    Page("/archive"),
    Page("/archive/rows?after=0"),
    Page("/archive/subscriptions"),
    Page("/drain", JSON),
    Page("/plan", JSON),
    Page("/engine/subscriptions", MEDIA_TYPE),
    Page("/engine/deliveries", MEDIA_TYPE),
]
"""Pages with publications, and requests that change the cluster."""


class User(NamedTuple):
    user: str | None = None
    password: bytes = b""
    is_local: bool = True

    def headers(self) -> dict[str, str]:
        found = {} if self.is_local else {"x-forwarded-for": "192.0.2.1"}
        if self.user is not None:
            proof = base64.b64encode(self.user.encode() + b":" + self.password).decode()
            found["authorization"] = f"Basic {proof}"
        return found


ANONYMOUS, REMOTE = User(), User(is_local=False)
ANNA, BERT = (User(user, password) for user, password in USERS.items())
ANNA_REMOTE = ANNA._replace(is_local=False)
EVERYBODY = [ANONYMOUS, REMOTE, ANNA, ANNA_REMOTE, BERT]


@pytest.fixture(scope="module")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("users") / "users"
    for user, password in USERS.items():
        set_password(file, user, password)
    return str(file)


Answers = Mapping[tuple[str, User], tuple[int, bytes]]


def answers(
    folder: Path, access: AccessSettings, users: Iterable[User] = EVERYBODY, stream_key: str = ""
) -> Answers:
    """Return the answers of a node with an archive to each user for each page."""

    def ask(port: int, page: Page, user: User) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        headers = user.headers()
        if page.kind is None:
            connection.request("GET", page.path, headers=headers)
        else:
            body = json.dumps({"name": "one"}) if page.kind == JSON else b""
            connection.request("POST", page.path, body, {"content-type": page.kind, **headers})
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    async def work() -> Answers:
        settings = Settings(
            name="one",
            data=str(folder / "data"),
            listeners=(),
            http=HttpSettings(port=0),
            access=access,
            archive=ArchiveSettings(topics=("#",), folder=str(folder / "archive")),
        )
        node = BrokerNode(settings, stream_key=stream_key)
        try:
            await node.start()
            await node.start_http()
            assert node.http_address is not None
            _, port = node.http_address
            return {
                (page.path, user): await asyncio.to_thread(ask, port, page, user)
                for page in (*OPEN, *INSPECTED, *ADMINISTERED)
                for user in users
            }
        finally:
            await node.stop()

    return asyncio.run(work())


def check(found: Answers, pages: list[Page], expected: Callable[[User], int | None]) -> None:
    """`expected`: the status of a refusal; None: the request is accepted."""
    for (path, user), (status, body) in found.items():
        if path in {page.path for page in pages}:
            refusal = status if status in {401, 403} else None
            assert refusal == expected(user), (path, user, status, body)


@pytest.mark.parametrize("anonymous", ["loopback", "always"])
def test_local_users_may_administer_if_clients_are_not_restricted(
    tmp_path: Path, anonymous: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    found = answers(tmp_path, AccessSettings(anonymous=anonymous))  # type: ignore[arg-type]
    check(found, [*OPEN, *INSPECTED], lambda _: None)
    check(found, ADMINISTERED, lambda user: None if user.is_local else 403)
    assert CLOSED not in caplog.text


@pytest.mark.parametrize("is_by_rules", [False, True])
def test_nobody_may_administer_with_users_or_rules_and_no_administrators(
    tmp_path: Path, password_file: str, is_by_rules: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    access = AccessSettings(password_file=password_file)
    if is_by_rules:
        access = AccessSettings(rules=(AccessRule(subscribe=("public/#",)),))
    found = answers(tmp_path, access)
    check(found, OPEN, lambda _: None)
    check(found, [*INSPECTED, *ADMINISTERED], lambda _: 403)
    for (path, _), (status, body) in found.items():
        if status == 403:
            assert b"access.administrators" in body, path
    assert caplog.text.count(CLOSED) == 1
    for page in (*INSPECTED, *ADMINISTERED):
        assert f"/{page.path.split('/')[1].partition('?')[0]}" in caplog.text


def test_administrators_authenticate_from_any_machine(
    tmp_path: Path, password_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    access = AccessSettings(password_file=password_file, administrators=("anna",))
    found = answers(tmp_path, access)
    check(found, OPEN, lambda _: None)
    refusals = {None: 401, "bert": 403, "anna": None}
    check(found, [*INSPECTED, *ADMINISTERED], lambda user: refusals[user.user])
    assert CLOSED not in caplog.text


def test_the_stream_authenticates_with_a_key(tmp_path: Path, password_file: str) -> None:
    stream = User(STREAM_USER, b"the key")
    others = [User(STREAM_USER, b"another"), User(STREAM_USER), User("anna", b"the key")]
    access = AccessSettings(password_file=password_file)
    found = answers(tmp_path, access, [stream, *others], stream_key="the key")
    check(found, ADMINISTERED, lambda user: None if user is stream else 403)
    without = answers(tmp_path, access, [User(STREAM_USER)])
    check(without, ADMINISTERED, lambda _: 403)
