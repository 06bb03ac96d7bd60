"""`dovetail stream` over an archive, on a real Spark; and what is refused."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from dovetail.archive.subscription_files import SubscriptionFile, SubscriptionRow, id_of
from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.match.bulk import read_boxes
from dovetail.pipeline.stream import current_boxes, job
from dovetail.pipeline.stream.job import StreamOptions, stream
from support.archives import BEGIN, row
from support.processes.mounts import small_disk

ALL = SubscriptionRow("anna", "a/#", 1)
ONE = SubscriptionRow("bert", "a/1", 1)
LATE = SubscriptionRow("carl", "+/2", 0)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    publish(folder, range(1, 11))
    subscribe(folder, 1, [ALL, ONE])
    return folder


def publish(folder: Path, sequences: Sequence[int]) -> None:
    """Publish on a/0, a/1, a/2 in turn."""
    rows = [(one, row(BEGIN + one, b"a/%d" % (one % 3), b"%d" % one)) for one in sequences]
    assert ArchiveWriter(folder, 1 << 20, SpaceRegistry()).write(rows).error is None


def subscribe(folder: Path, now: float, rows: list[SubscriptionRow]) -> None:
    file = SubscriptionFile(folder, "one", now)
    file.add(rows)
    file.finish()


@pytest.fixture
def own_spark(lend: Callable[[ModuleType], None]) -> None:
    lend(job)


def run(folder: Path, **options: object) -> None:
    given: dict[str, Any] = {
        "archive": str(folder),
        "out": str(folder.parent / "out"),
        "is_available_now": True,
        **options,
    }
    stream(StreamOptions(**given))


def table(out: Path) -> dict[str, set[int]]:
    """Return each message once, with its subscriptions."""
    rows = pq.read_table(out).to_pylist()
    assert len({one["message"] for one in rows}) == len(rows)
    assert all(one["topic"] == f"a/{int(one['message'][4:]) % 3}" for one in rows)
    return {one["message"]: {*one["subscriptions"]} for one in rows}


def expected(sequences: Sequence[int], *wanting: SubscriptionRow) -> dict[str, set[int]]:
    topics = {ALL: (0, 1, 2), ONE: (1,), LATE: (2,)}
    return {
        f"one-{number}": {id_of(one) for one in wanting if number % 3 in topics[one]}
        for number in sequences
    }


@pytest.mark.usefixtures("own_spark")
def test_a_stream_continues_with_new_messages_and_new_subscriptions(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = archive.parent / "out"
    run(archive, batch_rows_max=6)
    assert table(out) == expected(range(1, 11), ALL, ONE)
    printed = capsys.readouterr()
    assert "in      10 messages, in batches: 2\n" in printed.out
    assert "out     10 rows, 14 pairs of message and subscription\n" in printed.out
    assert f"output  {out}\n" in printed.out
    assert "Spark's page for this run: http://127.0.0.1:" in printed.err
    assert "table: " in printed.err
    publish(archive, range(11, 16))
    subscribe(archive, 2, [ALL, LATE])
    run(archive)
    assert table(out) == {
        **expected(range(1, 11), ALL, ONE),
        **expected(range(11, 16), ALL, LATE),
    }
    assert "in      5 messages, in batches: 1\n" in capsys.readouterr().out
    # Killed before Spark had noted that the batch was done: it is there, and stays.
    for name in ("2", ".2.crc"):
        (archive.parent / "out.checkpoint/table/commits" / name).unlink()
    subscribe(archive, 3, [])
    run(archive)
    assert len(table(out)) == 15
    # A table that is there is its stream's alone.
    with pytest.raises(ConfigError, match="kind: a row for each message, and now a row for each"):
        run(archive, as_pairs=True)
    with pytest.raises(ConfigError, match="was written with the checkpoint"):
        run(archive, checkpoint=archive.parent / "other")
    assert not (archive.parent / "other").exists()


@pytest.mark.usefixtures("own_spark")
@pytest.mark.parametrize("boxes_shipped_max", [1_000, 1], ids=["shipped", "cut"])
def test_pairs_of_files_and_clauses(
    archive: Path, boxes_shipped_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(read_boxes, boxes_shipped_max=boxes_shipped_max)
    monkeypatch.setattr(current_boxes, "read_boxes", few)
    (archive.parent / "s.csv").write_text("id,filter,where\nx,a/1,speed < 3\ny,a/+,\n")
    (archive.parent / "dovetail.toml").write_text(
        '[spaces.a]\ntopics = "a/#"\ndimensions = { speed = [0, 9] }\n'
    )
    given = {
        "subscriptions": str(archive.parent / "s.csv"),
        "topics": "a/1,a/2",
        "as_pairs": True,
        "out": str(archive.parent / "pairs"),
    }
    with pytest.raises(DovetailError, match="subscription 'x' cannot be used: no space"):
        run(archive, **given)
    assert not (archive.parent / "pairs").exists()
    run(archive, **given, config=archive.parent / "dovetail.toml")
    rows = pq.read_table(archive.parent / "pairs").sort_by("message").to_pylist()
    assert [(one["message"], one["subscription"]) for one in rows] == [
        (f"one-{number}", "y") for number in (1, 10, 2, 4, 5, 7, 8)
    ]


@pytest.mark.usefixtures("own_spark")
def test_on_other_storage_only_an_interrupted_batch_is_replaced(archive: Path) -> None:
    out = archive.parent / "elsewhere"
    checkpoint = archive.parent / "checkpoint"
    run(archive, out=f"file://{out}", checkpoint=checkpoint)
    assert table(out) == expected(range(1, 11), ALL, ONE)
    for name in ("0", ".0.crc"):
        (checkpoint / "table/commits" / name).unlink()
    next(out.glob("batch=000000/*.parquet")).unlink()
    run(archive, out=f"file://{out}", checkpoint=checkpoint)
    assert table(out) == expected(range(1, 11), ALL, ONE)
    with pytest.raises(DovetailError, match="already exists"):
        run(archive, out=f"file://{out}", checkpoint=archive.parent / "other")
    assert table(out) == expected(range(1, 11), ALL, ONE)


@pytest.mark.usefixtures("own_spark")
class TestFailures:
    def test_a_damaged_file(self, archive: Path) -> None:
        publish(archive, range(11, 13))
        file = next(archive.rglob("one-11-12.parquet"))
        good = file.read_bytes()
        file.write_bytes(good[:-30])
        with pytest.raises(DovetailError, match=rf"^{file} cannot be read: Parquet magic bytes"):
            run(archive, batch_rows_max=10)
        file.write_bytes(good)
        run(archive, batch_rows_max=10)
        assert table(archive.parent / "out") == expected(range(1, 13), ALL, ONE)

    def test_a_full_disk(self, archive: Path, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", 256 << 10) as disk:
            filler = disk / "filler"
            filler.write_bytes(b"x" * (244 << 10))
            out = disk / "out"
            options = {"out": str(out), "checkpoint": tmp_path / "checkpoint"}
            publish(archive, range(11, 5_000))
            with pytest.raises(DovetailError, match="no space left"):
                run(archive, **options)
            assert [one.name for one in out.glob("*batch*")] == []
            filler.unlink()
            run(archive, **options)
            assert len(table(out)) == 4_999


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://127.0.0.1:9"}, "it takes --url or --archive"),
        ({"archive": None, "url": "http://127.0.0.1:9"}, r"no node answers at http://127\.0\.0"),
        ({"archive": "nowhere"}, "there is no folder .*nowhere"),
        ({"subscriptions": "nowhere.csv"}, "there is no file or folder nowhere.csv"),
        ({"out": None}, "there is nowhere for matches to go"),
        ({"publish": "mqtt://127.0.0.1:1883"}, "--publish and --topic go together"),
        ({"publish": "http://127.0.0.1", "prefix": "m"}, "address of an MQTT server"),
        ({"publish": "mqtt://127.0.0.1:1883", "prefix": "m/#"}, "--topic cannot be 'm/#'"),
        ({"out": "hdfs://host/table"}, "--checkpoint is missing"),
        ({"topics": "a/#/b"}, "topics: a/#/b"),
        ({"master": "sc://127.0.0.1:15002"}, "does not run on a Spark Connect server"),
        ({"master": "nonsense"}, "not a Spark master"),
    ],
)
def test_refused_before_spark(
    archive: Path, options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "open_session", lambda _: pytest.fail("Spark was started"))
    with pytest.raises(DovetailError, match=said):
        run(archive, **options)
    assert sorted(one.name for one in archive.parent.iterdir()) == ["archive"]


def test_a_table_of_something_else(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "open_session", lambda _: pytest.fail("Spark was started"))
    out = archive.parent / "out"
    out.mkdir()
    (out / "letter").write_text("dear")
    with pytest.raises(ConfigError, match=r"holds something else than a table .*\(letter\)"):
        run(archive)
    assert [one.name for one in out.iterdir()] == ["letter"]
