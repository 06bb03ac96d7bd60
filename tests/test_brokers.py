"""`up --brokers`, `up --workers` and `node` as a user meets them, with real processes."""

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.cluster.limits import MEMBER_HANDSHAKES_MAX, STRANGER_HANDSHAKES_MAX
from dovetail.codec.packets import MQTT_3_1_1, Disconnect
from dovetail.errors import ReasonCode
from support.brokers.flooding import Flood
from support.brokers.wire_client import WireClient, certificate_serial
from support.certificates import Authority
from support.processes.broker_process import TCP_AND_TLS, WAIT_SECONDS, wait_until
from support.processes.fleet_process import FleetProcess, process_exists
from support.processes.ports import ReservedPort, ReservedPorts

FLOODED = 2 * (MEMBER_HANDSHAKES_MAX + STRANGER_HANDSHAKES_MAX)
"""Enough connections to fill two nodes."""


def refusal(folder: Path, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


def passes(subscriber_port: int, publisher_port: int, topic: str) -> None:
    with WireClient(subscriber_port) as subscriber, WireClient(publisher_port) as publisher:
        subscriber.subscribe(topic, 1)
        assert publisher.publish(topic, b"hello", 1) == 0
        assert subscriber.receive_message().payload == b"hello"


def any_ports(folder: Path) -> tuple[object, ...]:
    """Return options for ports that no other test uses."""
    file = folder / "dovetail.toml"
    file.write_text(
        '[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nport = 0\n[cluster]\nport = 0\n'
    )
    return "--config", file


# Brokers ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcess]:
    folder = tmp_path_factory.mktemp("a folder with spaces")
    with FleetProcess(folder, "up", "--brokers", 3, *any_ports(folder)) as brokers:
        yield brokers


def test_three_brokers_are_one(three: FleetProcess) -> None:
    ports = three.ports("MQTT")
    assert len({*ports, *three.ports("HTTP"), *three.ports("links")}) == 9
    for subscriber in ports:
        for publisher in ports:
            passes(subscriber, publisher, f"from/{publisher}/to/{subscriber}")


def test_only_the_owner_can_read_the_secret(three: FleetProcess) -> None:
    secret = three.folder / "dovetail-data" / "cluster.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text().strip() not in three.output()


def test_the_printed_command_for_joining_runs_in_a_shell(three: FleetProcess) -> None:
    (line,) = re.findall("^Add a broker: +(.*)$", three.printed(), re.MULTILINE)
    secret = str(three.folder / "dovetail-data" / "cluster.secret")
    assert " " in secret
    assert shlex.split(line)[1:] == [
        "node",
        *("--join", f"127.0.0.1:{three.ports('links')[0]}"),
        *("--secret-file", secret),
    ]


def test_a_killed_broker_restarts(three: FleetProcess) -> None:
    noticed, again = "was ended by SIGKILL; it starts again in", "is up again"
    known = three.log()
    victim = three.children()[1]
    os.kill(victim, signal.SIGKILL)
    three.wait_for_log(noticed, times=known.count(noticed) + 1)
    three.wait_for_log(again, times=known.count(again) + 1)
    assert victim not in three.children()
    first, second, _ = three.ports("MQTT")
    passes(second, first, "again")


def test_a_broker_rejoins_while_idle_connections_flood_the_others(
    three: FleetProcess,
) -> None:
    first, _, third = three.ports("links")
    known = three.log().count("is up again")
    victim = three.children()[1]
    with Flood([first, third], 2 * FLOODED) as flood:
        wait_until(lambda: flood.closed > FLOODED, "the flood has taken all slots")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: three.log().count("is up again") > known, "it is started again")
        ports = three.ports("MQTT")
        for other in (ports[0], ports[2]):
            passes(ports[1], other, f"flood/from/{other}")
            passes(other, ports[1], f"flood/to/{other}")


