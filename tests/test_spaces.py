"""Spaces of a running node: from its file to command line clients and queries."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dovetail.api.reports import SpacesReport
from dovetail.fleet.members import plan, settings_of_member
from dovetail.settings import Options, settings_of
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until
from support.processes.client_commands import run, start
from support.processes.fleet_process import ANY_PORTS

CONFIGURATION = f"""
{ANY_PORTS}
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
[spaces.traffic.dimensions]
lat = [-90, 90]
speed = {{ bounds = [0, 200], searchable = false }}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("spaces"), CONFIGURATION) as running:
        yield running


def spaces(broker: BrokerProcess) -> SpacesReport:
    status, body = broker.get("/spaces")
    assert status == 200
    return msgspec.json.decode(body, type=SpacesReport)


def shown(broker: BrokerProcess) -> list[str]:
    return run("spaces", "--url", f"127.0.0.1:{broker.port_of('http')}").text.splitlines()


def test_clauses_and_attributes_on_the_command_line(broker: BrokerProcess) -> None:
    port = ("--port", broker.port)
    clause = 'speed < 25 and (40 <= lat < 41 or road == "A1")'
    subscribers = [
        start("sub", "traffic/#", "--where", clause, *port, "--count", 2, "-v"),
        start("sub", "traffic/#?lat>=40&road=A2", "--mqtt", "3.1.1", *port, "--count", 1, "-v"),
    ]
    wait_until(lambda: spaces(broker).spaces[0].subscriptions == 2, "two subscriptions")
    assert shown(broker)[1:] == [
        "  traffic: publications on traffic/#; 2 subscriptions with where-clauses, 3 boxes",
        "      lat    -90 to 90",
        "      speed  0 to 200, not searchable",
        "      road   a text",
        "      Matchers share its boxes along each dimension (mpartition); policy: adaptive.",
    ]
    for topic, *attributes in (
        ("traffic/fast", "lat=40.5", "speed=25", "road=A1"),
        ("traffic/south", "lat=39.9", "speed=3", "road=A2"),
        ("traffic/middle", "lat=40", "speed=3", "unit=kmh"),
        ("traffic/north", "lat=41", "speed=24.9", "road=A2"),
        ("traffic/nowhere", "speed=3", "road=A1"),
    ):
        given = [word for pair in attributes for word in ("--attr", pair)]
        assert run("pub", topic, "x", *given, *port, "--qos", 1).text == ""
    printed = [subscriber.communicate(timeout=WAIT_SECONDS) for subscriber in subscribers]
    assert printed == [
        ("traffic/middle x\ntraffic/nowhere x\n", ""),
        ("traffic/north x\n", ""),
    ]
    wait_until(lambda: not spaces(broker).spaces[0].subscriptions, "no subscription any more")


def test_a_refusal_shows_the_words_of_the_broker(broker: BrokerProcess) -> None:
    place = f"localhost:{broker.port}"
    port = ("--port", broker.port)
    done = run("sub", "traffic/#", "--where", "lat < 3 and sped < 25", *port)
    assert done.returncode == 2
    first, *more = done.errors.splitlines()
    assert first.startswith(f"dovetail: error: {place} refused the subscription to traffic/#: ")
    assert first.endswith("space 'traffic' has no attribute 'sped'; is it 'speed'?")
    assert more == ["lat < 3 and sped < 25", "            ^"]
    done = run("sub", "+/a", "--where", "lat < 3", *port)
    assert "no space governs all topics of '+/a'" in done.errors
    done = run("pub", "traffic/a", "x", "--attr", "lat=north", *port, "--qos", 1)
    assert done.errors.startswith(f"dovetail: error: {place} refused the publication to traffic/a")
    assert "attribute 'lat': 'north' is not a number" in done.errors


def test_a_reload_changes_them_while_running(broker: BrokerProcess) -> None:
    before = broker.file.read_text()
    broker.file.write_text(before.replace("speed =", "wind =").replace("[-90, 90]", "[-90, 91]"))
    assert "reloaded passwords, access rules, spaces and certificates" in broker.reload()
    assert shown(broker)[2:4] == [
        "      lat   -90 to 91",
        "      wind  0 to 200, not searchable",
    ]
    broker.file.write_text(before.replace("[-90, 90]", "[90, -90]"))
    answer = broker.reload()
    assert "settings not reloaded, nothing has changed" in answer
    assert "spaces.traffic.dimensions.lat: [90.0, -90.0] are no bounds" in answer
    assert [one.name for one in spaces(broker).spaces[0].dimensions] == ["lat", "wind"]
    broker.file.write_text(before.partition("[spaces")[0])
    broker.reload()
    assert spaces(broker).spaces == ()
    broker.file.write_text(before)
    broker.reload()
    assert [one.name for one in spaces(broker).spaces[0].dimensions] == ["lat", "speed"]


def test_all_brokers_of_a_file_have_its_spaces(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    file.write_text(CONFIGURATION)
    options = Options(config=str(file), data=str(tmp_path / "data"), is_node=True)
    settings = settings_of(options)
    fleet = plan(options, settings, 3, shares_ports=False)
    with fleet.held:
        declared = [settings_of_member(member).spaces for member in fleet.members]
    assert declared == [settings.spaces] * 3
    assert [*settings.spaces] == ["traffic"]
