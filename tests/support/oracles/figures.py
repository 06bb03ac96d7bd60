"""What a method's search must have asked at a point of figure 7, of the messages that it had.

How many messages a point has is the machine's to say, and each has the next topic. So the count
is one that nobody can write down: now and then a topic meets a false positive, which ends its
search early. But it is a function of the seed and of the messages' numbers, and here it is.
"""

import numpy as np

from dovetail.papers.figure7 import query_cost
from dovetail.papers.figure7.clients import WINDOW_MESSAGES
from dovetail.papers.figure7.measurement import draw_levels
from dovetail.papers.wildcard import simulation
from dovetail.topics.topic_column import Column

BF_QUERIES = 2 ** (query_cost.LEVELS + 1) - 1


def queries_of(method: str, seed: int, first: int, messages: int) -> int:
    """The mean of messages number `first` and so on, rounded as a row has it."""
    levels = draw_levels(np.random.default_rng(seed)).decode()
    topics = [
        f"{number // WINDOW_MESSAGES:08}{number % WINDOW_MESSAGES:02x}/{levels}"
        for number in range(first, first + messages)
    ]
    filters, _, sketch_seed = simulation.cell_of(
        seed, query_cost.FIGURE, query_cost.PANEL_INDEX, query_cost.VALUE_INDEX, 0
    )
    sketch = simulation.sketch_cell(method, filters, sketch_seed)
    found, queries = sketch.search_column(Column.of(topics))
    if method == "bf":  # every pattern, unless there was a yes
        assert (queries[~found] == BF_QUERIES).all()
        assert np.count_nonzero(found) <= 2
    return round(int(queries.sum()) / messages)
