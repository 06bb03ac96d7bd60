"""The boxes of the current subscriptions while a stream runs: read again when they have changed.

Before each batch the stream checks the version of its subscriptions, which costs little. If it has
changed, the subscriptions are read and become boxes (pipeline/match/bulk.py), for this and later
batches. Subscriptions that cannot be read, as in a half-written file, do not stop a stream: the
last boxes stay, and the stream says so once. At the start this is an error.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dovetail.attributes.space import Space
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.match.bulk import SubscriptionBoxes, match_boxes, read_boxes
from dovetail.pipeline.spark.failures import explain


class SubscriptionSource(Protocol):
    """A place to read subscriptions from (subscription_sources.py)."""

    def version(self) -> Hashable:
        """Return a value that differs when the subscriptions have changed."""

    def read(self) -> DataFrame:
        """Return the subscriptions as of the last call of `version`, or later."""


class CurrentBoxes:
    """The newest boxes, for all queries of a session."""

    def __init__(
        self,
        source: SubscriptionSource,
        spaces: Callable[[], tuple[Space, ...]],
        say: Callable[[str], None],
        tasks: int | None = None,
    ) -> None:
        """`spaces` is called at each refresh. `tasks` as in `match`."""
        self._source = source
        self._spaces = spaces
        self._say = say
        self._tasks = tasks
        self._seen: Hashable = None
        self._boxes: SubscriptionBoxes | None = None
        self._is_failing = False
        self._lock = threading.Lock()

    def boxes(self) -> SubscriptionBoxes:
        with self._lock:
            try:
                self._refresh()
            except (DovetailError, PySparkException) as error:
                failure = error if isinstance(error, DovetailError) else explain(error)
                if self._boxes is None:
                    raise failure from error
                if not self._is_failing:
                    self._say(f"Subscriptions stay as they were: {failure.message}")
                self._is_failing = True
            assert self._boxes is not None
            return self._boxes

    def match(self, messages: DataFrame, *, as_pairs: bool) -> DataFrame:
        """Return the matches of these messages with the current subscriptions."""
        return match_boxes(messages, self.boxes(), as_pairs=as_pairs, tasks=self._tasks).found

    @property
    def id_type(self) -> str:
        """The Spark type of subscriptions' ids."""
        return _id_type(self.boxes())

    def _refresh(self) -> None:
        spaces = self._spaces()
        seen = (self._source.version(), spaces)
        if self._boxes is not None and seen == self._seen and not self._is_failing:
            return
        boxes = read_boxes(self._source.read(), spaces=spaces)
        before = self._boxes
        if before is not None and _id_type(before) != _id_type(boxes):
            raise ConfigError(
                f"their ids are {_id_type(boxes)} now, and were {_id_type(before)} before."
            )
        if boxes.packed is None:
            # Spark would read a set that is cut again for each batch.
            boxes = boxes._replace(frame=boxes.frame.persist())
        self._boxes, self._seen = boxes, seen
        if before is not None and before.packed is None:
            before.frame.unpersist()
        if self._is_failing:
            self._say("Subscriptions can be read again.")
        self._is_failing = False


def _id_type(boxes: SubscriptionBoxes) -> str:
    return boxes.frame.schema["id"].dataType.simpleString()
