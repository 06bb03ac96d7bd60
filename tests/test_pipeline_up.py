"""`dovetail up --pipeline` starts and stops brokers, an archive and a stream on Spark."""

import os
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

from support.brokers.wire_client import WireClient
from support.processes.broker_process import START_SECONDS, WAIT_SECONDS, wait_until
from support.processes.fleet_process import ANY_PORTS, FleetProcess, process_exists

STREAMED = f"""
{ANY_PORTS}
[archive]
folder = "archive"
[spaces.traffic]
topics = "traffic/#"
engine = "spark"
json_fields = true
[spaces.traffic.dimensions]
speed = [0, 200]
[[access.rules]]
client = "driver"
subscribe = ["traffic/#"]
[[access.rules]]
client = "sensor"
publish = ["#"]
"""
"""Rules without administrators: only the stream may use its pages."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcess]:
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "dovetail.toml").write_text(STREAMED)
    command = ("up", "--pipeline", "--brokers", 1, "--config", "dovetail.toml")
    with FleetProcess(folder, *command) as fleet:
        yield fleet


def descendants(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in found for one in descendants(int(child)))]


def rows(table: Path) -> list[tuple[str, int]]:
    """Return the topics of a table and their numbers of matching subscriptions."""
    files = [*map(str, table.glob("batch=*/*.parquet"))]
    if not files:
        return []
    found = pyarrow.dataset.dataset(files).to_table().to_pylist()
    return sorted((row["topic"], len(row["subscriptions"])) for row in found)


def test_all_of_it_runs_and_ends(fleet: FleetProcess) -> None:
    assert "and clauses are looked at there of traffic" in fleet.printed()
    wait_until(
        lambda: "stream: is up: Spark http://" in fleet.log(), "the stream", seconds=START_SECONDS
    )
    port = fleet.ports("MQTT")[0]
    driver, sensor = WireClient(port, "driver"), WireClient(port, "sensor")
    driver.subscribe("traffic/#?speed<25", qos=1)
    for speed in (20, 90, 24):
        sensor.publish("traffic/A1", b'{"speed": %d}' % speed, qos=1)
    sensor.publish("other", b"of no space", qos=1)
    # The stream has found the receivers: nothing else could.
    got = [driver.receive_message() for _ in range(2)]
    assert [one.payload for one in got] == [b'{"speed": 20}', b'{"speed": 24}']
    table = fleet.folder / "dovetail-data" / "pipeline" / "matched"
    expected = [("other", 0), ("traffic/A1", 0), ("traffic/A1", 1), ("traffic/A1", 1)]
    wait_until(lambda: rows(table) == expected, "the table has all rows")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fleet.get("/archive")
    driver.close()
    sensor.close()

    begun = descendants(fleet.pid)
    assert len(begun) >= 4  # a broker, the stream, its Java
    fleet.signal(signal.SIGINT)
    assert fleet.wait() == 0, fleet.output()
    assert "killed" not in fleet.log()
    assert "Traceback" not in fleet.log()
    fleet.wait_for_log("stream: out     2 deliveries to clients of brokers")
    assert [pid for pid in begun if process_exists(pid)] == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[http]\nenabled = false\n", "over HTTP, and it is switched off"),
        (
            '[access]\nadministrators = ["ann"]\npassword_file = "users"\n',
            "logs in as ann, the first of access.administrators, and has no password",
        ),
    ],
)
def test_missing_needs_of_a_stream_are_refused(tmp_path: Path, more: str, words: str) -> None:
    (tmp_path / "users").touch(mode=0o600)
    (tmp_path / "f.toml").write_text('[[listeners]]\nkind = "tcp"\nport = 0\n' + more)
    environment = {name: value for name, value in os.environ.items() if "PASSWORD" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", "up", "--pipeline", "--config", "f.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    assert words in done.stderr
