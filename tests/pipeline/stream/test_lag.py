"""The count of rows that wait to be read."""

from pathlib import Path

from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.pipeline.source.archives import ArchiveFolder
from dovetail.pipeline.stream.lag import LagMonitor
from support.archives import rows_of


def test_waiting_rows_are_counted(tmp_path: Path) -> None:
    archive, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    ArchiveWriter(archive, 1 << 20, SpaceRegistry()).write(rows_of(range(1, 21)))
    waiting = LagMonitor(
        ArchiveFolder(str(archive)), {"table": checkpoint, "publish": tmp_path / "none"}
    )
    waiting.refresh()
    assert waiting.rows == {}
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"one": 14}\n')
    waiting.refresh()
    assert waiting.rows == {"table": 6}
