"""`dovetail backup`: copies a running broker's data, and another broker restores it."""

import shutil
from pathlib import Path

import pytest

from dovetail.broker.store.sqlite import Store
from support.processes.broker_process import BrokerProcess
from support.processes.client_commands import refusal, run

SUBSCRIBER = ("orders/+", "--client-id", "till", "--keep-session", "--qos", "1")


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_running_broker_is_copied_and_restored(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with BrokerProcess(make_folder(tmp_path / "first")) as first:
        port = ("--port", first.port)
        # It subscribes, and leaves after the first message: the second and third wait for it.
        run("pub", *port, "orders/1", "one", "--qos", 1, "--retain")
        assert run("sub", *port, *SUBSCRIBER, "--count", 1).text == "one\n"
        run("pub", *port, "orders/2", "two", "--qos", 1)
        run("pub", *port, "orders/3", "three", "--qos", 2)
        said = run("backup", "--data", first.data, copy).text
        assert said == f"{copy}: {copy.stat().st_size:,} bytes, a copy of {first.data}\n"
        assert copy.stat().st_mode & 0o777 == 0o600
        # Later messages are not in the copy; and the broker has gone on undisturbed.
        run("pub", *port, "orders/4", "four", "--qos", 1)
        owed = run("sub", *port, *SUBSCRIBER, "--no-retained", "--count", 3).text
        assert owed == "two\nthree\nfour\n"

    folder = make_folder(tmp_path / "second")
    make_folder(folder / "data")
    shutil.copy(copy, folder / "data" / "dovetail.db")
    with BrokerProcess(folder) as second:
        port = ("--port", second.port)
        owed = run("sub", *port, *SUBSCRIBER, "--no-retained", "--count", 2).text
        assert owed == "two\nthree\n"
        # The copy has retained messages, too.
        assert run("sub", *port, "orders/#", "--verbose", "--count", 1).text == "orders/1 one\n"


def test_without_a_broker_and_from_the_default_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with BrokerProcess(make_folder(tmp_path / "first")) as first:
        run("pub", "--port", first.port, "lamp", "on", "--qos", 1, "--retain")
    first.data.rename(tmp_path / "dovetail-data")
    assert run("backup", "copy.db").text.endswith("a copy of dovetail-data\n")
    said = refusal(run("backup", "copy.db"))
    assert said.startswith(f"{tmp_path / 'copy.db'} is there already")


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    said = refusal(run("backup", "--data", tmp_path / "missing", tmp_path / "copy.db"))
    assert said.startswith(f"{tmp_path / 'missing'} holds no data of Dovetail.\n")
    assert "--data" in said


def test_folders_of_several_brokers_are_named(tmp_path: Path) -> None:
    for number in (1, 2):
        Store.open(tmp_path / "a b" / f"broker-{number}", "process").close()
    said = refusal(run("backup", "--data", tmp_path / "a b", tmp_path / "copy.db"))
    assert f"--data: '{tmp_path}/a b/broker-1', '{tmp_path}/a b/broker-2'\n" in said
