"""`dovetail stream` as users run it, beside a real broker: killed, restarted and stopped."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from dovetail.archive.subscription_files import SubscriptionRow, id_of
from dovetail.topics.names import matches
from support.archives import SETTINGS, read
from support.brokers.wire_client import WireClient
from support.processes.broker_process import (
    START_SECONDS,
    BrokerProcess,
    ManagedProcess,
    wait_until,
)

ROWS = 500


class StreamProcess(ManagedProcess):
    """Into a table."""

    def __init__(self, broker: BrokerProcess, out: Path) -> None:
        super().__init__()
        self._url = f"http://127.0.0.1:{broker.port_of('http')}"
        self.out = out

    def start(self) -> None:
        options = ("--interval", 0, "--rows-per-batch", 100, "--master", "local[2]")
        self.run("stream", "--url", self._url, "--out", self.out, *options)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        wait_until(
            lambda: condition() or not self.is_running,
            f"{what}\n{self.output()}",
            seconds=START_SECONDS,
        )
        assert self.is_running, self.output()

    def batches(self) -> list[str]:
        """That are whole."""
        return [one.name for one in self.out.glob("batch=*")]

    def rows(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self.out.glob("batch=*/*.parquet"))


def publish(broker: BrokerProcess, count: int) -> None:
    with WireClient(broker.port, "publisher") as client:
        for number in range(count):
            client.publish(f"a/{number % 7}", b"%d" % number, 1)


def subscribed(broker: BrokerProcess, name: str, topic_filter: str) -> SubscriptionRow:
    """By a client whose session is kept."""
    with WireClient(broker.port, name, persistent=True) as client:
        client.subscribe(topic_filter, 1)
        client.disconnect()
    return SubscriptionRow(name, topic_filter, 1)


def test_no_row_is_lost_or_doubled_by_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        wanting = [subscribed(broker, "anna", "a/#"), subscribed(broker, "bert", "+/3")]
        publish(broker, ROWS // 2)
        with StreamProcess(broker, tmp_path / "table") as stream:
            stream.wait_for(stream.batches, "a batch that is whole")
            # One that is there, and not noted as done, is a matter of pipeline/stream/test_job.py.
            stream.wait_for(lambda: [*stream.out.glob(".batch=*")], "a batch that is written")
            stream.kill()
            publish(broker, ROWS // 2)
            stream.start()
            stream.wait_for(lambda: stream.rows() >= ROWS, "all rows")
            # Somebody comes while it runs.
            late = subscribed(broker, "carl", "+/1")
            publish(broker, 20)
            stream.wait_for(lambda: stream.rows() >= ROWS + 20, "new rows")
            stream.stop()
            assert f"output  {stream.out}\n" in stream.printed()
    rows = pq.read_table(stream.out).to_pylist()
    found = [(row["message"], row["topic"], sorted(row["subscriptions"])) for row in rows]
    expected = [
        (
            f"one-{row['sequence']}",
            row["topic"],
            sorted(
                id_of(one)
                for one in (*wanting, *([late] if place >= ROWS else []))
                if matches(one.key, row["topic"])
            ),
        )
        for place, row in enumerate(read(tmp_path / "archive"))
    ]
    assert sorted(found) == sorted(expected)
    assert [one.name for one in stream.out.glob(".batch*")] == []
