"""Commands at a real broker that requires a login."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.broker.auth.passwords import set_password
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess

CONFIGURATION = """
name = "one"
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[access]
password_file = "users"
"""
ADMINISTRATORS = 'administrators = ["anna"]\n'
COMMANDS = [("route", "a/b"), ("drain", "one")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("closed")
    set_password(folder / "users", "anna", b"secret")
    with BrokerProcess(folder, CONFIGURATION) as running:
        yield running


def said(broker: BrokerProcess, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    url = f"http://127.0.0.1:{broker.port_of('http')}"
    environment = {name: value for name, value in os.environ.items() if "PASSWORD" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *arguments, "--url", url],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=environment,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_what_is_closed_says_how_it_is_opened(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.wait_for_log("HTTP is closed (403) for /archive, /drain")
    for command in COMMANDS:
        code, words = said(broker, *command)
        assert code == 2
        assert "access.administrators in the broker's configuration names nobody" in words
        assert "--user NAME says who you are" in words
    assert said(broker, "status", "--once")[0] == 0
    assert said(broker, "spaces")[0] == 0

    broker.file.write_text(CONFIGURATION + ADMINISTRATORS)
    broker.reload()
    for command in COMMANDS:
        code, words = said(broker, *command)
        assert code == 2
        assert "an administrator's name and password are needed here" in words
        assert "--user NAME says who you are" in words
    password = tmp_path / "password"
    password.write_text("secret\n")
    login = ("--user", "anna", "--password-file", str(password))
    code, words = said(broker, "route", "a/b", *login)
    assert (code, "one (here): nobody has subscribed" in words) == (0, True)
    code, words = said(broker, "drain", "one", *login)
    assert (code, "one is a broker, and only matchers are drained" in words) == (2, True)
