"""Matchers as a user meets them: `up --matchers` and `node --role matcher`, with real processes."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, wait_until
from support.processes.fleet_process import TRAFFIC, FleetProcess, process_exists


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcess]:
    """Two brokers and two matchers. Tests leave them as they were: any may be the last."""
    with two_of_each(tmp_path_factory.mktemp("matchers")) as fleet:
        yield fleet


@contextlib.contextmanager
def two_of_each(folder: Path) -> Iterator[FleetProcess]:
    """Start two brokers and two matchers, and see that no process remains."""
    (folder / "dovetail.toml").write_text(TRAFFIC)
    counts = ("--brokers", 2, "--matchers", 2)
    with FleetProcess(folder, "up", *counts, "--config", "dovetail.toml") as fleet:
        yield fleet
        children = fleet.children()
        fleet.signal(signal.SIGINT)
        assert fleet.wait() == 0
    assert children
    assert not any(map(process_exists, children))
    assert "Traceback" not in fleet.log()
    assert "it is killed" not in fleet.log()


def matchers(fleet: FleetProcess) -> dict[str, dict[str, Any]]:
    """Return the serving matchers as the broker sees them."""
    report: Any = fleet.get_json("/cluster")
    return {
        entry["name"].rpartition("-")[2]: entry["report"]["matcher"]
        for entry in report["nodes"]
        if entry["role"] == "matcher"
        and entry["state"] == "alive"
        and entry["report"] is not None
        and entry["report"]["matcher"]["phase"] == "serving"
    }


def until_serving(fleet: FleetProcess, *names: str) -> None:
    wait_until(lambda: matchers(fleet).keys() == {*names}, f"{names} serve")


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
    return done.stderr


def _are_shown(fleet: FleetProcess, asked: int, nodes: list[tuple[str, str, str, bool]]) -> bool:
    """Return whether `dovetail status` shows these names, roles, states and answers."""
    url = f"http://127.0.0.1:{fleet.ports('HTTP')[asked]}"
    command = [sys.executable, "-m", "dovetail", "status", "--json", "--url", url]
    told = json.loads(subprocess.check_output(command, timeout=WAIT_SECONDS))
    return nodes == sorted(
        (
            node["name"].partition("-")[2],
            node["role"],
            node["state"],
            node["report"] is not None,
        )
        for node in told["nodes"]
    )


def test_they_are_nodes_of_the_cluster(fleet: FleetProcess) -> None:
    everybody = [
        ("1", "broker", "alive", True),
        ("2", "broker", "alive", True),
        ("matcher-1", "matcher", "alive", True),
        ("matcher-2", "matcher", "alive", True),
    ]
    assert "2 brokers and 2 matchers, one cluster" in fleet.printed()
    assert len(fleet.children()) == 4
    until_serving(fleet, "1", "2")
    for asked in (0, 3):  # a broker, and a matcher
        # On a busy machine a node may be suspected for a moment.
        wait_until(partial(_are_shown, fleet, asked, everybody), "all are shown as alive")
    for number in (2, 3):
        assert fleet.get_json("/healthz", number) == {"status": "ok"}
        assert fleet.metric("dovetail_matcher_serving", number) == 1
    assert 'matcher-1"' not in fleet.get("/metrics")  # they are no peers of brokers


def test_they_hold_boxes_while_there_are_some(fleet: FleetProcess) -> None:
    until_serving(fleet, "1", "2")
    here, there = fleet.ports("MQTT")
    with WireClient(here) as subscriber, WireClient(there) as publisher:
        subscriber.subscribe("traffic/#?lat>=40&lat<41&lon>=3&lon<5")
        wait_until(lambda: total(fleet, "boxes") > 0, "they are fed")
        forwarded = fleet.metric("dovetail_publishes_forwarded_total", 1)
        publisher.publish("traffic/a", b'{"lat": 50, "lon": 4}', 1)
        publisher.publish("traffic/a", b'{"lat": 40.5, "lon": 4}', 1)
        assert subscriber.receive_message().payload == b'{"lat": 40.5, "lon": 4}'
        assert fleet.metric("dovetail_publishes_forwarded_total", 1) == forwarded + 1
        assert total(fleet, "points_answered") >= 2
        text = explained(fleet, "--attr", "lat=40.5", "--attr", "lon=4")
        assert "  It is in space traffic (traffic/#):" in text
        assert "(1; 1 hold)" in text
        assert "is asked along l" in text
        report = json.loads(explained(fleet, "--attr", "lat=40.5", "--json"))
        assert [one["place"] for one in report["attributes"]["values"]] == ["inside", "missing"]
        (part,) = {
            (one["boxes"], one["dimension"])
            for matcher in matchers(fleet).values()
            for one in matcher["parts"]
            if one["dimension"] == "lat" and one["boxes"]
        }
        assert part == (1, "lat")
    wait_until(lambda: total(fleet, "boxes") == 0, "boxes go with their clients")


def explained(fleet: FleetProcess, *arguments: str) -> str:
    """Return the route that the second broker explains."""
    url = f"http://127.0.0.1:{fleet.ports('HTTP')[1]}"
    command = [sys.executable, "-m", "dovetail", "route", "traffic/a", "--url", url, *arguments]
    return subprocess.check_output(command, timeout=WAIT_SECONDS, text=True)


def total(fleet: FleetProcess, what: str) -> int:
    return sum(matcher[what] for matcher in matchers(fleet).values())


def test_another_matcher_joins_and_leaves(fleet: FleetProcess) -> None:
    until_serving(fleet, "1", "2")
    join = ("--join", f"127.0.0.1:{fleet.ports('links')[0]}", "--config", "dovetail.toml")
    third = FleetProcess(fleet.folder, "node", "--role", "matcher", "--name", "a-third", *join)
    with third:
        assert "is up, as matcher a-third." in third.printed()
        until_serving(fleet, "1", "2", "third")
        third.signal(signal.SIGTERM)
        assert third.wait() == 0
        third.wait_for_log("leaving: answers until brokers have fed its boxes")
        assert "Traceback" not in third.log()
    wait_until(lambda: "a-third has left" in fleet.log(), "it says goodbye")
    until_serving(fleet, "1", "2")
    assert not (fleet.folder / "dovetail-data" / "a-third").exists()


def test_a_killed_matcher_restarts(fleet: FleetProcess) -> None:
    until_serving(fleet, "1", "2")
    victim = fleet.children()[3]
    before = fleet.log()
    os.kill(victim, signal.SIGKILL)
    ended, back = "was ended by SIGKILL; it starts again in", "is up again"
    wait_until(lambda: fleet.log().count(ended) > before.count(ended), "it is noticed")
    wait_until(lambda: fleet.log().count(back) > before.count(back), "it is started again")
    assert victim not in fleet.children()
    until_serving(fleet, "1", "2")


def test_nothing_is_lost_while_they_die_and_hang(fleet: FleetProcess) -> None:
    """Publications without an answer go on without matchers, in order."""
    until_serving(fleet, "1", "2")
    here, there = fleet.ports("MQTT")
    first, second = fleet.children()[2:]
    deeds = {
        20: (first, signal.SIGKILL),
        40: (second, signal.SIGSTOP),
        80: (second, signal.SIGCONT),
    }
    with WireClient(here) as subscriber, WireClient(there) as publisher:
        subscriber.subscribe("traffic/#?lat>=40&lat<41&lon>=3&lon<5", 1)
        for number in range(100):
            if number in deeds:
                os.kill(*deeds[number])
            payload = {"lat": 40.5, "lon": 4, "number": number}
            assert publisher.publish("traffic/a", json.dumps(payload).encode(), 1 + number % 2) == 0
        got = [json.loads(subscriber.receive_message().payload)["number"] for _ in range(100)]
        assert got == [*range(100)]
    until_serving(fleet, "1", "2")


def test_other_spaces_without_a_restart(fleet: FleetProcess) -> None:
    until_serving(fleet, "1", "2")
    children = fleet.children()
    file = fleet.folder / "dovetail.toml"
    file.write_text(TRAFFIC.replace("lat = [-90, 90]", "lat = [-100, 100]"))
    fleet.signal(signal.SIGHUP)
    reloaded = "reloaded spaces and certificates"
    wait_until(lambda: fleet.log().count(reloaded) == 2, "both matchers have read it")
    until_serving(fleet, "1", "2")
    here, _ = fleet.ports("MQTT")
    with WireClient(here) as subscriber:
        subscriber.subscribe("traffic/#?lat>=40&lat<41&lon>=3&lon<5")
        wait_until(lambda: total(fleet, "boxes") > 0, "they are fed")
    assert fleet.children() == children


def test_a_matcher_is_drained_while_publications_flow(tmp_path: Path) -> None:
    with two_of_each(tmp_path) as fleet:
        _drain_while_publications_flow(fleet)


def _drain_while_publications_flow(fleet: FleetProcess) -> None:
    until_serving(fleet, "1", "2")
    children = fleet.children()
    here, there = fleet.ports("MQTT")
    url = f"http://127.0.0.1:{fleet.ports('HTTP')[1]}"
    name = f"{socket.gethostname()}-matcher-2"
    assert "is a broker, and only matchers" in refusal(
        fleet.folder, "drain", f"{socket.gethostname()}-1", "--url", url
    )
    with WireClient(here) as subscriber, WireClient(there) as publisher:
        subscriber.subscribe("traffic/#?lat>=40&lat<41&lon>=3&lon<5", 1)
        wait_until(lambda: total(fleet, "boxes") > 0, "they are fed")
        command = [sys.executable, "-m", "dovetail", "drain", name, "--url", url]
        drain = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        number = 0
        while drain.poll() is None or number < 100:
            payload = {"lat": 40.5, "lon": 4, "number": number}
            assert publisher.publish("traffic/a", json.dumps(payload).encode(), 1) == 0
            message = subscriber.receive_message()  # a second copy would be in the next one's place
            assert json.loads(message.payload) == payload
            subscriber.acknowledge(message)
            number += 1
    said = drain.communicate(timeout=WAIT_SECONDS)[0]
    assert drain.returncode == 0, said
    assert f"{name} has left after" in said
    assert "1 matcher is there" in said
    wait_until(lambda: f"{name}: is drained, and stays away" in fleet.log(), "it is not missed")
    left = fleet.children()
    assert len(left) == 3
    assert {*left} < {*children}
    until_serving(fleet, "1")


ELASTIC = f"""{TRAFFIC}
[matchers]
count_min = 1
count_max = 2
add_above = 0.002
add_after_seconds = 0
remove_below = 0.001
remove_after_seconds = 0
"""


def test_a_matcher_comes_and_goes_by_load(tmp_path: Path) -> None:
    (tmp_path / "dovetail.toml").write_text(ELASTIC)
    with FleetProcess(tmp_path, "up", "--brokers", 2, "--config", "dovetail.toml") as fleet:
        assert "2 brokers and 1 to 2 matchers, one cluster" in fleet.printed()
        few = fleet.children()
        assert len(few) == 3
        until_serving(fleet, "1")
        here, there = fleet.ports("MQTT")
        numbers = itertools.count()
        with WireClient(here) as subscriber, WireClient(there) as publisher:
            subscriber.subscribe("traffic/#?lat>=40&lat<41&lon>=3&lon<5", 1)

            def publish() -> None:
                payload = {"lat": 40.5, "lon": 4, "number": next(numbers)}
                assert publisher.publish("traffic/a", json.dumps(payload).encode(), 1) == 0
                message = subscriber.receive_message()
                assert json.loads(message.payload) == payload
                subscriber.acknowledge(message)

            while matchers(fleet).keys() != {"1", "2"}:
                publish()
            many = fleet.children()
            assert {*few} < {*many}
            fleet.wait_for_log("matcher-2: is started: they are")
            leaves = "hands over and leaves: they are 0% busy"
            wait_until(lambda: leaves in fleet.log(), "one is not needed any more")
            while not (gone := {*many} - {*fleet.children()}):
                publish()
            assert len(gone) == 1
            wait_until(lambda: re.search(r"matcher-\d: has left\n", fleet.log()), "it has left")
        assert "starts again" not in fleet.log()
        assert "Traceback" not in fleet.log()


def test_without_a_space_there_is_nothing_to_match(tmp_path: Path) -> None:
    expected = "matchers need a space, and the configuration declares none."
    assert expected in refusal(tmp_path, "up", "--matchers", 2)
    assert [*tmp_path.iterdir()] == []
