"""HTTP of a real broker, with raw sockets that break the rules."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from dovetail.web.uvicorn_server import CONNECTIONS_MAX
from support.brokers.flooding import Flood
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until

SLOW = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Dribble: "
ATTEMPTS_MAX = 20
"""Of a request, one right after the other, while slow connections hold everything else."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    listener = '[[listeners]]\nkind = "tcp"\nport = 0\n'
    with BrokerProcess(folder, f"{listener}[http]\nport = 0\npolls_max = 0\n") as running:
        yield running
        assert "Traceback" not in running.log()


def connected(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port_of("http")), WAIT_SECONDS)


def read_all(connection: socket.socket) -> bytes:
    """To the end of the connection."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def is_healthy(broker: BrokerProcess) -> bool:
    try:
        return broker.health()[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_slow_connections_leave_the_health_page_reachable(broker: BrokerProcess) -> None:
    with Flood([broker.port_of("http")], 4 * CONNECTIONS_MAX, SLOW) as flood:
        wait_until(lambda: flood.closed > CONNECTIONS_MAX, "all slots are taken")
        assert any(is_healthy(broker) for _ in range(ATTEMPTS_MAX))


def test_a_request_with_two_lengths_ends_the_connection(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.sendall(
            b"POST /subscriptions HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_client_that_leaves_within_its_body_leaves_no_trace(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.sendall(
            b"POST /subscriptions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")  # it waits for the body
        connection.sendall(b"{")
    assert is_healthy(broker)
    # The fixture looks at the log.


def test_delete_is_among_the_methods_that_are_allowed(broker: BrokerProcess) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", broker.port_of("http"))) as connection:
        connection.request("PUT", "/subscriptions/x")
        answer = connection.getresponse()
        assert answer.status == 405
        allowed = answer.headers["allow"]
        assert allowed is not None
        assert set(allowed.split(", ")) == {"GET", "HEAD", "DELETE"}
