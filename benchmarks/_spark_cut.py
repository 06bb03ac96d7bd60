"""A set of boxes that is cut into tasks, and what each of them has to do.

Counted work is what boxes held, messages and matches cost (pipeline/match/task_plan.py). CPU time
is that of the Python worker: making the index of the task's boxes, and matching.
"""

import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle

from _spark_tables import SPACE
from dovetail.pipeline.match.batch_matcher import match_arrays
from dovetail.pipeline.match.boxes import boxes_schema
from dovetail.pipeline.match.distributed_match import distribute, match_spread, match_task
from dovetail.pipeline.match.task_plan import COST_HELD, COST_MATCH, COST_MESSAGE, COST_MESSAGE_BOX

# Workers do not have this folder among those that they import from.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TIMES = 3
RESULT = "message long, subscriptions array<long>"
PLAIN = boxes_schema(pa.int64()).empty_table()


class Task(NamedTuple):
    boxes: int
    messages: int
    matches: int
    cpu_seconds: float

    @property
    def work(self) -> float:
        messages = self.messages * (COST_MESSAGE + COST_MESSAGE_BOX * self.boxes)
        return COST_HELD * self.boxes + messages + COST_MATCH * self.matches


def cut(messages: Any, boxes: Any, tasks: int) -> Any:  # noqa: ANN401
    """Cut as `match` does with more boxes than fit into every worker."""
    found, _ = match_spread(
        messages, boxes, (SPACE,), tasks=tasks, plain=PLAIN, as_pairs=False, result=RESULT
    )
    return found


def tasks_of(messages: Any, boxes: Any, tasks: int) -> list[Task]:  # noqa: ANN401
    """Return the tasks, with the median CPU time of three runs after a warm-up."""
    dealt, _ = distribute(messages, boxes, (SPACE,), tasks)
    counted = dealt.mapInArrow(_count, "boxes long, messages long, matches long, cpu double")
    counted.collect()
    times = [[Task(*row) for row in counted.collect()] for _ in range(TIMES)]
    return [
        one[0]._replace(cpu_seconds=statistics.median(each.cpu_seconds for each in one))
        for one in zip(*times, strict=True)  # tasks come in their order
    ]


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seen = {"boxes": 0, "messages": 0}

    def passing() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            messages = batch["is_message"].true_count
            seen["messages"] += messages
            seen["boxes"] += len(batch) - messages
            yield batch

    began = time.thread_time()
    matches = 0
    for found in match_task(passing(), plain=PLAIN, spaces=(SPACE,), answer=match_arrays):
        matches += len(found["subscriptions"].flatten())
    spent = time.thread_time() - began
    row = {**seen, "matches": matches, "cpu": spent}
    yield pa.RecordBatch.from_pylist([row])
