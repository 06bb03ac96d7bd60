"""A stream continues only with its own checkpoint and its own table."""

from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.pipeline.stream.checkpoint_record import (
    CheckpointRecord,
    QueryIdentity,
    TableRecord,
    check_ids,
    check_query,
    check_table,
    locked,
    write_query,
    write_table,
)

QUERY = QueryIdentity("http://127.0.0.1:8080", "", "/srv/matched", "a row for each message")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return the record of a table that has a batch."""
    folder = tmp_path / "checkpoint"
    with locked(folder):
        mark = check_query(folder, "table", QUERY)
        write_query(folder, "table", mark)
        write_table(tmp_path / "out", TableRecord(mark.id, str(folder), "bigint"))
    (folder / "table" / "offsets").mkdir(parents=True)
    (folder / "table" / "offsets" / "0").write_text("v1\n{}\n{}\n")
    return folder


def mark_of(checkpoint: Path) -> CheckpointRecord:
    return check_query(checkpoint, "table", QUERY)


def test_the_same_query_goes_on(checkpoint: Path, tmp_path: Path) -> None:
    mark = mark_of(checkpoint)
    assert mark == mark_of(checkpoint)
    found = check_table(tmp_path / "out", checkpoint, "table", mark)
    assert found == TableRecord(mark.id, str(checkpoint), "bigint")
    # Another kind of query beside it has a checkpoint of its own.
    assert check_query(checkpoint, "publish", QUERY).id != mark.id


@pytest.mark.parametrize("field", QueryIdentity.__struct_fields__)
def test_another_query_is_refused(checkpoint: Path, field: str) -> None:
    given = {name: getattr(QUERY, name) for name in QueryIdentity.__struct_fields__}
    with pytest.raises(ConfigError, match=rf"is the checkpoint of another stream \({field}: "):
        check_query(checkpoint, "table", QueryIdentity(**{**given, field: "other"}))


def test_two_at_once_are_refused(checkpoint: Path) -> None:
    with (
        locked(checkpoint),
        pytest.raises(ConfigError, match="another stream runs with"),
        locked(checkpoint),
    ):
        pytest.fail("it has two")
    with locked(checkpoint):  # and one after the other
        pass


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["metadata", "offsets"], "is the checkpoint of another program's query"),
        (["letter.txt"], r"something else than a checkpoint of this command \(letter.txt\)"),
    ],
)
def test_folders_of_others_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=said), locked(tmp_path):
        pytest.fail("it is locked")
    assert sorted(one.name for one in tmp_path.iterdir()) == names
    with pytest.raises(ConfigError, match="is not a folder"), locked(tmp_path / names[0]):
        pytest.fail("it is locked")


def test_a_table_of_another_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    with pytest.raises(ConfigError, match=f"was written with the checkpoint {checkpoint}, and not"):
        check_table(out, other, "table", CheckpointRecord("other", QUERY))
    checkpoint.rename(tmp_path / "lost")
    with pytest.raises(ConfigError, match=f"{checkpoint}, which is gone, and not with {other}"):
        check_table(out, other, "table", CheckpointRecord("other", QUERY))


def test_a_missing_table_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    mark = mark_of(checkpoint)
    (tmp_path / "out").rename(tmp_path / "away")
    with pytest.raises(ConfigError, match=r"has gone, and its checkpoint .* is at batch 0"):
        check_table(tmp_path / "out", checkpoint, "table", mark)
    assert check_table(tmp_path / "out", tmp_path / "new", "table", mark) is None


def test_foreign_files_are_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    mark = mark_of(checkpoint)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").touch()
    with pytest.raises(ConfigError, match=r"than a table of this command \(one.txt\)"):
        check_table(tmp_path / "letters", checkpoint, "table", mark)
    with pytest.raises(ConfigError, match="is not a folder"):
        check_table(tmp_path / "letters" / "one.txt", checkpoint, "table", mark)
    (checkpoint / "table.json").write_text("{")
    with pytest.raises(ConfigError, match=r"table.json cannot be read"):
        mark_of(checkpoint)
    (checkpoint / "table.json").unlink()
    with pytest.raises(ConfigError, match="does not say of what"):
        mark_of(checkpoint)


def test_ids_stay_of_one_type(tmp_path: Path) -> None:
    check_ids(tmp_path, None, "string")
    check_ids(tmp_path, TableRecord("1", "c", "string"), "string")
    with pytest.raises(ConfigError, match=r"are bigint, and in .* they are string"):
        check_ids(tmp_path, TableRecord("1", "c", "string"), "bigint")
