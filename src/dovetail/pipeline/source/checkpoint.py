"""What Spark's checkpoint says of a batch: from which offsets to which it goes.

Spark writes `offsets/N` before batch N runs, so it is there whenever the batch is, and stays when
the batch is done again after a kill: `{"broker": sequence}` for each source, a line each, behind a
line with the version and one of Spark's own. `commits/N` is there when the batch is over. Spark
keeps the last hundred. Nothing here is written.
"""

import json
from pathlib import Path
from typing import NamedTuple

from dovetail.errors import DovetailError
from dovetail.pipeline.source.offsets import Offsets

_NONE = "-"
"""What stands for a source that has no offset yet."""


class BatchOffsets(NamedTuple):
    """Rows above `start` and up to `end`, of each broker."""

    start: Offsets
    end: Offsets


def offsets_of_batch(checkpoint: Path, batch: int, source: int = 0) -> BatchOffsets:
    """Of a batch that runs, or has run. `source`: where a query has several."""
    end = _read(checkpoint, batch, source)
    if end is None:
        raise DovetailError(f"{checkpoint} knows no batch {batch}.")
    return BatchOffsets(_read(checkpoint, batch - 1, source) or {}, end)


def last_batch(checkpoint: Path) -> int | None:
    """The one that was begun last."""
    folder = checkpoint / "offsets"
    if not folder.is_dir():
        return None
    return max((int(file.name) for file in folder.iterdir() if file.name.isdecimal()), default=None)


def _read(checkpoint: Path, batch: int, source: int) -> Offsets | None:
    file = checkpoint / "offsets" / str(batch)
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    try:
        line = lines[2 + source]
        return {} if line == _NONE else {str(k): int(v) for k, v in json.loads(line).items()}
    except (IndexError, ValueError, AttributeError):
        raise DovetailError(f"{file} is no offset of this source.") from None
