"""Matching of Arrow batches, against a scan of all subscriptions and against a live router."""

import math
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dovetail.attributes.space import Dimension, Space
from dovetail.errors import ClientError
from dovetail.pipeline.match import batch_matcher
from dovetail.pipeline.match.batch_matcher import BatchMatcher, match_arrays, match_pairs
from dovetail.pipeline.match.boxes import BoxReader, SubscriptionRefusedError, boxes_of
from dovetail.pipeline.match.task_plan import CellGrid, plan_tasks
from support.oracles.bulk_match import (
    SentMessage,
    SubscriptionSpec,
    match_by_router,
    match_by_scanning,
    messages_table,
    subscriptions_table,
)
from support.strategies.topics import filters, names
from support.strategies.where_clauses import (
    NUMBER_NAMES,
    SPACE,
    TEXT_NAMES,
    publications,
    trees,
    written,
)

ALSO = Space("also", "also/+/x", (Dimension("a", 0, 1), Dimension("z", -5, 5)))
SPACES = (SPACE, ALSO)
CLAUSES = ("a < 0.5", "z >= 1 or a == 0", "a in [0, 1) and z < 2", "a in (0, 1)")


@st.composite
def wanted(draw: st.DrawFn) -> SubscriptionSpec:
    shared = draw(st.sampled_from(["", "", "", "$share/g/"]))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return SubscriptionSpec(
            shared + draw(filters().filter(lambda text: not text.startswith("$share")))
        )
    if kind == 1:
        return SubscriptionSpec(f"{shared}also/+/x", draw(st.sampled_from(CLAUSES)))
    clause = written(draw(trees), Random(draw(st.integers(0, 1 << 16))))
    made = SubscriptionSpec(f"{shared}drawn/{draw(filters())}", clause)
    try:
        BoxReader(SPACES).read(*made)
    except ClientError:
        assume(False)
    return made


@st.composite
def sent(draw: st.DrawFn) -> SentMessage:
    prefix = draw(st.sampled_from(["", "drawn/", "drawn/", "also/", "drawn"]))
    topic = draw(st.one_of(names.map(lambda name: prefix + name), st.just("also/é/x")))
    chosen = draw(st.sampled_from([topic] * 8 + [None, "", "drawn/+", "a\0b", "#"]))
    published = draw(publications)
    numbers: dict[str, float | None] = {
        name: value for name, value in published.items() if not isinstance(value, str)
    }
    odd = draw(st.integers(0, 15))
    if odd == 0:
        numbers[NUMBER_NAMES[0]] = draw(st.sampled_from([math.nan, math.inf, None]))
    elif odd == 1:
        numbers["unknown"] = math.nan
    elif odd < 6:
        numbers |= {"a": draw(st.sampled_from([0.0, 0.5, 1.0])), "z": float(odd - 3)}
    texts = {name: value for name, value in published.items() if isinstance(value, str)}
    return SentMessage(chosen, draw(st.sampled_from([numbers] * 9 + [None])), texts or None)


def answer(
    messages: list[SentMessage],
    subscriptions: list[SubscriptionSpec],
    spaces: tuple[Space, ...],
    least: int,
) -> list[list[str]]:
    boxes = boxes_of(subscriptions_table(subscriptions), spaces)
    matcher = BatchMatcher(boxes, spaces, least)
    found = [*match_arrays(matcher, messages_table(messages), pa.string())]
    assert [id_ for batch in found for id_ in batch["message"].to_pylist()] == [
        *range(len(messages))
    ]
    rows = [row for batch in found for row in batch["subscriptions"].to_pylist()]
    listed = [
        (row["message"], row["subscription"])
        for batch in match_pairs(matcher, messages_table(messages), pa.string())
        for row in batch.to_pylist()
    ]
    assert listed == [(number, one) for number, row in enumerate(rows) for one in row]
    return rows


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sent(), min_size=1, max_size=12),
    st.lists(wanted(), max_size=12),
    st.sampled_from([1, 2, 32]),
)
def test_same_as_scanning_all_subscriptions(
    messages: list[SentMessage], subscriptions: list[SubscriptionSpec], least: int
) -> None:
    found = answer(messages, subscriptions, SPACES, least)
    assert found == match_by_scanning(messages, subscriptions, SPACES)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sent(), min_size=1, max_size=12),
    st.lists(wanted(), max_size=12),
    st.integers(1, 6),
    st.integers(1, 9),
)
def test_same_when_cut(
    messages: list[SentMessage], subscriptions: list[SubscriptionSpec], segments: int, tasks: int
) -> None:
    """Match each message in its task only, with the task's boxes and those without borders."""
    boxes = boxes_of(subscriptions_table(subscriptions), SPACES)
    bordered = boxes.filter(pc.field("space") >= 0).combine_chunks()
    plain = boxes.filter(pc.field("space") < 0)
    grid = CellGrid(SPACES, segments=segments)
    own = bordered.to_batches()[0] if len(bordered) else None
    counts = np.zeros(grid.cells, np.int64) if own is None else grid.count_boxes(own)
    made = plan_tasks(grid, counts, np.ones(grid.cells), tasks)
    given = messages_table(messages)
    task_of = made.task_of_messages(given, 0)
    rows, task_of_box = (np.zeros(0, np.int64),) * 2 if own is None else made.tasks_of_boxes(own)
    found: dict[int, list[str]] = {}
    for task in range(made.tasks):
        held = bordered.take(pa.array(rows[task_of_box == task], pa.int64()))
        matcher = BatchMatcher(pa.concat_tables([plain, held]), SPACES, 2)
        asked = given.take(pa.array(np.flatnonzero(task_of == task), pa.int64()))
        for batch in match_arrays(matcher, asked, pa.string()):
            found |= dict(zip(*map(pa.Array.to_pylist, batch.columns), strict=True))
    order = {f"s{number}": number for number in range(len(subscriptions))}
    assert [sorted(found[number], key=order.__getitem__) for number in range(len(messages))] == (
        match_by_scanning(messages, subscriptions, SPACES)
    )


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sent(), min_size=1, max_size=12),
    st.lists(wanted().filter(lambda one: not one.filter.startswith("$")), max_size=12),
)
def test_same_as_a_live_router(
    messages: list[SentMessage], subscriptions: list[SubscriptionSpec]
) -> None:
    plain = [
        one._replace(
            numbers={
                name: value
                for name, value in (one.numbers or {}).items()
                if value is not None and name not in TEXT_NAMES
            }
        )
        for one in messages
    ]
    found = answer(plain, subscriptions, SPACES, 2)
    assert found == match_by_router(plain, subscriptions, SPACES)


