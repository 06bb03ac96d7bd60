"""The disk reserve, on a disk of its own, which fills and empties."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dovetail.broker.store.disk_reserve import (
    DISK_BYTES_MIN,
    FREE_BYTES_MIN,
    RESERVE_BYTES,
    RESERVE_FILE,
    DiskReserve,
)
from dovetail.broker.store.journal import Batch
from dovetail.broker.store.sqlite import Store
from dovetail.errors import StoreError
from support.oracles.store import delivery, message, session
from support.processes.mounts import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES_MIN) as mounted:
        yield mounted


def test_it_is_spent_and_restored(disk: Path) -> None:
    reserve = DiskReserve(disk)
    reserve.prepare()
    file = disk / RESERVE_FILE
    assert file.stat().st_size == file.stat().st_blocks * 512 == RESERVE_BYTES
    assert (reserve.is_spent, file.exists()) == (False, True)
    filler = fill(disk)
    assert reserve.spend()
    assert (reserve.is_spent, file.exists()) == (True, False)
    (disk / "needed").write_bytes(bytes(RESERVE_BYTES))
    reserve.restore()
    assert (reserve.is_spent, file.exists()) == (True, False)
    assert not reserve.spend()
    filler.unlink()
    reserve.restore()
    assert (reserve.is_spent, file.exists()) == (False, True)
    assert file.stat().st_size == RESERVE_BYTES


def test_it_is_not_made_of_the_last_room(disk: Path) -> None:
    (disk / "filler").write_bytes(bytes(DISK_BYTES_MIN - FREE_BYTES_MIN + 4_096))
    reserve = DiskReserve(disk)
    reserve.prepare()
    assert not (disk / RESERVE_FILE).exists()
    assert not reserve.is_spent  # there was none: all is as it would be without


def test_a_small_disk_has_none(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES_MIN // 2) as disk:
        reserve = DiskReserve(disk)
        reserve.prepare()
        assert list(disk.iterdir()) == []


def test_a_store_goes_on_with_what_frees_room(disk: Path) -> None:
    """Far more of it than the reserve has: the log is kept within it."""
    with closing(Store.open(disk, "process")) as store:
        great = Batch(1)
        great.sessions[1] = session()
        great.messages = {number: message(bytes(1_000)) for number in range(1, 3_001)}
        great.deliveries = {(1, number): delivery(number) for number in great.messages}
        store.commit(great)
    with closing(Store.open(disk, "process")) as store:
        filler = fill(disk)
        failures = 0
        for number in range(1, 3_001):
            batch = Batch(number)
            batch.deliveries[1, number] = delivery(number)._replace(packet_id=number)
            try:
                store.commit(batch)
            except StoreError:
                failures += 1
                store.commit(batch)
            store.commit(Batch(number, messages={number: None}, deliveries={(1, number): None}))
        assert (failures, store.is_low) == (1, True)
        filler.unlink()
        store.commit(Batch(4_000))
        assert (store.is_low, store.load().deliveries) == (False, {})
