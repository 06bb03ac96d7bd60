"""Who wants what while a stream runs: read again when it has changed, and kept while it has not.

Before each batch the source of subscriptions is looked at, which costs little. Where it has
changed, its subscriptions are read and become boxes (pipeline/match/bulk.py), for this batch and
those after it. What cannot be read at that moment, as a file that is half written, does not stop a
stream: the last set that could be stays, and that is said once. At the start it is an error.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dovetail.attributes.space import Space
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.match.bulk import Boxes, match_boxes, read_boxes
from dovetail.pipeline.spark.failures import explained


class Subscriptions(Protocol):
    """Where they are (subscription_sources.py)."""

    def look(self) -> Hashable:
        """What is other when they have changed."""

    def read(self) -> DataFrame:
        """As they were at the last look, or later."""


class Wanted:
    """The newest boxes, for all queries of a session."""

    def __init__(
        self,
        source: Subscriptions,
        spaces: Callable[[], tuple[Space, ...]],
        say: Callable[[str], None],
        tasks: int | None = None,
    ) -> None:
        """`spaces` are asked for whenever the source is looked at; `tasks` as in `match`."""
        self._source = source
        self._spaces = spaces
        self._say = say
        self._tasks = tasks
        self._seen: Hashable = None
        self._boxes: Boxes | None = None
        self._is_failing = False
        self._turn = threading.Lock()

    def boxes(self) -> Boxes:
        with self._turn:
            try:
                self._look()
            except (DovetailError, PySparkException) as error:
                told = error if isinstance(error, DovetailError) else explained(error)
                if self._boxes is None:
                    raise told from error
                if not self._is_failing:
                    self._say(f"Subscriptions stay as they were: {told.message}")
                self._is_failing = True
            assert self._boxes is not None
            return self._boxes

    def match(self, messages: DataFrame, *, as_pairs: bool) -> DataFrame:
        """Who wants these messages, as of now."""
        return match_boxes(messages, self.boxes(), as_pairs=as_pairs, tasks=self._tasks).found

    @property
    def id_type(self) -> str:
        """Of subscriptions, in Spark's words."""
        return _id_type(self.boxes())

    def _look(self) -> None:
        spaces = self._spaces()
        seen = (self._source.look(), spaces)
        if self._boxes is not None and seen == self._seen and not self._is_failing:
            return
        boxes = read_boxes(self._source.read(), spaces=spaces)
        before = self._boxes
        if before is not None and _id_type(before) != _id_type(boxes):
            raise ConfigError(
                f"their ids are {_id_type(boxes)} now, and have been {_id_type(before)}."
            )
        if boxes.packed is None:
            # A set that is cut is read anew for each batch, unless it is kept.
            boxes = boxes._replace(frame=boxes.frame.persist())
        self._boxes, self._seen = boxes, seen
        if before is not None and before.packed is None:
            before.frame.unpersist()
        if self._is_failing:
            self._say("Subscriptions can be read again.")
        self._is_failing = False


def _id_type(boxes: Boxes) -> str:
    return boxes.frame.schema["id"].dataType.simpleString()
