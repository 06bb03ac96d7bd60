"""The archive of real brokers: kills, folders that fail, a full disk, a cluster."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from dovetail.archive.files import subscriptions_of
from dovetail.errors import ReasonCode
from support.archives import Publisher, read
from support.brokers.wire_client import WireClient
from support.processes import mounts
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until
from support.processes.fleet_process import ANY_PORTS, FleetProcess

SETTINGS = """
name = "one"
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[archive]
topics = ["a/#"]
folder = "{folder}"
delay_seconds = 0.1
buffer_bytes_max = {buffer}
"""
CLUSTER = f"""
name = "node"
{ANY_PORTS}
[archive]
topics = ["a/#"]
delay_seconds = 0.1
subscriptions_seconds = 0.2
"""
KILLS = 2


def configuration(folder: object = "archive", buffer: int = 1 << 24) -> str:
    return SETTINGS.format(folder=folder, buffer=buffer)


def test_what_is_acknowledged_is_archived_once_whenever_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("DOVETAIL_TEST_SEED", "0")) or random.randrange(1 << 32)
    print(f"DOVETAIL_TEST_SEED={seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path, configuration())
    publishers: list[Publisher] = []

    def acknowledged() -> int:
        return sum(len(publisher.acknowledged) for publisher in publishers)

    for _ in range(KILLS):
        broker.start("--quiet", announced=False)
        before = publishers or (None, None)
        publishers = [
            Publisher(broker.port, qos, one) for qos, one in zip((1, 2), before, strict=True)
        ]
        enough = acknowledged() + chance.randrange(50, 1_500)
        wait_until(partial(has_reached, acknowledged, enough), "acknowledgements")
        broker.kill()
        for publisher in publishers:
            publisher.end()
    broker.start("--quiet", announced=False)
    Publisher(broker.port, 2, publishers[1]).end()
    broker.stop()
    rows = read(tmp_path / "archive")
    payloads = [row["payload"] for row in rows]
    for publisher in publishers:
        assert publisher.acknowledged <= set(payloads)
    assert len(payloads) == len(set(payloads))
    assert len({row["sequence"] for row in rows}) == len(rows)
    assert {row["broker"] for row in rows} == {"one"}


def has_reached(count: Callable[[], int], enough: int) -> bool:
    return count() >= enough


def test_a_folder_that_fails_stops_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    (tmp_path / "real").mkdir()
    (tmp_path / "file").touch()
    lead(folder, tmp_path / "real")
    broker = BrokerProcess(tmp_path, configuration(buffer=20_000))
    broker.start()
    with WireClient(broker.port, "client") as client:
        assert client.publish("a/1", b"before", 1) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        wait_until(lambda: broker.metric("archive_rows_total") == 1, "a file")
        lead(folder, tmp_path / "file")
        for number in range(100):
            payload = b"%d" % number
            assert client.publish("a/1", payload, 1) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        wait_until(lambda: broker.metric("archive_failing") == 1, "a failure")
        assert broker.health()[0] == 200
        waiting = int(broker.metric("archive_rows_waiting"))
        dropped = int(broker.metric("archive_rows_dropped_total"))
        assert dropped > 0
        assert waiting + dropped == 100
        wait_until(lambda: broker.metric("archive_failures_total") > 1, "another attempt")
        lead(folder, tmp_path / "real")
        wait_until(lambda: broker.metric("archive_rows_waiting") == 0, "files")
        assert broker.metric("archive_failing") == 0
        assert broker.log().count("cannot write to the archive") == 1
        assert broker.log().count("the archive takes files again") == 1
        assert broker.log().count("too many publications wait for the archive") == 1
        broker.wait_for_log(f"archived again; {dropped} were not")
        lead(folder, tmp_path / "file")
        client.publish("a/1", b"kept by the store", 1)
    broker.kill()
    lead(folder, tmp_path / "real")
    with broker:
        pass
    payloads = [row["payload"] for row in read(folder)]
    written = [b"%d" % number for number in range(waiting)]
    assert payloads == [b"before", *written, b"kept by the store"]


def test_a_full_disk_stops_nobody_and_costs_no_row(tmp_path: Path) -> None:
    with mounts.small_disk(tmp_path / "archive", 1 << 18) as disk:
        broker = BrokerProcess(tmp_path, configuration())
        broker.start()
        ballast = disk / "ballast"
        with WireClient(broker.port, "client") as client, WireClient(broker.port, "other") as other:
            assert other.subscribe("a/#", 1) == 1
            client.publish("a/1", b"before", 1)
            assert other.receive_message().payload == b"before"
            wait_until(lambda: broker.metric("archive_rows_total") == 1, "a file")
            ballast.write_bytes(bytes(shutil.disk_usage(disk).free))
            payloads = [b"%d" % number * 1_000 for number in range(50)]
            for payload in payloads:
                assert client.publish("a/1", payload, 1) == ReasonCode.SUCCESS
                assert other.receive_message().payload == payload
            wait_until(lambda: broker.metric("archive_failing") == 1, "a failure")
            assert broker.health()[0] == 200
            (shown,) = [
                line
                for line in said_of("status", broker, "--once").splitlines()
                if "takes no files" in line
            ]
            assert " 50 " in shown
            broker.wait_for_log("No space left on device")
            ballast.unlink()
            wait_until(lambda: broker.metric("archive_rows_waiting") == 0, "files")
            assert broker.metric("archive_failing") == 0
            assert broker.metric("archive_rows_dropped_total") == 0
        broker.stop()
        assert [row["payload"] for row in read(disk)] == [b"before", *payloads]


def test_topics_change_while_it_runs(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, configuration())
    with broker:
        assert "It is archived.\n" in said_of("route", broker, "a/1")
        assert "It is not archived.\n" in said_of("route", broker, "b/1")
        with WireClient(broker.port, "client") as client:
            for topic in ("a/1", "b/1"):
                client.publish(topic, b"before", 1)
            broker.file.write_text(configuration().replace('"a/#"', '"b/#"'))
            broker.reload()
            broker.wait_for_log("archived from now on: b/#")
            for topic in ("a/1", "b/1"):
                client.publish(topic, b"after", 1)
            assert "It is archived.\n" in said_of("route", broker, "b/1")
    rows = [(row["topic"], row["payload"]) for row in read(tmp_path / "archive")]
    assert rows == [("a/1", b"before"), ("b/1", b"after")]


def said_of(command: str, broker: BrokerProcess, *more: str) -> str:
    ask = [
        sys.executable,
        "-m",
        "dovetail",
        command,
        *more,
        "--url",
        f"http://127.0.0.1:{broker.port_of('http')}",
    ]
    return subprocess.run(
        ask, capture_output=True, text=True, check=True, timeout=WAIT_SECONDS
    ).stdout


def lead(link: Path, target: Path) -> None:
    """Replace a symbolic link atomically."""
    other = link.with_name("other")
    other.symlink_to(target)
    other.rename(link)


def test_a_cluster_archives_a_publication_once(tmp_path: Path) -> None:
    folder = tmp_path / "dovetail-archive"
    (tmp_path / "dovetail.toml").write_text(CLUSTER)
    with FleetProcess(tmp_path, "up", "--config", "dovetail.toml", "--brokers", 2) as fleet:
        first, second = fleet.ports("MQTT")
        with WireClient(first, "one") as one, WireClient(second, "other") as other:
            assert other.subscribe("a/#", 0) == 0
            for number in range(30):
                one.publish("a/1", b"%d" % number, number % 3)
            one.publish("b/1", b"not archived", 1)
            with WireClient(second, "third") as third:
                third.publish("a/2", b"from there", 1)
            got = [other.receive_message().payload for _ in range(31)]
            wait_until(lambda: ("other", "a/#") in subscribed(folder), "the new subscription")
    rows = read(folder)
    assert sorted(row["payload"] for row in rows) == sorted(got)
    assert {row["broker"] for row in rows if row["topic"] == "a/1"} == {"node-1"}
    assert {row["broker"] for row in rows if row["topic"] == "a/2"} == {"node-2"}


def subscribed(folder: Path) -> set[tuple[str, str]]:
    """Return clients and filters at all brokers."""
    found = set()
    for file in subscriptions_of(folder):
        with suppress(FileNotFoundError):  # it was the newest a moment ago
            rows = pq.ParquetFile(file).read().to_pylist()
            found |= {(row["client"], row["filter"]) for row in rows}
    return found


def test_a_broker_without_an_archive_does_not_load_arrow() -> None:
    program = "import sys, dovetail.node.broker; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
