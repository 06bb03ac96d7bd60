"""Rows that are there and not read yet."""

from pathlib import Path

from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import Spaces
from dovetail.pipeline.source.archives import Folder
from dovetail.pipeline.stream.lag import Waiting
from support.archives import rows_of


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
