"""The table of subscriptions beside an archive: its versions and rows."""

import itertools
from pathlib import Path

import pyarrow.parquet as pq

from dovetail.archive.files import files_of, subscription_versions, subscriptions_of
from dovetail.archive.limits import ARCHIVE_SUBSCRIPTIONS_KEPT
from dovetail.archive.subscription_files import SCHEMA, SubscriptionFile, SubscriptionRow, id_of
from dovetail.attributes.clauses import key_of
from dovetail.broker.limits import HANDLE_PREFIX

ROWS = [
    SubscriptionRow("c", "a/#", 1),
    SubscriptionRow("c", key_of("traffic/#", "speed < 25"), 0),
    SubscriptionRow(f"{HANDLE_PREFIX}secret", "$share/g/b", 2),
]


def write(folder: Path, broker: str, now: float, rows: list[SubscriptionRow]) -> None:
    file = SubscriptionFile(folder, broker, now)
    for start in range(0, len(rows), 2):
        file.add(rows[start : start + 2])
    file.finish()


def test_columns(tmp_path: Path) -> None:
    write(tmp_path, "one", 1.5, ROWS)
    (file,) = subscriptions_of(tmp_path)
    assert file == tmp_path / "subscriptions/version=1500/one.parquet"
    table = pq.ParquetFile(file).read()
    assert table.schema == SCHEMA
    plain, clause, handle = table.to_pylist()
    assert plain == {
        "id": id_of(ROWS[0]),
        "filter": "a/#",
        "where": None,
        "client": "c",
        "qos": 1,
        "broker": "one",
    }
    assert (clause["filter"], clause["where"]) == ("traffic/#", "speed < 25")
    assert handle["client"].startswith(HANDLE_PREFIX)
    assert "secret" not in handle["client"]
    assert len({plain["id"], clause["id"], handle["id"]}) == 3
    assert files_of(tmp_path) == []


def test_the_newest_of_each_broker_counts(tmp_path: Path) -> None:
    assert subscriptions_of(tmp_path) == []
    for now, broker in ((1, "one"), (2, "two"), (3, "one")):
        write(tmp_path, broker, now, ROWS)
    begun = SubscriptionFile(tmp_path, "two", 4)
    begun.add(ROWS)

    def listed(version: int | None = None) -> list[str]:
        return [f"{file.parent.name} {file.stem}" for file in subscriptions_of(tmp_path, version)]

    assert listed() == ["version=3000 one", "version=2000 two"]
    assert listed(2_500) == ["version=1000 one", "version=2000 two"]
    assert listed(10) == []
    begun.give_up()
    assert not (tmp_path / "subscriptions/version=4000").exists()


def test_versions_rise_and_old_ones_go(tmp_path: Path) -> None:
    clock = itertools.chain((50, 40, 40), itertools.repeat(60))  # it may be set back
    for now in itertools.islice(clock, ARCHIVE_SUBSCRIPTIONS_KEPT + 2):
        write(tmp_path, "one", now, [])
    versions = [version for version, _ in subscription_versions(tmp_path, "one")]
    assert len(versions) == ARCHIVE_SUBSCRIPTIONS_KEPT
    assert versions[0] == 50_002
    assert versions[1:] == [*range(60_000, 60_000 + ARCHIVE_SUBSCRIPTIONS_KEPT - 1)]
    assert len([*(tmp_path / "subscriptions").iterdir()]) == ARCHIVE_SUBSCRIPTIONS_KEPT


def test_unfinished_files_of_an_earlier_life_are_deleted(tmp_path: Path) -> None:
    killed = SubscriptionFile(tmp_path, "one", 1)
    killed.add(ROWS)
    other = SubscriptionFile(tmp_path, "one-more", 2)
    write(tmp_path, "one", 3, ROWS)
    other.finish()
    versions = {place.name for place in (tmp_path / "subscriptions").iterdir()}
    assert versions == {"version=2000", "version=3000"}


def test_batches_are_joined_into_large_row_groups(tmp_path: Path) -> None:
    file = SubscriptionFile(tmp_path, "one", 1)
    for start in range(0, 5_000, 100):
        file.add([SubscriptionRow("c", f"{number}", 0) for number in range(start, start + 100)])
    file.finish()
    metadata = pq.ParquetFile(*subscriptions_of(tmp_path)).metadata
    assert (metadata.num_rows, metadata.num_row_groups) == (5_000, 2)
