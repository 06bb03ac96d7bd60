"""Who may change the cluster through a node's HTTP."""

import asyncio
import base64
import http.client
import json
from pathlib import Path

import pytest

from dovetail.broker.passwords import set_password
from dovetail.node import Node
from dovetail.settings import Access, Http, Settings

USERS = {"anna": b"correct horse", "bert": b"battery staple"}
FROM_AFAR = {"x-forwarded-for": "192.0.2.1"}


@pytest.fixture(scope="module")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("users") / "users"
    for user, password in USERS.items():
        set_password(file, user, password)
    return str(file)


def statuses(folder: Path, access: Access) -> list[int]:
    """Of nobody, anna and bert, each from this machine and from afar.

    Who may is told that the node is a broker, which is not drained: 409.
    """

    def ask(port: int, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"content-type": "application/json", **headers}
        connection.request("POST", "/drain", json.dumps({"name": "one"}), headers)
        response = connection.getresponse()
        assert "error" in json.loads(response.read())
        connection.close()
        return response.status

    async def work() -> list[int]:
        settings = Settings(
            name="one", data=str(folder), listeners=(), http=Http(port=0), access=access
        )
        node = Node(settings)
        try:
            await node.start()
            await node.start_http()
            assert node.http_address is not None
            _, port = node.http_address
            return [
                await asyncio.to_thread(ask, port, {**login, **way})
                for login in ({}, *map(login_of, USERS))
                for way in ({}, FROM_AFAR)
            ]
        finally:
            await node.stop()

    return asyncio.run(work())


def login_of(user: str) -> dict[str, str]:
    proof = base64.b64encode(user.encode() + b":" + USERS[user]).decode()
    return {"authorization": f"Basic {proof}"}


def test_without_administrators_it_is_for_this_machine(tmp_path: Path) -> None:
    assert statuses(tmp_path, Access()) == [409, 403, 409, 403, 409, 403]
    everybody = Access(anonymous="always")
    assert statuses(tmp_path, everybody) == [409, 403, 409, 403, 409, 403]


def test_and_for_who_may_log_in(tmp_path: Path, password_file: str) -> None:
    access = Access(anonymous="never", password_file=password_file)
    assert statuses(tmp_path, access) == [401, 403, 409, 403, 409, 403]


def test_administrators_have_to_prove_their_name_wherever_they_are(
    tmp_path: Path, password_file: str
) -> None:
    access = Access(password_file=password_file, administrators=("anna",))
    assert statuses(tmp_path, access) == [401, 401, 409, 409, 403, 403]
