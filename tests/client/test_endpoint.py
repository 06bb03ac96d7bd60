"""Contradictory options are refused before anything is sent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.client.endpoint import PORTS, ConnectionOptions
from dovetail.settings import DEFAULT_PORTS
from support.processes.client_commands import refusal, run


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--host", ""], "--host is empty"),
        (["--password", "x"], "give --user too"),
        (["--user", "a", "--password", "x", "--password-file", "y"], "two passwords"),
        (["--user", "a\0b"], "--user holds the null character"),
        (["--client-id", "x" * 65_536], "--client-id has more than 65,535 bytes"),
        (["--key", "x.key"], "--key goes with --certificate"),
        (["--will-payload", "gone"], "a will needs --will-topic"),
        (["--will-topic", "a/#"], "--will-topic: topic name 'a/#': '#' is a wildcard"),
        (["--mqtt", "3.1.1", "--session-expiry", "5"], "--session-expiry needs MQTT 5"),
        (["--user", "a", "--password-file", "/no/such/file"], "cannot read /no/such/file"),
        (["--ca", "/no/such/file"], "cannot read /no/such/file"),
        (["--ca", "/dev/null"], "/dev/null has no certificate in PEM form"),
        (["--certificate", "/no/such/file"], "cannot read /no/such/file"),
        (["--certificate", "/dev/null"], "cannot use /dev/null"),
    ],
)
def test_options_of_both_commands(options: list[str], expected: str) -> None:
    # Port 1 has no listener: an attempt to connect would be another error.
    assert expected in refusal(run("pub", "a", "b", "--port", "1", *options))
    assert expected in refusal(run("sub", "a", "--port", "1", *options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["a"], "there is nothing to publish"),
        (["a", "b", "--null"], "give one of a payload"),
        (["a", "b", "--stdin"], "give one of a payload"),
        (["a", "--lines", "--repeat", "2"], "--lines has many"),
        (["a", "--file", "/no/such/file"], "cannot read /no/such/file"),
        (["a/+", "b"], "cannot publish: topic name 'a/+': '+' is a wildcard"),
        (["", "b"], "it is empty"),
        (["a", "b", "--property", "unit"], "--property unit: it takes a name and a value"),
        (["a", "b", "--property", "unit=\0"], "--property holds the null character"),
        (["a", "b", "--attr", "lat"], "--attr lat: it takes a name and a value, as in lat=40.7."),
        (["a", "b", "--attr", "=4"], "--attr =4: it takes a name and a value"),
        (["a", "b", "--attr", "road=\0"], "--attr holds the null character"),
        (["a", "b", "--mqtt", "3.1.1", "--attr", "a=1"], "--attr needs MQTT 5, and this is MQTT 3"),
        (["a", "b", "--content-type", "\udcff"], "--content-type is not UTF-8"),
        (["a", "b", "--response-topic", "#"], "--response-topic: topic name '#'"),
        (["a", "b", "--correlation-data", "x" * 65_536], "--correlation-data has more than"),
        (["a", "b", "--mqtt", "3.1.1", "--property", "a=b"], "--property needs MQTT 5"),
        (["a", "b", "--mqtt", "3.1.1", "--expiry", "0"], "--expiry needs MQTT 5"),
    ],
)
def test_options_of_pub(options: list[str], expected: str) -> None:
    assert expected in refusal(run("pub", "--port", "1", *options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["a/#/b"], "cannot subscribe: topic filter 'a/#/b': '#' must be the last level"),
        (["a/#/b?x>1"], "cannot subscribe: topic filter 'a/#/b': '#' must be the last level"),
        (["?x>1&y=#"], "cannot subscribe: topic filter '': it is empty"),
        (["$share/g"], "a shared subscription is"),
        (["a", "--where", "x == '\0'"], "--where holds the null character"),
        (["$share/g/a", "--no-local"], "--no-local does not go with $share/g/a"),
        (["a", "--keep-session"], "--keep-session needs --client-id"),
        (["a", "--json", "--format", "hex"], "give --json or --format"),
        (["a", "-v", "--format", "raw"], "--verbose does not go with raw"),
        (["a", "--mqtt", "3.1.1", "--no-retained"], "--no-retained needs MQTT 5"),
        (["a", "--mqtt", "3.1.1", "--identifier", "1"], "--identifier needs MQTT 5"),
        (
            ["a", "--mqtt", "3.1.1", "--where", "x < 1"],
            "MQTT 3.1.1.\nThere the clause stands behind the topic filter, as in 'sensor/+/temper",
        ),
    ],
)
def test_options_of_sub(options: list[str], expected: str) -> None:
    assert expected in refusal(run("sub", "--port", "1", *options))


def test_a_clause_is_parsed_before_anything_is_sent() -> None:
    done = run("sub", "a", "--port", "1", "--where", "40 <= lat < 41 and !speed")
    assert done.returncode == 2
    assert done.errors.splitlines() == [
        "dovetail: error: where-clause: '!' has no meaning here; texts stand in quotes",
        "40 <= lat < 41 and !speed",
        "                   ^",
    ]


def test_ports_are_those_of_the_listeners() -> None:
    assert list(PORTS.values()) == [
        DEFAULT_PORTS[kind] for kind in ("tcp", "tls", "websocket", "secure-websocket")
    ]
    assert ConnectionOptions().address == "localhost:1883"
    assert ConnectionOptions(ca=Path("x")).address == "localhost:8883"
    assert ConnectionOptions(websocket=True).address == "localhost:8083"
    assert ConnectionOptions(websocket=True, insecure=True).chosen_port == 8084
    assert ConnectionOptions(host="::1", port=5).address == "[::1]:5"


def test_the_password_has_three_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"from the file \r\nand no more")
    monkeypatch.setitem(os.environ, "DOVETAIL_PASSWORD", "from the environment")
    assert ConnectionOptions(user="a").read_password() == "from the environment"
    assert ConnectionOptions(user="a", password="given").read_password() == "given"
    assert ConnectionOptions(user="a", password_file=file).read_password() == "from the file "
    assert ConnectionOptions().read_password() is None


def test_random_client_identifiers_are_short_and_differ() -> None:
    names = {ConnectionOptions().client_id_or_random() for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) <= 23 and name.isalnum() for name in names)
    assert ConnectionOptions(client_id="mine").client_id_or_random() == "mine"


def test_help_does_not_import_the_client() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dovetail", "pub", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "dovetail.cli" in imported
    assert not imported & {"dovetail.client", "dovetail.settings", "paho", "ssl"}
