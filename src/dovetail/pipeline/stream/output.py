"""The protocol of an output of `dovetail stream`. The list of outputs is in job.py."""

from pathlib import Path
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from dovetail.pipeline.stream.current_boxes import CurrentBoxes
from dovetail.pipeline.stream.tally import BatchResult, StreamTally


class StreamSource(NamedTuple):
    """What a stream reads, as the command line names it."""

    location: str
    topics: str


class Output(Protocol):
    """Takes batches of archived rows. Each output is a query with a checkpoint of its own."""

    name: str
    interval_seconds: float
    """The default interval between batches."""

    def check(self, checkpoint: Path, source: StreamSource) -> None:
        """Raise a ConfigError if the checkpoint is of another query. Write nothing."""

    def begin(self, boxes: CurrentBoxes) -> None:
        """Tie the checkpoint to this query."""

    def take(self, rows: DataFrame, number: int) -> BatchResult:
        """Match the rows of a batch, and write the matches."""

    def summary(self, tally: StreamTally) -> list[str]:
        """Return lines that say what was written, and where."""