def test_a_fourth_broker_joins(three: FleetProcess) -> None:
    """It needs only an address, as the secret is in the same folder."""
    join = ("--join", f"127.0.0.1:{three.ports('links')[1]}")
    arguments = (*join, "--port", 0, "--listen", "127.0.0.1:0", "--name", "fourth")
    with FleetProcess(three.folder, "node", *arguments) as fourth:
        assert "as node fourth" in fourth.printed()
        (port,) = fourth.ports("MQTT")
        for other in three.ports("MQTT"):
            passes(port, other, f"to/fourth/from/{other}")
            passes(other, port, f"from/fourth/to/{other}")
        again = refusal(three.folder, "node", *arguments)
        assert "Another Dovetail uses the data folder" in again
        secret = three.folder / "dovetail-data" / "cluster.secret"
        elsewhere = ("--data", "elsewhere", "--secret-file", secret)
        again = refusal(three.folder, "node", *arguments, *elsewhere)
        assert "does not let this node in: the name fourth is in use" in again


def test_without_the_secret_nobody_joins(three: FleetProcess, tmp_path: Path) -> None:
    join = (
        "--join",
        f"127.0.0.1:{three.ports('links')[0]}",
        "--port",
        0,
        "--listen",
        "127.0.0.1:0",
    )
    message = refusal(tmp_path, "node", *join)
    assert "the secret of the cluster that is joined is not known here" in message
    assert "--secret-file" in message
    other = tmp_path / "secret"
    other.write_text("another one, and long enough")
    other.chmod(0o600)
    message = refusal(tmp_path, "node", *join, "--secret-file", other)
    assert "the cluster does not let this node in: the proof of " in message
    assert "has another secret" in message
    wait_until(lambda: "rejected the connection" in three.log(), "the others say so, too")


def test_start_errors_are_sentences(three: FleetProcess, tmp_path: Path) -> None:
    port = three.ports("MQTT")[1]
    message = refusal(tmp_path, "up", "--brokers", 1, "--port", port)
    assert f"cannot listen on 127.0.0.1, port {port} (tcp): the port is taken" in message
    for several in ((), ("--brokers", 2), ("--brokers", 3)):
        message = refusal(three.folder, "up", *several, "--port", 0)
        assert "Another Dovetail uses the data folder" in message
    message = refusal(tmp_path, "up", "--brokers", 2, "--workers", 2)
    assert "it takes --brokers or workers, and not both." in message
    message = refusal(tmp_path, "node", "--listen", "[::]")
    assert "cluster.secret_file: is missing" in message


def test_a_refused_name_leaves_no_files(tmp_path: Path) -> None:
    message = refusal(tmp_path, "node", "--name", "../../evil")
    assert 'name: "../../evil" will not do' in message
    assert [*tmp_path.iterdir()] == []


def test_a_taken_http_port_disturbs_no_other_broker(three: FleetProcess, tmp_path: Path) -> None:
    """A broker that lacks a port does not join before it fails."""
    file = tmp_path / "f.toml"
    secret = three.folder / "dovetail-data" / "cluster.secret"
    file.write_text(
        f'name = "fifth"\n[[listeners]]\nkind = "tcp"\nport = 0\n'
        f"[http]\nport = {three.ports('HTTP')[0]}\n"
        f'[cluster]\nenabled = true\nport = 0\njoin = ["127.0.0.1:{three.ports("links")[0]}"]\n'
        f'secret_file = "{secret}"\n'
    )
    message = refusal(tmp_path, "up", "--config", file)
    assert "cannot serve HTTP on" in message
    assert "fifth" not in three.log()
    assert [node["name"] for node in nodes(three) if node["name"] == "fifth"] == []


def test_a_data_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for several in ("--brokers", "--workers"):
        message = refusal(tmp_path, "up", several, 2, "--data", "file", "--port", 0)
        assert "data: file is no folder." in message


def test_several_brokers_in_the_folder_of_a_single_one(tmp_path: Path) -> None:
    options = any_ports(tmp_path)
    with FleetProcess(tmp_path, "up", *options):
        pass
    with FleetProcess(tmp_path, "up", "--brokers", 2, *options) as brokers:
        assert len(brokers.ports("MQTT")) == 2


