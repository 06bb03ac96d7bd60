"""Compute the number of queries of a method at a point of figure 7, for the messages that it had.

The machine's speed decides how many messages a point has, and each message has the next topic. So
no constant fits: sometimes a topic meets a false positive, which ends its search early. But the
number is a function of the seed and of the messages' numbers.
"""

import numpy as np

from dovetail.papers.figure7 import query_cost
from dovetail.papers.figure7.clients import WINDOW_MESSAGES
from dovetail.papers.figure7.measurement import draw_levels
from dovetail.papers.wildcard import simulation
from dovetail.topics.topic_column import TopicColumn

BF_QUERIES = 2 ** (query_cost.LEVELS + 1) - 1


def queries_of(method: str, seed: int, first: int, messages: int) -> int:
    """Return the mean over messages number `first` and on, rounded as a row has it."""
    levels = draw_levels(np.random.default_rng(seed)).decode()
    topics = [
        f"{number // WINDOW_MESSAGES:08}{number % WINDOW_MESSAGES:02x}/{levels}"
        for number in range(first, first + messages)
    ]
    filters, _, sketch_seed = simulation.cell_of(
        seed, query_cost.FIGURE, query_cost.PANEL_INDEX, query_cost.VALUE_INDEX, 0
    )
    sketch = simulation.sketch_cell(method, filters, sketch_seed)
    found, queries = sketch.search_column(TopicColumn.of(topics))
    if method == "bf":  # every pattern, unless there was a yes
        assert (queries[~found] == BF_QUERIES).all()
        assert np.count_nonzero(found) <= 2
    return round(int(queries.sum()) / messages)
