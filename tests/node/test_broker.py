"""Who may see and change what through a node's HTTP, page by page."""

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
from dovetail.node.broker import Node
from dovetail.settings import Access, Archive, Http, Rule, Settings
from support.processes.broker_process import WAIT_SECONDS

USERS = {"anna": b"correct horse", "bert": b"battery staple"}
JSON = "application/json"
CLOSED = "HTTP is closed (403)"


class Page(NamedTuple):
    """A request, and what it is for."""

    path: str
    kind: str | None = None
    """Of its body; None: it reads."""


OPEN = [
    Page(path) for path in ("/", "/healthz", "/metrics", "/cluster", "/spaces", "/openapi.json")
]
"""What a node says of itself: numbers and names of nodes, nothing of what clients say."""

INSPECTED = [Page("/route?topic=a")]
"""What clients have subscribed to."""

ADMINISTERED = [
    Page("/archive"),
    Page("/archive/rows?after=0"),
    Page("/archive/subscriptions"),
    Page("/drain", JSON),
    Page("/plan", JSON),
    Page("/engine/subscriptions", MEDIA_TYPE),
    Page("/engine/deliveries", MEDIA_TYPE),
]
"""What clients publish, and what changes the cluster."""


class Asker(NamedTuple):
    user: str | None = None
    password: bytes = b""
    is_local: bool = True

    def headers(self) -> dict[str, str]:
        found = {} if self.is_local else {"x-forwarded-for": "192.0.2.1"}
        if self.user is not None:
            proof = base64.b64encode(self.user.encode() + b":" + self.password).decode()
            found["authorization"] = f"Basic {proof}"
        return found


NOBODY, FROM_AFAR = Asker(), Asker(is_local=False)
ANNA, BERT = (Asker(user, password) for user, password in USERS.items())
ANNA_FROM_AFAR = ANNA._replace(is_local=False)
EVERYBODY = [NOBODY, FROM_AFAR, ANNA, ANNA_FROM_AFAR, BERT]


@pytest.fixture(scope="module")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("users") / "users"
    for user, password in USERS.items():
        set_password(file, user, password)
    return str(file)


Answers = Mapping[tuple[str, Asker], tuple[int, bytes]]


def answers(
    folder: Path, access: Access, askers: Iterable[Asker] = EVERYBODY, stream_key: str = ""
) -> Answers:
    """Of a node with an archive, to everybody on every page."""

    def ask(port: int, page: Page, asker: Asker) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        headers = asker.headers()
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
            http=Http(port=0),
            access=access,
            archive=Archive(topics=("#",), folder=str(folder / "archive")),
        )
        node = Node(settings, stream_key=stream_key)
        try:
            await node.start()
            await node.start_http()
            assert node.http_address is not None
            _, port = node.http_address
            return {
                (page.path, asker): await asyncio.to_thread(ask, port, page, asker)
                for page in (*OPEN, *INSPECTED, *ADMINISTERED)
                for asker in askers
            }
        finally:
            await node.stop()

    return asyncio.run(work())


def check(found: Answers, pages: list[Page], expected: Callable[[Asker], int | None]) -> None:
    """`expected`: the status of a refusal; None: it is none."""
    for (path, asker), (status, body) in found.items():
        if path in {page.path for page in pages}:
            refusal = status if status in {401, 403} else None
            assert refusal == expected(asker), (path, asker, status, body)


@pytest.mark.parametrize("anonymous", ["loopback", "always"])
def test_where_every_client_may_do_everything_so_may_this_machine(
    tmp_path: Path, anonymous: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    found = answers(tmp_path, Access(anonymous=anonymous))  # type: ignore[arg-type]
    check(found, [*OPEN, *INSPECTED], lambda _: None)
    check(found, ADMINISTERED, lambda asker: None if asker.is_local else 403)
    assert CLOSED not in caplog.text


@pytest.mark.parametrize("is_by_rules", [False, True])
def test_with_users_or_rules_and_no_administrators_it_is_closed(
    tmp_path: Path, password_file: str, is_by_rules: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    access = Access(password_file=password_file)
    if is_by_rules:
        access = Access(rules=(Rule(subscribe=("public/#",)),))
    found = answers(tmp_path, access)
    check(found, OPEN, lambda _: None)
    check(found, [*INSPECTED, *ADMINISTERED], lambda _: 403)
    for (path, _), (status, body) in found.items():
        if status == 403:
            assert b"access.administrators" in body, path
    assert caplog.text.count(CLOSED) == 1
    for page in (*INSPECTED, *ADMINISTERED):
        assert f"/{page.path.split('/')[1].partition('?')[0]}" in caplog.text


def test_administrators_prove_their_name_wherever_they_are(
    tmp_path: Path, password_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    access = Access(password_file=password_file, administrators=("anna",))
    found = answers(tmp_path, access)
    check(found, OPEN, lambda _: None)
    refusals = {None: 401, "bert": 403, "anna": None}
    check(found, [*INSPECTED, *ADMINISTERED], lambda asker: refusals[asker.user])
    assert CLOSED not in caplog.text


def test_the_stream_that_was_started_with_a_broker_has_a_key(
    tmp_path: Path, password_file: str
) -> None:
    stream = Asker(STREAM_USER, b"the key")
    others = [Asker(STREAM_USER, b"another"), Asker(STREAM_USER), Asker("anna", b"the key")]
    access = Access(password_file=password_file)
    found = answers(tmp_path, access, [stream, *others], stream_key="the key")
    check(found, ADMINISTERED, lambda asker: None if asker is stream else 403)
    without = answers(tmp_path, access, [Asker(STREAM_USER)])
    check(without, ADMINISTERED, lambda _: 403)
