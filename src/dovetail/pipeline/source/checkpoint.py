"""The offsets of a batch, read from Spark's checkpoint.

Spark writes the file `offsets/N` before batch N runs, and the file stays when the batch is repeated
after a kill. It has a line with the version, one of Spark's own, and then `{"broker": sequence}`
for each source. `commits/N` appears when the batch is done. Spark keeps the last hundred. This
module only reads.
"""

import json
from pathlib import Path
from typing import NamedTuple

from dovetail.errors import DovetailError
from dovetail.pipeline.source.offsets import Offsets

_NONE = "-"
"""Stands for a source without an offset yet."""


class BatchOffsets(NamedTuple):
    """Rows above `start` and up to `end`, of each broker."""

    start: Offsets
    end: Offsets


def offsets_of_batch(checkpoint: Path, batch: int, source: int = 0) -> BatchOffsets:
    """Return the offsets of a batch that runs or has run, for source number `source`."""
    end = _read(checkpoint, batch, source)
    if end is None:
        raise DovetailError(f"{checkpoint} knows no batch {batch}.")
    return BatchOffsets(_read(checkpoint, batch - 1, source) or {}, end)


def last_batch(checkpoint: Path) -> int | None:
    """Return the number of the batch that was begun last."""
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
