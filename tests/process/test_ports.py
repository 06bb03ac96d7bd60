"""Ports are reserved by binding them."""

import errno
import os
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from dovetail.process import ports
from support.brokers.wire_client import WireClient
from support.processes.broker_process import wait_until
from support.processes.fleet_process import FleetProcess, process_exists

LOOPBACK = "127.0.0.1"


def taken(host: str, port: int = 0) -> socket.socket:
    """As other programs have a port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def is_in_use(error: "pytest.ExceptionInfo[OSError]") -> bool:
    return error.value.errno == errno.EADDRINUSE


def test_a_bound_port_is_reserved_before_anybody_listens() -> None:
    with ExitStack() as stack:
        (bound,) = ports.bind(LOOPBACK, 0)
        stack.enter_context(bound)
        port = ports.port_of([bound])
        for other in (taken, ports.bind, ports.hold):
            with pytest.raises(OSError, match="in use") as caught:
                other(LOOPBACK, port)
            assert is_in_use(caught)
        ports.prepare([bound])
        bound.listen()
        with socket.create_connection((LOOPBACK, port)), bound.accept()[0] as accepted:
            # Connections that fade away do not keep the next life from the port.
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_a_held_port_can_be_bound_by_child_processes() -> None:
    (held,) = ports.hold(LOOPBACK, 0)
    port = ports.port_of([held])
    with held:
        for _ in range(2):  # it starts, and starts again
            with pytest.raises(OSError, match="in use"):
                taken(LOOPBACK, port)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((LOOPBACK, port))
            (ours,) = ports.bind(LOOPBACK, port, is_shared=True)
            with ours:
                ports.prepare([ours])
                ours.listen()
                socket.create_connection((LOOPBACK, port)).close()
                with pytest.raises(OSError, match="in use"):
                    ports.hold(LOOPBACK, port)


def test_a_host_stands_for_all_of_its_addresses() -> None:
    """As localhost may stand for 127.0.0.1 and ::1."""
    bound = ports.bind("", 0)
    families = {one.family for one in bound}
    assert len(families) == len(bound)
    assert families >= {socket.AF_INET}
    port = ports.port_of(bound)
    assert {one.getsockname()[1] for one in bound} == {port}
    ports.close(bound)
    for host in ("::1", LOOPBACK) if socket.AF_INET6 in families else (LOOPBACK,):
        with taken(host, port):
            with pytest.raises(OSError, match="in use"):
                ports.bind("", port)
            moved, why = ports.take("", port, may_move=True)
            assert why is not None
            assert ports.port_of(moved) != port
            ports.close(moved)


def test_the_next_free_one() -> None:
    with taken(LOOPBACK) as other:
        port = ports.port_of([other])
        with pytest.raises(OSError, match="in use"):
            ports.take(LOOPBACK, port, may_move=False)
        first, why = ports.take(LOOPBACK, port, may_move=True)
        second, _ = ports.take(LOOPBACK, port, may_move=True)
        assert why is not None
        assert ports.explain(why) == "the port is taken by another program"
        assert len({port, ports.port_of(first), ports.port_of(second)}) == 3
        ports.close([*first, *second])
    free, why = ports.take(LOOPBACK, 0, may_move=True)
    assert why is None
    ports.close(free)


def test_other_errors_are_raised_even_if_the_port_may_move() -> None:
    with pytest.raises(OSError, match="assign"):
        ports.take("192.0.2.1", 5, may_move=True)
    with pytest.raises(OSError, match="there is no port 65536"):
        ports.bind(LOOPBACK, 65_536)


def test_candidates() -> None:
    assert [*ports.candidates(0, 2)] == [0, 0]
    found = [*ports.candidates(5, 2)]
    assert (found[:3], found[-3:]) == ([5, 6, 7], [26, 0, 0])
    assert [*ports.candidates(65_535)] == [65_535, 0]
    assert 65_536 in ports.candidates(65_535, may_move=False)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("tcp", "--port"),
        ("websocket", 'kind = "websocket"'),
        ("tls", 'kind = "tls"'),
        ("http", r"\[http\]"),
        ("cluster", r"\[cluster\]"),
    ],
)
def test_advice_names_the_setting(kind: str, setting: str) -> None:
    assert re.search(setting, ports.advice(kind))
    assert ("--port" in ports.advice(kind)) == (kind == "tcp")


# Several nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["--brokers", "--workers"])
def test_nodes_start_although_the_default_ports_are_taken(tmp_path: Path, kind: str) -> None:
    """And no other program can take their ports, also while a node is away."""
    usual = (8083, 8080, 7883)
    with ExitStack() as stack:
        for port in usual:
            try:
                stack.enter_context(taken(LOOPBACK, port))
            except OSError:
                continue  # another program has it: as good
        fleet = stack.enter_context(FleetProcess(tmp_path, "up", kind, 2, "--port", 0))
        found = {port for what in ("WebSocket", "HTTP", "links") for port in fleet.ports(what)}
        assert len(found) == (6 if kind == "--brokers" else 5)
        assert not found & {*usual}
        found |= {*fleet.ports("MQTT")}
        first = fleet.children()[0]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not process_exists(first), "the end of a node")

        def is_back() -> bool:
            for port in found:
                with pytest.raises(OSError, match="in use"):
                    taken(LOOPBACK, port)
            return "is up again" in fleet.log()

        wait_until(is_back, "the next life of the node")
        for port in fleet.ports("MQTT"):
            WireClient(port).close()
