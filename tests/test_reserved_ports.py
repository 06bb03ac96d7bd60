"""Ports that tests reserve: no other server, client or reservation gets them."""

import asyncio
import contextlib
import multiprocessing
import socket
import struct
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import pytest
import uvloop

from support.processes.ports import ReservedPort, ReservedPorts

IP_LOCAL_PORT_RANGE = 51
LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def test_a_reserved_port_is_silent_and_exclusive() -> None:
    with ReservedPort() as reserved:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, reserved.port))
        with pytest.raises(OSError, match="in use"):
            ReservedPort(reserved.port)
    ReservedPort(reserved.port).close()


def test_a_reservation_ends_when_it_is_forgotten() -> None:
    reserved = ReservedPort()
    port = reserved.port
    del reserved
    ReservedPort(port).close()


def test_a_server_comes_back_as_often_as_it_likes() -> None:
    with ReservedPort() as reserved:
        address = ("127.0.0.1", reserved.port)
        for _ in range(3):
            with (
                socket.create_server(address) as server,
                socket.create_connection(address) as client,
                server.accept()[0] as accepted,
            ):
                accepted.sendall(b"here")
                assert client.recv(4) == b"here"
                with pytest.raises(OSError, match="in use"):
                    socket.create_server(address)


@LOOPS
def test_a_loop_listens_at_a_reserved_port(make_loop: type[asyncio.AbstractEventLoop]) -> None:
    async def serve(port: int) -> None:
        for _ in range(2):
            server = await asyncio.get_running_loop().create_server(
                asyncio.Protocol, "127.0.0.1", port
            )
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            server.close()

    with ReservedPort() as reserved, asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(serve(reserved.port))


def test_workers_share_a_reserved_port() -> None:
    with ReservedPort() as reserved, ExitStack() as workers:
        for _ in range(2):
            address = ("127.0.0.1", reserved.port)
            workers.enter_context(socket.create_server(address, reuse_port=True))


def test_consecutive_ports() -> None:
    with ReservedPorts(5) as reserved:
        for port in range(reserved.first, reserved.first + 5):
            with pytest.raises(OSError, match="in use"):
                ReservedPort(port)
            with socket.create_server(("127.0.0.1", port)):
                pass
    with ReservedPorts(1) as one, pytest.raises(OSError, match="in use"):
        ReservedPort(one.first)


@pytest.mark.parametrize("reuses", [False, True])
def test_the_system_never_assigns_reserved_ports(reuses: bool) -> None:
    """A client does not get one, nor a server that asks for any port."""
    with ReservedPorts(4) as reserved, socket.create_server(("127.0.0.1", 0)) as server:
        ports = range(reserved.first, reserved.first + 4)
        with choosing_from(ports, reuses=reuses) as client:
            with contextlib.suppress(OSError):  # there is no other port
                client.connect(server.getsockname())
            assert client.getsockname()[1] not in ports
        with choosing_from(ports, reuses=reuses) as other:
            with contextlib.suppress(OSError):
                other.bind(("127.0.0.1", 0))
            assert other.getsockname()[1] not in ports


def choosing_from(ports: range, *, reuses: bool) -> socket.socket:
    """Make a socket whose port the system chooses from these (Linux 6.3) or from all."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuses))
    with contextlib.suppress(OSError):
        first_and_last = struct.pack("I", ports[0] | ports[-1] << 16)
        made.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, first_and_last)
    return made


def hold_many(rounds: int) -> str:
    """Hold single ports and blocks in each round, and serve at each; return the errors."""
    for _ in range(rounds):
        with ExitStack() as stack:
            ports = [stack.enter_context(ReservedPort()).port for _ in range(20)]
            for _ in range(5):
                first = stack.enter_context(ReservedPorts(3)).first
                ports += range(first, first + 3)
            if len({*ports}) != len(ports):
                return f"a port twice: {sorted(ports)}"
            for port in ports * 2:
                address = ("127.0.0.1", port)
                try:
                    with socket.create_server(address), socket.create_connection(address):
                        pass
                except OSError as error:
                    return f"{port}: {error}"
    return ""


def test_several_processes_never_meet() -> None:
    processes = 4
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        assert [*pool.map(hold_many, [10] * processes)] == [""] * processes
