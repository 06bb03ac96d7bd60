"""Messages by handle with broker processes, kill -9, and a plain HTTP client."""

import base64
import json
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dovetail.codec.packets import Publish
from dovetail.codec.properties import forwardable_properties
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until
from support.processes.fleet_process import FleetProcess

USERS = """
[[listeners]]
kind = "tcp"
port = 0

[http]
port = 0

[access]
anonymous = "never"
password_file = "users"

[[access.rules]]
user = "anna"
subscribe = ["anna/#"]

[[access.rules]]
publish = ["#"]
"""
SMALL = """
[[listeners]]
kind = "tcp"
port = 0

[http]
port = 0

[mqtt]
queue_messages_max = 5

[spaces.traffic]
topics = "traffic/#"
[spaces.traffic.dimensions]
speed = [0, 200]
"""
ANNA = ("anna", "correct horse")
BERT = ("bert", "battery staple")


def ask(
    port: int,
    method: str,
    path: str,
    body: object = None,
    login: tuple[str, str] | None = None,
) -> tuple[int, Any]:
    """The status, and what the answer says."""
    headers = {"content-type": "application/json"}
    if login is not None:
        headers["authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        None if body is None else json.dumps(body).encode(),
        headers,
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:  # noqa: S310
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


class Poller:
    """A handle at one HTTP port, or several in turn."""

    def __init__(
        self, port: int, *filters: str, login: tuple[str, str] | None = None, **fields: object
    ) -> None:
        self.port = port
        self.login = login
        status, made = self.ask("POST", "", {"filters": filters, **fields})
        assert status == 201, made
        self.handle: str = made["handle"]

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return ask(self.port, method, f"/subscriptions{path}", body, self.login)

    def poll(self, wait: int = 0) -> list[dict[str, Any]]:
        status, polled = self.ask("GET", f"/{self.handle}/messages?wait={wait}")
        assert status == 200, polled
        messages: list[dict[str, Any]] = polled["messages"]
        return messages

    def acknowledge(self, *messages: dict[str, Any]) -> None:
        ids = [message["id"] for message in messages]
        answer = self.ask("POST", f"/{self.handle}/acknowledgements", {"ids": ids})
        assert answer == (200, {"acknowledged": ids, "unknown": []})


def payloads(messages: list[dict[str, Any]]) -> list[str]:
    return [message["payload"] for message in messages]


def write_user(folder: Path, user: str, password: str) -> None:
    command = [sys.executable, "-m", "dovetail", "passwd", "--stdin", str(folder / "users"), user]
    subprocess.run(
        command, input=password, text=True, check=True, capture_output=True, timeout=WAIT_SECONDS
    )


def test_users_rules_and_kill_9_between_poll_and_acknowledgement(tmp_path: Path) -> None:
    for user, password in (ANNA, BERT):
        write_user(tmp_path, user, password)
    with BrokerProcess(tmp_path, USERS) as broker:
        port = broker.port_of("http")
        order = {"filters": ["anna/#"]}
        for login in (None, ("anna", "wrong"), ("nobody", "wrong")):
            assert ask(port, "POST", "/subscriptions", order, login)[0] == 401
        status, refused = ask(port, "POST", "/subscriptions", order, BERT)
        assert (status, refused) == (403, {"error": "'anna/#' is not allowed"})
        anna = Poller(port, "anna/#", login=ANNA)
        user, password = BERT
        with WireClient(broker.port, user=user, password=password.encode()) as publisher:
            assert publisher.publish("anna/1", b"1", 1) == 0
            assert publisher.publish("anna/2", b"2", 2) == 0
            assert publisher.publish("anna/3", b"3", 0) == 0
            wait_until(lambda: len(anna.poll()) == 3, "three messages")
            polled = anna.poll()
            assert ask(port, "GET", f"/subscriptions/{anna.handle}", None, BERT)[0] == 404
        anna.acknowledge(polled[1])
        broker.kill()
        broker.start()
        anna.port = broker.port_of("http")
        again = anna.poll()
        assert payloads(again) == ["1", "3"]
        assert [one["id"] for one in again] == [polled[0]["id"], polled[2]["id"]]
        assert all(one["duplicate"] for one in again)
        anna.acknowledge(polled[0], polled[2])
        assert anna.poll() == []
        assert anna.ask("DELETE", f"/{anna.handle}") == (204, None)
        assert anna.ask("GET", f"/{anna.handle}/messages")[0] == 404


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, SMALL) as process:
        yield process