def test_many_boxes_and_rows_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a batch, and of the pairs compared at once, begin and end anywhere."""
    random = Random(7)
    plane = Space("plane", "p/#", (Dimension("x", 0, 100), Dimension("y", 0, 100)))
    subscriptions = []
    for number in range(300):
        low = random.randint(0, 95)
        text = f"{low} <= x < {low + random.randint(1, 40)}"
        if number % 3:
            text += f" and y > {random.randint(0, 99)}"
        if number % 7 == 0:
            text += f" or x == {random.randint(0, 99)}"
        subscriptions.append(
            SubscriptionSpec(random.choice(["p/#", "p/+", "p/a/b", "p/a/+"]), text)
        )
    subscriptions += [
        SubscriptionSpec("#"),
        SubscriptionSpec("+/+"),
        SubscriptionSpec("p"),
        SubscriptionSpec("$x/#"),
        SubscriptionSpec("p//#"),
    ]
    messages = [
        SentMessage(
            random.choice(["p", "p/", "p/a", "p/a/b", "p//b", "$x", "q"]),
            {"x": float(random.randint(0, 100)), "y": random.random() * 100},
        )
        for _ in range(200)
    ]
    expected = match_by_scanning(messages, subscriptions, (plane,))
    assert sum(map(len, expected)) > 2_000
    for at_once in (20, 500, 1 << 20):
        monkeypatch.setattr(batch_matcher, "PAIRS_WANTED", at_once)
        assert answer(messages, subscriptions, (plane,), 32) == expected


def test_texts_need_their_column() -> None:
    boxes = boxes_of(
        subscriptions_table(
            [SubscriptionSpec("drawn/#", 't == "x"'), SubscriptionSpec("drawn/#", "a < 1")]
        ),
        SPACES,
    )
    messages = messages_table(
        [SentMessage("drawn/q", {"a": 0.0}, {"t": "x"}), SentMessage("drawn", {"a": 0.0})]
    )
    (whole,) = match_arrays(BatchMatcher(boxes, SPACES), messages, pa.string())
    assert whole["subscriptions"].to_pylist() == [["s0", "s1"], ["s1"]]
    (without,) = match_arrays(
        BatchMatcher(boxes, SPACES), messages.drop_columns(["texts"]), pa.string()
    )
    assert without["subscriptions"].to_pylist() == [["s1"], ["s1"]]


def test_query_behind_a_filter() -> None:
    boxes = boxes_of(
        subscriptions_table([SubscriptionSpec("drawn/+?a>0.5"), SubscriptionSpec("else/?a")]),
        SPACES,
    )
    messages = messages_table(
        [SentMessage("drawn/q", {"a": 0.7}), SentMessage("drawn/q"), SentMessage("else/?a")]
    )
    (found,) = match_arrays(BatchMatcher(boxes, SPACES), messages, pa.string())
    assert found["subscriptions"].to_pylist() == [["s0"], [], ["s1"]]


def test_nothing_at_all() -> None:
    assert answer([], [], SPACES, 2) == []
    assert answer([SentMessage("a")], [], SPACES, 2) == [[]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (SubscriptionSpec("a/#/b"), "'#' must be the last level"),
        (SubscriptionSpec("else/#", "a < 1"), "no space governs all topics"),
        (SubscriptionSpec("drawn/#", "a <"), "it ends where"),
        (SubscriptionSpec("drawn/#", "speed < 1"), "has no attribute"),
        (SubscriptionSpec("drawn/#", "a < 1 and a > 1"), "no publication can satisfy it"),
    ],
)
def test_an_invalid_subscription_is_named(wrong: SubscriptionSpec, said: str) -> None:
    with pytest.raises(
        SubscriptionRefusedError, match="subscription 's1' cannot be used"
    ) as raised:
        boxes_of(subscriptions_table([SubscriptionSpec("ok"), wrong]), SPACES)
    assert said in str(raised.value)


def test_no_filter() -> None:
    given = pa.table({"id": [4], "filter": pa.array([None], pa.string()), "where": ["a < 1"]})
    with pytest.raises(
        SubscriptionRefusedError, match="subscription 4 cannot be used: it has no topic filter"
    ):
        boxes_of(given, SPACES)
