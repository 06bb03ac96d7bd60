"""The written log of a process."""

import contextlib
import io
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.process.logs import about, set_up_logging
from support.brokers.wire_client import WireClient
from support.certificates import Authority
from support.processes.broker_process import TCP_AND_TLS, WAIT_SECONDS, BrokerProcess, wait_until

log = logging.getLogger("dovetail.test")
_BEGINS = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (WARNING|ERROR  |INFO   |DEBUG  ) me: "

Written = Callable[[], list[str]]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """Lines of the log so far, without their time."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    set_up_logging("info", "me")
    yield lambda: [re.sub(_BEGINS, r"\1: ", line) for line in stream.getvalue().splitlines()]
    end()
    ours = logging.getLogger("dovetail")
    ours.propagate = True
    ours.setLevel(logging.NOTSET)


def end() -> None:
    """As the process does."""
    for logger in (logging.getLogger("dovetail"), logging.getLogger()):
        for handler in [*logger.handlers]:
            if type(handler).__module__ == "dovetail.process.logs":
                logger.removeHandler(handler)
                handler.close()


def test_repeats_are_counted(written: Written) -> None:
    for number in range(1_000):
        log.warning("refused %d", number)
        log.info("refused %d", number)
    assert len(written()) < 100
    assert written()[:2] == ["WARNING: refused 0", "INFO   : refused 0"]
    end()
    for level in ("WARNING", "INFO   "):
        counts = [
            1 + int(found[1] or 0)
            for line in written()
            if (
                found := re.match(rf"{level}: refused \d+(?: ... and (\d+) more like it.*)?$", line)
            )
        ]
        assert sum(counts) == 1_000
    assert written()[-1].endswith("more like it in the last second")


def test_a_count_is_written_after_the_last_line(written: Written) -> None:
    for number in range(3):
        log.warning("refused %d", number)
    expected = "WARNING: refused 2 ... and 1 more like it in the last second"
    wait_until(lambda: expected in written(), "the rest of the second")


def test_lines_about_different_subjects_are_different_kinds(written: Written) -> None:
    for name in ("b1", "b2", "b1", "b3"):
        log.info("lost %s", name, extra=about(name))
    assert written() == ["INFO   : lost b1", "INFO   : lost b2", "INFO   : lost b3"]


def test_debug_lines_are_all_written(written: Written) -> None:
    log.setLevel("DEBUG")
    for number in range(3):
        log.debug("connected %d", number)
    log.setLevel("NOTSET")
    assert written() == [f"DEBUG  : connected {number}" for number in range(3)]


def test_lines_of_other_libraries_are_counted_too(written: Written) -> None:
    for number in range(50):
        context = f"Fatal error on transport\nprotocol: <{number}>"
        logging.getLogger("asyncio").error(context)
    assert written()[0] == "ERROR  : Fatal error on transport"
    assert len([line for line in written() if "Fatal" in line]) < 10


def test_no_line_can_be_forged(written: Written) -> None:
    forged = "2026-01-01 00:00:00 WARNING me: forged"
    log.warning("client %s came", f"x\n{forged}\r{forged}\u2028{forged}\x1b[2J")
    try:
        raise ValueError(f"bad\n{forged}")
    except ValueError:
        log.exception("a bug of %s", "y")
    lines = written()
    assert [line for line in lines if not line.startswith("    ")] == [
        "WARNING: client x",
        "ERROR  : a bug of y",
    ]
    assert rf"    {forged}\x0d{forged}\u2028{forged}\x1b[2J came" in lines
    assert f"    {forged}" in lines


# A broker under fire ------------------------------------------------------------------------------

LISTENERS = f"""
{TCP_AND_TLS}
[[listeners]]
kind = "websocket"
port = 0
[http]
port = 0
[cluster]
enabled = true
port = 0
"""
BAD_CONNECTIONS = 300


def test_bad_connections_are_counted_on_every_port(tmp_path: Path) -> None:
    Authority(tmp_path).issue("server")
    with BrokerProcess(tmp_path, LISTENERS) as broker:
        links = int(re.search(r"node --join \S+:(\d+)", broker.printed())[1])  # type: ignore[index]
        kinds = ("tcp", "tls", "websocket", "http")
        ports = [*(broker.port_of(kind) for kind in kinds), links]
        for _ in range(BAD_CONNECTIONS):
            for port in ports:
                send_rubbish(port)
        broker.stop()  # what was counted last is written
        lines = broker.log().splitlines()
    assert "Traceback" not in broker.log()
    bad = [line for line in lines if "refused a client from 127.0.0.1:" in line]
    assert sum(map(stands_for, bad)) == 2 * BAD_CONNECTIONS, "of TCP, and of TLS"
    assert len(bad) < BAD_CONNECTIONS / 2
    assert len(lines) < BAD_CONNECTIONS, "of five ports together"


def send_rubbish(port: int) -> None:
    """A CONNECT with a wrong flag, and wait until the other side has had enough of it."""
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as client:
        client.sendall(b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x3c\x00\x00")
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while client.recv(65_536):
                pass


def stands_for(line: str) -> int:
    found = re.search(r" \.\.\. and ([\d,]+) more like it in the last second$", line)
    return 1 + (int(found[1].replace(",", "")) if found else 0)


def test_a_client_cannot_write_the_log(tmp_path: Path) -> None:
    name = "me\n2026-01-01 00:00:00 WARNING all is well\x1b[2J"
    with BrokerProcess(tmp_path) as broker, WireClient(broker.port, name) as client:
        client.socket.sendall(b"\xf0\x00")  # no packet of a client
        assert client.receive_end() is not None
        broker.wait_for_log("disconnected")
        broker.stop()
    (line,) = broker.log().splitlines()
    assert r"'me\n2026-01-01 00:00:00 WARNING all is well\x1b[2J'" in line