@pytest.mark.parametrize("qos", [0, 1])
def test_a_poll_that_waits_is_woken_by_a_publication(broker: BrokerProcess, qos: int) -> None:
    poller = Poller(broker.port_of("http"), f"woken/{qos}")
    waiting_before = broker.metric("clients_connected")
    with ThreadPoolExecutor(1) as threads, WireClient(broker.port) as publisher:
        polling = threads.submit(poller.poll, 60)
        wait_until(lambda: broker.metric("clients_connected") == waiting_before + 2, "a poll")
        publisher.publish(f"woken/{qos}", b"up", qos)
        assert payloads(polling.result(WAIT_SECONDS)) == ["up"]


def test_queues_are_bounded_and_expire(broker: BrokerProcess) -> None:
    port = broker.port_of("http")
    poller = Poller(port, "bounded")
    brief = Poller(port, "bounded", expiry_seconds=1)
    with WireClient(broker.port) as publisher:
        for number in range(8):
            publisher.publish("bounded", str(number).encode(), 1)
    found = poller.poll()
    assert payloads(found) == ["0", "1", "2", "3", "4"]
    poller.acknowledge(*found)
    assert poller.poll() == []
    wait_until(lambda: broker.metric("sessions_expired_total") >= 1, "the end of a handle")
    assert brief.ask("GET", f"/{brief.handle}/messages")[0] == 404


def test_a_where_clause(broker: BrokerProcess) -> None:
    poller = Poller(broker.port_of("http"), "traffic/#", where="speed < 25")
    with WireClient(broker.port) as publisher:
        for speed in (10, 30):
            properties = forwardable_properties(user=(("speed", str(speed)),))
            publisher.send(Publish(b"traffic/x", b"%d" % speed, properties=properties))
        publisher.publish("traffic/y", b"no attributes", 1)
    (message,) = poller.poll(30)
    assert (message["payload"], message["user_properties"]) == ("10", [["speed", "10"]])


def test_a_failing_disk_is_reported_and_loses_nothing(broker: BrokerProcess) -> None:
    poller = Poller(broker.port_of("http"), "disk")
    with WireClient(broker.port) as publisher:
        publisher.publish("disk", b"1", 1)
        publisher.publish("disk", b"2", 1)
    first, second = poller.poll()
    limits = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        ids = {"ids": [first["id"]]}
        status, refused = poller.ask("POST", f"/{poller.handle}/acknowledgements", ids)
        assert (status, "data folder" in refused["error"]) == (503, True)
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, limits)
    wait_until(lambda: broker.health()[0] == 200, "a disk that takes writes again")
    assert [one["id"] for one in poller.poll()] == [second["id"]]


def test_polls_at_two_brokers_read_one_queue(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    file.write_text(
        '[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nport = 0\n[cluster]\nport = 0\n'
    )
    with FleetProcess(tmp_path, "up", "--brokers", 2, "--config", file) as brokers:
        first, second = brokers.ports("HTTP")
        poller = Poller(first, "t/#")
        with WireClient(brokers.ports("MQTT")[1]) as publisher:
            for number in range(3):
                publisher.publish("t/x", str(number).encode(), 1)
            seen = poller.poll(30)
            while len(seen) < 3:
                seen = poller.poll(30)
            poller.acknowledge(seen[0])
            poller.port = second
            moved = poller.poll(30)
            while len(moved) < 2:
                moved = poller.poll(30)
            assert [(one["payload"], one["id"]) for one in moved] == [
                (one["payload"], one["id"]) for one in seen[1:]
            ]
            poller.acknowledge(*moved)
            publisher.publish("t/y", b"3", 0)
            assert payloads(poller.poll(30)) == ["3"]
            poller.port = first
            assert payloads(poller.poll(30)) == ["3"]
