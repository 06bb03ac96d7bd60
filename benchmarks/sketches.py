"""Compares our sketch with the paper's prefix method, and a bank of 64 with one sketch.

The setting is the paper's at ten levels with no match (figure 6(b)): the same filters in both, both
planned for a false-positive rate of 0.001 per query, both searched by similar kernels.
"""

import statistics

import numpy as np

from _measure import PAPER, filters, finish, in_turn, nanoseconds, ratio, table, topics, verdict
from dovetail.topics.bank import SketchBank
from dovetail.topics.kernels.hashing import ROOT, SINGLE_LEVEL, child, scale
from dovetail.topics.kernels.lines import LINE_WORDS
from dovetail.topics.sketches import LinesSketch, PrefixSketch, Sketch, build_sketch, lines_size
from dovetail.topics.topic_column import TopicColumn

ROUNDS = 15
TOPICS = 20_000
L2_BYTES = 1 << 20
PEERS = 64


def ask_plus_lines(sketch: LinesSketch, levels: int) -> list[float]:
    """Return the chance of a false yes in the lines of +, +/+, ... that every search visits."""
    ones = np.bitwise_count(sketch.words).reshape(-1, LINE_WORDS) / 64
    chances = np.prod(ones, axis=1)
    node, found = ROOT, []
    for level in range(levels):
        if level % 2 == 0:
            first = node
        found.append(float(chances[scale(first, np.uint64(sketch.lines))]))
        node = np.uint64(child(node, SINGLE_LEVEL))
    return found


def queries_and_false_positives(trials: int = 300) -> None:
    """Return queries and false positives of a search, over many sketches.

    Every search asks the nodes `+`, `+/+`, ... for a '#', for any topic. A false yes there holds
    for all topics of a sketch and is too rare to count, so its chance is computed from the bits.
    Our method checks each yes twice, and the second check errs as often as any query.
    """
    levels = PAPER.levels
    counted: dict[str, list[tuple[float, float, float, float]]] = {"prefix": [], "lines": []}
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        subscribed = filters(rng, PAPER, PAPER.topics)
        published = topics(rng, 200, levels)
        for method, rows in counted.items():
            sketch = build_sketch(method, subscribed, seed=trial)
            rate = sketch.false_positive_rate
            if isinstance(sketch, LinesSketch):
                expected = (sum(ask_plus_lines(sketch, levels)) + 2 * rate) * rate
            else:
                # '#' at ten nodes, and '+' and the literal at the last.
                expected = (levels + 2) * rate
            found, queries = sketch.search_column(published)
            rows.append((float(queries.mean()), sketch.bits, expected, float(found.mean())))
    means = {method: np.mean(rows, axis=0) for method, rows in counted.items()}
    table(
        f"6,000 filters, 10 levels, no match: means of {trials} sketches, 200 searches each",
        ["method", "queries or lines", "bits", "false yes, from bits", "false yes, counted"],
        [
            [method, f"{m[0]:.2f}", f"{m[1]:,.0f}", f"{m[2]:.1e}", f"{m[3]:.1e}"]
            for method, m in means.items()
        ],
    )
    prefix, lines = means["prefix"], means["lines"]
    verdict("lines probed a search", lines[0], 20, at_most=True)
    verdict("bits, ours / the paper's", lines[1] / prefix[1], 1.25, at_most=True)
    verdict("false yes a search, ours / the paper's", lines[2] / prefix[2], 1, at_most=True)