def test_a_later_failed_start_is_explained(tmp_path: Path) -> None:
    with FleetProcess(tmp_path, "up", "--brokers", 1, *any_ports(tmp_path)) as brokers:
        folder = tmp_path / "dovetail-data" / "broker-1"
        folder.rename(tmp_path / "aside")
        folder.touch()
        (child,) = brokers.children()
        os.kill(child, signal.SIGKILL)
        failed = "-1: cannot start, and tries again in "
        wait_until(lambda: failed in brokers.log(), "it says so")
        (line,) = [line for line in brokers.log().splitlines() if failed in line][:1]
        assert line.endswith(" is no folder."), line
        folder.unlink()
        (tmp_path / "aside").rename(folder)
        wait_until(lambda: "is up again" in brokers.log(), "it starts")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_remains(tmp_path: Path, number: signal.Signals) -> None:
    with FleetProcess(tmp_path, "up", "--brokers", 2, *any_ports(tmp_path)) as brokers:
        children = brokers.children()
        assert len(children) == 2
        brokers.signal(number)
        assert brokers.wait() == (0 if number != signal.SIGKILL else -number)
        wait_until(lambda: not any(map(process_exists, children)), "the brokers end")
        assert "Traceback" not in brokers.log()
        assert "starts again" not in brokers.log()


def test_spooled_messages_survive_a_restart_of_all_brokers(tmp_path: Path) -> None:
    arguments = ("up", "--brokers", 2, *any_ports(tmp_path), "--port")
    with (
        ReservedPorts(2) as reserved,
        FleetProcess(tmp_path, *arguments, reserved.first) as brokers,
    ):
        first, second = brokers.ports("MQTT")
        assert (first, second) == (reserved.first, reserved.first + 1)
        with WireClient(second, "away", persistent=True) as client:
            client.subscribe("owed", 2)
        with WireClient(first) as publisher:
            assert publisher.publish("owed", b"kept", 2) == 0
        brokers.stop()
        brokers.start()
        with WireClient(second, "away", persistent=True) as client:
            assert client.connack.session_present
            assert client.receive_message().payload == b"kept"


# Workers ------------------------------------------------------------------------------------------

SECURE = f"""
{TCP_AND_TLS}
[[listeners]]
kind = "websocket"
port = 0
[http]
port = 0
[cluster]
port = 0
"""


def test_workers_share_every_port(tmp_path: Path) -> None:
    Authority(tmp_path).issue("server")
    (tmp_path / "dovetail.toml").write_text(f"workers = 2\n{SECURE}")
    arguments = ("up", "--config", "dovetail.toml", "--data", tmp_path / "data")
    with FleetProcess(tmp_path, *arguments) as workers:
        for kind in ("MQTT", "MQTT, TLS", "WebSocket"):
            assert len(workers.ports(kind)) == 1
        (port,) = workers.ports("MQTT")
        clients = [WireClient(port) for _ in range(40)]

        def connected() -> list[float]:
            return [workers.metric("dovetail_clients_connected", number) for number in (0, 1)]

        # The system spreads them by their ports: all reach one worker once in a trillion tries.
        wait_until(lambda: sum(connected()) == 40, "all are counted")
        assert min(connected()) > 0
        for number, client in enumerate(clients):
            client.subscribe(f"each/{number}", 1)
        with WireClient(port) as publisher:
            for number, client in enumerate(clients):
                assert publisher.publish(f"each/{number}", b"%d" % number, 1) == 0
                assert client.receive_message().payload == b"%d" % number
        for client in clients:
            client.close()
        with_one = refusal(tmp_path, *arguments, "--workers", 1)
        assert "Another Dovetail uses the data folder" in with_one


def test_workers_do_not_look_for_sessions_that_were_dropped(tmp_path: Path) -> None:
    """A client that waits too long for a moving session would be refused."""
    reasons = []
    with FleetProcess(tmp_path, "up", "--workers", 2, *any_ports(tmp_path)) as workers:
        (port,) = workers.ports("MQTT")
        for number in range(30):
            for expiry_seconds in (None, None, None, 0, None, 0):
                with WireClient(port, f"c{number}", persistent=True) as client:
                    reasons.append(client.connack.reason)
                    client.send(Disconnect(session_expiry_seconds=expiry_seconds))
    assert set(reasons) == {0}


