"""What an output of `dovetail stream` is: the one list of them is in job.py."""

from pathlib import Path
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from dovetail.pipeline.stream.current_boxes import Wanted
from dovetail.pipeline.stream.tally import Done, Tally


class Source(NamedTuple):
    """What is read, in the words of the command line."""

    place: str
    topics: str


class Output(Protocol):
    """Takes batches of archived rows. It is a query of its own, with a checkpoint of its own."""

    name: str
    interval_seconds: float
    """Between batches, unless the user says otherwise."""

    def check(self, checkpoint: Path, source: Source) -> None:
        """A ConfigError if this is another query than the checkpoint's. Nothing is written."""

    def begin(self, wanted: Wanted) -> None:
        """From now on the checkpoint is of this query."""

    def take(self, rows: DataFrame, number: int) -> Done: ...

    def summary(self, tally: Tally) -> list[str]:
        """What came out, and where it lies."""
