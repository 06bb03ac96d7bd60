"""The filters of the cluster benchmark's brokers: six levels, two kinds of names.

`random`  ten letters a level, no two prefixes alike: the worst for tables and sketches alike
`names`   as a company with many sites names them (see memory.py): brokers share upper levels

Every tenth filter has a wildcard and still matches only its own topic. So each topic is needed at
exactly one broker, or at none.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

import memory

LEVELS = 6
LETTERS = 10
NOBODY = 99
"""Instead of a broker's number: topics without a subscription."""

Topics = Callable[[int, int], list[bytes]]
"""From a broker and a count to its first topics."""


def random_topics(broker: int, count: int) -> list[bytes]:
    rng = np.random.default_rng(broker)
    text = np.full((count, LEVELS, LETTERS + 1), ord("/"), np.uint8)
    for first in range(0, count, 1_000):  # so that the first of many are the first of few
        rows = min(1_000, count - first)
        drawn = rng.integers(ord("a"), ord("z") + 1, (1_000, LEVELS, LETTERS), np.uint8)
        text[first : first + rows, :, :LETTERS] = drawn[:rows]
    flat = text.reshape(count, -1)[:, :-1].tobytes()
    size = LEVELS * (LETTERS + 1) - 1
    return [flat[at : at + size] for at in range(0, len(flat), size)]


def named_topics(each: int, broker: int, count: int) -> list[bytes]:
    return [memory.topic(broker * each + number) for number in range(count)]


def topics_of(kind: str, each: int) -> Topics:
    """Return the topics of a kind; a broker has `each` subscriptions."""
    return random_topics if kind == "random" else partial(named_topics, each)


def filters_of(topics: list[bytes]) -> list[str]:
    found = []
    for number, topic in enumerate(topics):
        text = topic.decode()
        if number % 10 == 0:
            levels = text.split("/")
            levels[2 if number % 20 else 3] = "+"
            text = "/".join(levels)
        found.append(text)
    return found
