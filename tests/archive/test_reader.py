"""A real broker's archive, read over HTTP while the broker writes and is killed."""

import json
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.archives import SETTINGS, Publisher, read
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until


def rows_of(broker: BrokerProcess, after: int, **query: int) -> tuple[list[dict[str, object]], int]:
    given = "".join(f"&{name}={value}" for name, value in query.items())
    url = f"http://127.0.0.1:{broker.port_of('http')}/archive/rows?after={after}{given}"
    with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
        table = pa.ipc.open_stream(response.read()).read_all()
        return table.to_pylist(), int(response.headers["dovetail-upto"])


def test_a_reader_gets_each_row_once_while_the_broker_writes_and_is_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    got: list[dict[str, object]] = []
    offset = 0
    publisher: Publisher | None = None
    for _ in range(2):
        broker.start()
        publisher = Publisher(broker.port, 1, publisher)
        enough = len(publisher.acknowledged) + 1_000
        while len(publisher.acknowledged) < enough:
            with suppress(urllib.error.URLError):
                found, offset = rows_of(broker, offset, rows=37)
                got += found
        broker.kill()
        publisher.end()
    assert publisher is not None
    broker.start()
    _, latest = json_of(broker, "/archive")
    while offset < latest["latest"]:
        found, offset = rows_of(broker, offset, bytes=20_000)
        got += found
    broker.stop()
    assert got == read(tmp_path / "archive")
    assert {*publisher.acknowledged} <= {row["payload"] for row in got}


def json_of(broker: BrokerProcess, path: str) -> tuple[int, Any]:
    status, body = broker.get(path)
    return status, json.loads(body)


def test_the_report_of_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        status, told = json_of(broker, "/archive")
        assert (status, told["runs"], told["latest"]) == (200, [], None)
        with WireClient(broker.port, "client") as client:
            for number in range(5):
                client.publish("a/1", b"%d" % number, 1)
        # What was acknowledged is there at once, whether or not it is in a file.
        _, told = json_of(broker, "/archive")
        (run,) = told["runs"]
        assert run == [told["earliest"], told["latest"]] == [run[0], run[0] + 4]
        assert told["folder"] == str(folder)
        _, told = json_of(broker, f"/archive?after={run[0] + 1}")
        assert told["runs"] == [[run[0] + 2, run[1]]]
        found, _ = rows_of(broker, run[0], upto=run[0] + 2)
        assert [row["payload"] for row in found] == [b"1", b"2"]
        assert rows_of(broker, run[1] + 7)[0] == []
        assert json_of(broker, "/archive/rows?after=-1")[0] == 400
        assert json_of(broker, "/archive/rows?rows=many")[0] == 400
        wait_until(lambda: broker.metric("archive_rows_waiting") == 0, "a file")
        files = [*folder.rglob("one-*.parquet")]
        for file in files:
            file.write_bytes(b"nothing")
        with pytest.raises(urllib.error.HTTPError, match="500"):
            rows_of(broker, 0)
        for file in files:
            file.unlink()
        assert json_of(broker, "/archive")[1]["earliest"] is None


def test_a_broker_without_an_archive_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert json_of(broker, "/archive") == (
            404,
            {"error": "this broker has no archive: its configuration names no archive.topics"},
        )
