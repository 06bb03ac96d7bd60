"""A space that Spark serves, with real brokers and clients, compared with a live space."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from dovetail.pipeline.serve.query import serve
from support.clusters.serving_clients import ServingClients
from support.processes.broker_process import START_SECONDS, wait_until
from support.processes.fleet_process import ANY_PORTS, FleetProcess

SPACE = f"""{ANY_PORTS}
[archive]
folder = "archive"
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
engine = "ENGINE"
[spaces.traffic.dimensions]
speed = [0, 200]
"""
SCRIPT = Path(__file__).parents[2] / "support" / "processes" / "serving_process.py"
MESSAGES = 120


def fleet(folder: Path, engine: str, *more: object) -> FleetProcess:
    folder.mkdir()
    file = folder / "dovetail.toml"
    file.write_text(SPACE.replace("ENGINE", engine))
    return FleetProcess(folder, "up", "--brokers", 2, *more, "--config", file)


@contextmanager
def streaming(url: str, folder: Path, batch_rows: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver in a process that ends with the block."""
    command = [sys.executable, str(SCRIPT), url, str(folder / "checkpoint"), str(batch_rows)]
    with (folder / "stream.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_spark_delivers_as_live_matchers_do_even_if_the_driver_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with fleet(tmp_path / "live", "live", "--matchers", 1) as live:
        expected = ServingClients(live.ports("MQTT"))
        expected.publish(0, MESSAGES)
        expected.end()
    with fleet(tmp_path / "spark", "spark") as brokers:
        audience = ServingClients(brokers.ports("MQTT"))
        url = f"http://127.0.0.1:{brokers.ports('HTTP')[1]}"
        audience.publish(0, MESSAGES // 2)
        wide = audience.members["wide"]
        assert wide.got == []
        with streaming(url, tmp_path, 1) as driver:  # so that it is killed before it is done
            wait_until(
                lambda: driver.poll() is not None or wide.got, "deliveries", seconds=START_SECONDS
            )
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        assert len(wide.got) < MESSAGES // 2
        audience.publish(MESSAGES // 2, MESSAGES)
        query = serve(spark, url, tmp_path / "checkpoint")
        wait_until(
            lambda: not query.isActive or not waiting(brokers),
            "that nothing waits any more",
            seconds=START_SECONDS,
        )
        audience.end()
        assert query.isActive, query.exception()
        query.stop()
    assert audience.got() == expected.got()
    assert expected.got()["group"].total() > MESSAGES // 2
    assert expected.got()["mover"].total() > 10


def waiting(brokers: FleetProcess) -> float:
    return sum(brokers.metric("dovetail_engine_rows_waiting", at) for at in (0, 1))