def test_a_reload_reaches_all_workers(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    rule = '[[access.rules]]\npublish = ["{}/#"]\nsubscribe = ["#"]\n'
    listeners = (
        '[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nenabled = false\n[cluster]\nport = 0\n'
    )
    file.write_text(listeners + rule.format("old"))
    arguments = ("up", "--config", file, "--data", "data", "--workers", 2)
    with FleetProcess(tmp_path, *arguments) as workers:
        (port,) = workers.ports("MQTT")
        file.write_text(listeners + rule.format("new"))
        workers.signal(signal.SIGHUP)
        wait_until(lambda: workers.log().count("reloaded passwords") == 2, "both have done it")
        for _ in range(8):
            with WireClient(port) as client:
                assert client.publish("old/a", b"", 1) == 0x87
                assert client.publish("new/a", b"", 1) != 0x87


# Users --------------------------------------------------------------------------------------------


def test_another_user_does_not_get_a_session_at_any_broker(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    listeners = '[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nport = 0\n[cluster]\nport = 0\n'
    access = '[access]\npassword_file = "users"\nanonymous = "never"\n'
    file.write_text(listeners + access)
    anna: dict[str, Any] = {"user": "anna", "password": b"anna"}
    bert: dict[str, Any] = {"user": "bert", "password": b"bert"}
    for name in ("anna", "bert"):
        command = [sys.executable, "-m", "dovetail", "passwd", "--stdin", "users", name]
        subprocess.run(command, input=name, text=True, check=True, cwd=tmp_path)
    with FleetProcess(tmp_path, "up", "--brokers", 2, "--config", file) as brokers:
        here, there = brokers.ports("MQTT")
        with WireClient(here, "c", persistent=True, **anna) as client:
            client.subscribe("t", 1)
        with WireClient(there, **bert) as publisher:
            publisher.publish("t", b"for anna", 1)
        for port in (here, there):
            with WireClient(port, "c", **bert) as client:
                assert client.connack.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            with WireClient(port, "c", version=MQTT_3_1_1, **bert) as client:
                assert client.connack.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        with WireClient(there, "c", persistent=True, **anna) as client:
            assert client.connack.session_present
            assert client.receive_message().payload == b"for anna"
        file.write_text(f"{listeners}{access}session_takeover = true\n")
        brokers.signal(signal.SIGHUP)
        wait_until(lambda: brokers.log().count("reloaded passwords") == 2, "both have done it")
        with WireClient(here, "c", **bert) as client:
            assert client.connack.reason == ReasonCode.SUCCESS


# TLS between brokers ------------------------------------------------------------------------------


def test_links_have_tls_and_new_certificates_after_a_reload(tmp_path: Path) -> None:
    configuration = """
[[listeners]]
kind = "tcp"
port = 0
[http]
enabled = false
[cluster]
enabled = true
port = 0
secret_file = "cluster.secret"
certificate = "{name}.crt"
key = "{name}.key"
ca = "authority.pem"
"""
    secret = tmp_path / "cluster.secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(
            f'name = "{name}"\ndata = "{name}"\n{configuration.format(name=name)}'
        )

    def issue() -> None:
        authority = Authority(tmp_path)
        authority.issue("one")
        authority.issue("two")

    issue()
    with FleetProcess(tmp_path, "up", "--config", "one.toml") as one:
        (links,) = one.ports("links")
        serial = certificate_serial(links)
        issue()  # the first ones are no longer trusted
        one.signal(signal.SIGHUP)
        wait_until(lambda: "reloaded passwords" in one.log(), "a reload")
        assert certificate_serial(links) != serial
        join = ("--join", f"127.0.0.1:{links}")
        with FleetProcess(tmp_path, "node", "--config", "two.toml", *join) as two:
            passes(one.ports("MQTT")[0], two.ports("MQTT")[0], "over/tls")
        (tmp_path / "one.key").write_text("no key")
        one.signal(signal.SIGHUP)
        wait_until(lambda: "settings not reloaded, nothing has changed" in one.log(), "a refusal")
        assert certificate_serial(links) != serial


# Looking at them ----------------------------------------------------------------------------------


def look(three: FleetProcess, *arguments: str, number: int = 0) -> str:
    url = f"http://127.0.0.1:{three.ports('HTTP')[number]}"
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *arguments, "--url", url],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def nodes(three: FleetProcess, number: int = 0) -> list[dict[str, Any]]:
    """Return the nodes as one of them shows them, perhaps with departed ones of other tests."""
    report = json.loads(look(three, "status", "--json", number=number))
    return [one for one in report["nodes"] if one["state"] != "left"]


def states(three: FleetProcess, number: int = 0) -> list[tuple[str, bool]]:
    """Return the state of each node as one of them sees it, and whether it answers."""
    return [(one["state"], one["report"] is not None) for one in nodes(three, number)]