def speed() -> None:
    rows = []
    ratios = []
    for count in (6_000, 100_000, 300_000, 600_000):
        rng = np.random.default_rng(count)
        subscribed = filters(rng, PAPER, count)
        prefix = build_sketch("prefix", subscribed)
        lines = build_sketch("lines", subscribed)
        columns = [topics(rng, TOPICS, PAPER.levels) for _ in range(4)]
        turn = iter(range(10**9))

        def search(sketch: Sketch, columns: list = columns, turn: object = turn) -> None:
            sketch.search_column(columns[next(turn) // 2 % 4])  # the same column for both

        seconds = in_turn(
            {"prefix": lambda p=prefix: search(p), "lines": lambda s=lines: search(s)}, ROUNDS
        )
        faster = ratio(seconds["prefix"], seconds["lines"])
        if lines.words.nbytes > L2_BYTES:
            ratios.append(faster)
        rows.append(
            [
                f"{count:,}",
                f"{prefix.words.nbytes / 1e6:.1f}",
                f"{lines.words.nbytes / 1e6:.1f}",
                f"{nanoseconds(seconds['prefix'], TOPICS):.0f}",
                f"{nanoseconds(seconds['lines'], TOPICS):.0f}",
                f"{faster:.2f}",
            ]
        )
    table(
        f"Time a search (ns), hashing the topic included; medians of {ROUNDS} rounds",
        ["filters", "prefix MB", "lines MB", "prefix ns", "lines ns", "ratio"],
        rows,
    )
    verdict("faster, on sketches larger than the L2 cache", min(ratios), 3, at_most=False)


def bank() -> None:
    """Measure at the paper's setting, and with larger sketches, where 64 exceed the caches."""
    rows = []
    ratios = {}
    for count in (2_000, 6_000, 20_000, 60_000):
        rng = np.random.default_rng(count)
        elements = build_sketch("lines", filters(rng, PAPER, count)).elements
        bits = lines_size(elements, 0.001)
        peers = SketchBank[int]()
        sketches = []
        for peer in range(PEERS):
            sketch = LinesSketch(bits)
            sketch.add_column(filters(rng, PAPER, count))
            peers.put(peer, sketch)
            sketches.append(sketch.copy())
        published = topics(rng, TOPICS, PAPER.levels)
        seconds = in_turn(
            {
                "one": lambda s=sketches[0], t=published: s.search_column(t),
                "bank": lambda b=peers, t=published: b.search_column(t),
                "put": lambda b=peers, s=sketches[1]: b.put(1, s),
            },
            ROUNDS,
        )
        times = ratio(seconds["bank"], seconds["one"])
        ratios[count] = times
        answers = TOPICS * PEERS / statistics.median(seconds["bank"])
        rows.append(
            [
                f"{count:,}",
                f"{sketches[0].words.nbytes / 1e6:.2f}",
                f"{peers.nbytes / 1e6:.0f}",
                f"{nanoseconds(seconds['one'], TOPICS):.0f}",
                f"{nanoseconds(seconds['bank'], TOPICS):.0f}",
                f"{times:.2f}",
                f"{TOPICS / statistics.median(seconds['bank']):,.0f}",
                f"{answers / 1e6:.0f}",
                f"{statistics.median(seconds['put']) * 1e3:.1f}",
            ]
        )
    table(
        f"A column of {TOPICS:,} topics against {PEERS} sketches at once",
        [
            "filters",
            "one MB",
            "bank MB",
            "one ns",
            "bank ns",
            "bank / one",
            "topics/s",
            "M answers/s",
            "put ms",
        ],
        rows,
    )
    verdict(
        "64 sketches in one search, against one, at the paper's setting",
        ratios[PAPER.topics],
        6,
        at_most=True,
    )
    verdict("the same, the worst of all sizes", max(ratios.values()), 6, at_most=True)


def worst_case() -> None:
    """Measure all wildcard patterns over a topic that fails to match only at its last level."""
    rng = np.random.default_rng(0)
    levels = 14
    name = [bytes(rng.integers(97, 123, 10, np.uint8)).decode() for _ in range(levels)]
    subscribed = [
        "/".join("+" if mask >> i & 1 else name[i] for i in range(levels - 1)) + "/no"
        for mask in range(1 << (levels - 1))
    ]
    rows = []
    for kind in (PrefixSketch, LinesSketch):
        sketch = build_sketch(kind.method, TopicColumn.of(subscribed), false_positive_rate=1e-9)
        column = TopicColumn.of(["/".join(name)] * 20)
        seconds = in_turn({"search": lambda s=sketch, c=column: s.search_column(c)}, 5)["search"]
        found, queries = sketch.search_column(column)
        rows.append(
            [kind.method, str(found[0]), f"{queries[0]:,}", f"{nanoseconds(seconds, 20) / 1e3:.0f}"]
        )
    table(
        f"A worst case: all {1 << (levels - 1):,} patterns over one topic",
        ["method", "answer", "queries or lines", "µs"],
        rows,
    )


if __name__ == "__main__":
    queries_and_false_positives()
    speed()
    bank()
    worst_case()
    finish()
