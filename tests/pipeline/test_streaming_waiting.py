"""Rows that are there and not read yet."""

from pathlib import Path

from archives import rows_of
from dovetail.archive.writing import ArchiveWriter
from dovetail.broker.spaces import Spaces
from dovetail.pipeline.places import Folder
from dovetail.pipeline.streaming_waiting import Waiting


def test_rows_that_wait(tmp_path: Path) -> None:
    archive, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    ArchiveWriter(archive, 1 << 20, Spaces()).write(rows_of(range(1, 21)))
    waiting = Waiting(Folder(str(archive)), {"table": checkpoint, "publish": tmp_path / "none"})
    waiting.look()
    assert waiting.rows == {}
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"one": 14}\n')
    waiting.look()
    assert waiting.rows == {"table": 6}