def test_any_node_shows_the_whole_cluster(three: FleetProcess) -> None:
    first, second, _ = three.ports("MQTT")
    with WireClient(second) as subscriber:
        subscriber.subscribe("seen/+")
        with WireClient(first) as publisher:
            publisher.publish("seen/a", b"")
        for number in range(3):
            wait_until(
                lambda number=number: states(three, number) == [("alive", True)] * 3,  # type: ignore[misc]
                "all are there",
            )
            text = look(three, "status", "--once", number=number)
            assert text.count("broker") == 3
            assert text.count("alive") == 3
        one, two, _ = (node["report"] for node in nodes(three))
        assert one["counters"]["publishes_forwarded"] >= 1
        assert two["gauges"]["clients_connected"] == 1
        assert two["sketch"]["elements"] > 0
        assert {peer["name"] for peer in one["peers"]} >= {two["name"]}
        assert three.metric("dovetail_sketch_bits", 1) == two["sketch"]["bits"]
        as_seen = rf'\{{peer="{two["name"]}"\}}'
        assert three.metric(f"dovetail_peer_alive{as_seen}") == 1
        assert three.metric(f"dovetail_peer_sketch_bits{as_seen}") == two["sketch"]["bits"]
        assert three.metric("dovetail_sketch_fill", 1) > 0
        wait_until(
            lambda: (
                three.metric(f"dovetail_peer_sketch_fill{as_seen}")
                == three.metric("dovetail_sketch_fill", 1)
            ),
            "the first broker's copy is as full as the second one's own",
        )


def test_route_shows_where_a_topic_goes(three: FleetProcess) -> None:
    _, second, third = three.ports("MQTT")
    with WireClient(second) as plain, WireClient(third) as shared:
        plain.subscribe("led/#")
        shared.subscribe("led/here/+")
        text = look(three, "route", "led/here/too")
        assert re.search(r"-1 \(here\): nobody has subscribed to it\n", text)
        assert re.search(
            r"-2: it goes there, and is needed: 1 subscription\.\n +led/# +\(1\)", text
        )
        assert re.search(r"-3: it goes there, and is needed: .*\n +led/here/\+ +\(1\)", text)
        report = json.loads(look(three, "route", "led/there", "--json", number=1))
        assert report["here"]["filters"] == [
            {"filter": "led/#", "subscribers": 1, "group": None, "holding": None}
        ]
        assert {peer["guess"] for peer in report["peers"] if peer["state"] == "alive"} == {"no"}
        assert not any(peer["is_forwarded"] for peer in report["peers"])


@pytest.mark.parametrize("until", [b"\x1b[?25l", b"alive"], ids=["hidden", "drawn"])
def test_an_interrupted_live_table_restores_the_cursor(three: FleetProcess, until: bytes) -> None:
    """This holds from the first lines on: `until` is the output at which it is interrupted."""
    url = f"http://127.0.0.1:{three.ports('HTTP')[0]}"
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "status", "--url", url],
        stdin=other_end,
        stdout=other_end,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(other_end)
    shown = b""
    while until not in shown:
        shown += os.read(terminal, 16)
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while more := os.read(terminal, 4_096):
            shown += more
    os.close(terminal)
    assert b"\x1b[?25h" in shown
    _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, errors) == (143, b"")


def test_a_node_without_an_answer_is_shown(three: FleetProcess) -> None:
    """The first node answers, which no earlier test has restarted; so this is not the last test."""
    victim = three.children()[-1]
    os.kill(victim, signal.SIGSTOP)
    try:
        wait_until(lambda: ("dead", False) in states(three), "it is thought to be dead")
        assert "dead" in look(three, "status", "--once")
    finally:
        os.kill(victim, signal.SIGCONT)
    wait_until(lambda: {*states(three)} == {("alive", True)}, "it is back")


def test_status_and_route_refusals(three: FleetProcess, tmp_path: Path) -> None:
    url = ("--url", f"http://127.0.0.1:{three.ports('HTTP')[0]}")
    assert "'+' is a wildcard" in refusal(tmp_path, "route", "a/+", *url)
    with ReservedPort() as nobody:
        for port in (nobody.port, three.ports("MQTT")[0]):
            message = refusal(tmp_path, "status", "--url", f"127.0.0.1:{port}")
            assert "no node answers at" in message
