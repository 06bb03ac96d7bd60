"""A result folder appears whole or not at all, and nobody else's folder is touched."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.spark.output_folder import result_folder, write_errors


def is_ours(folder: Path) -> bool:
    return (folder / "ours").exists()


def write(out: Path, text: str = "new", then: Callable[[], object] = bool) -> None:
    with result_folder(out, is_ours) as folder:
        (folder / "ours").write_text(text)
        then()


def fail() -> None:
    raise ZeroDivisionError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results [1]"


def test_appears_when_whole(out: Path) -> None:
    with result_folder(out, is_ours) as folder:
        (folder / "ours").write_text("new")
        assert folder.parent == out.parent
        assert not out.exists()
    assert names(out.parent) == [out.name]
    assert names(out) == ["ours"]
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o777 & ~mask


def test_folders_above_are_made(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "c")
    assert names(tmp_path / "a" / "b") == ["c"]


def test_earlier_result_is_replaced(out: Path) -> None:
    write(out, "old")
    write(out, "new")
    assert (out / "ours").read_text() == "new"
    assert names(out.parent) == [out.name]


def test_empty_folder_is_taken(out: Path) -> None:
    out.mkdir()
    write(out)
    assert names(out) == ["ours"]


def test_link_to_a_folder_stays_a_link(out: Path, tmp_path: Path) -> None:
    out.symlink_to(tmp_path / "real")
    write(out, "old")
    write(out, "new")
    assert out.is_symlink()
    assert (tmp_path / "real" / "ours").read_text() == "new"


def test_failure_leaves_the_earlier_result(out: Path) -> None:
    write(out, "old")
    with pytest.raises(ZeroDivisionError):
        write(out, "half", fail)
    assert (out / "ours").read_text() == "old"
    assert names(out.parent) == [out.name]


def test_foreign_folder_is_left_alone(out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").touch()
    (out / "zebra.txt").touch()
    with pytest.raises(ConfigError, match=r"something else .*\(thesis\.txt and 1 more\)"):
        write(out)
    assert names(out) == ["thesis.txt", "zebra.txt"]
    assert names(out.parent) == [out.name]


def test_folder_that_becomes_foreign_meanwhile_is_left_alone(out: Path) -> None:
    def intrude() -> None:
        out.mkdir()
        (out / "thesis.txt").touch()

    with pytest.raises(ConfigError, match="something else"):
        write(out, "new", intrude)
    assert names(out) == ["thesis.txt"]
    assert names(out.parent) == [out.name]


def test_file_is_no_folder(out: Path) -> None:
    out.touch()
    with pytest.raises(ConfigError, match="not a folder"):
        write(out)


def test_current_folder_cannot_be_replaced(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out.mkdir()
    monkeypatch.chdir(out)
    with pytest.raises(ConfigError, match="current folder"):
        write(Path())


def test_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DovetailError, match="a part of its path is a file"):
        write(tmp_path / "file" / "results")


def test_unwritable_folder() -> None:
    # Root may write anywhere, and yet not there.
    with pytest.raises(DovetailError, match="/proc/results cannot be written") as refusal:
        write(Path("/proc/results"))
    assert "Name another folder with --out." in str(refusal.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk(out: Path) -> None:
    def fill() -> None:
        with write_errors(out):
            Path("/dev/full").write_text("x")

    with pytest.raises(DovetailError, match="no space left on device") as failure:
        write(out, "half", fill)
    assert "Free some space" in str(failure.value)
    assert names(out.parent) == []


KILLED = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from dovetail.pipeline.spark.output_folder import result_folder
    with result_folder(Path(sys.argv[1]), lambda folder: True) as folder:
        (folder / "ours").write_text("half")
        print("writing", flush=True)
        time.sleep(60)
    """
)


def test_killed_run_is_cleared_away_by_the_next(out: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        with pytest.raises(ConfigError, match="another run is writing"):
            write(out)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not out.exists()
    assert len(names(out.parent)) == 1
    write(out)
    assert names(out.parent) == [out.name]


def test_killed_between_the_renames_brings_the_earlier_result_back(out: Path) -> None:
    write(out, "old")
    out.rename(out.with_name(f".{out.name}.replaced-abc"))
    with pytest.raises(ZeroDivisionError):
        write(out, "half", fail)
    assert (out / "ours").read_text() == "old"
    assert names(out.parent) == [out.name]
