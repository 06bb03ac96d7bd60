"""Segment tables from records: equal records make equal tables."""

import math
from random import Random

import numpy as np
import pytest

from dovetail.attributes.conjunctions import Range
from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.cluster.limits import RECORD_BYTES_MAX
from dovetail.errors import ConfigError
from dovetail.matcher.layout import Layout
from dovetail.matcher.segment_tables import (
    MatcherDirectory,
    MatcherRecord,
    Phase,
    Placement,
    decode_record,
    encode_record,
)

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SPACE = LAYOUT.id
EVERYONE = np.ones(3, np.bool_)


def a_view(**tokens: tuple[Phase, tuple[float, ...]]) -> MatcherDirectory:
    directory = MatcherDirectory({SPACE: LAYOUT})
    for name, (phase, own) in tokens.items():
        directory.put(name, MatcherRecord(phase, {SPACE: own}))
    return directory


def test_who_joins_is_fed_and_not_asked() -> None:
    directory = a_view(a=(Phase.SERVING, (0.0, 0.0)), b=(Phase.JOINING, (50.0, 5.0)))
    assert directory.now(SPACE).names == ("a",)
    assert directory.next(SPACE).names == ("a", "b")
    assert directory.cover(SPACE, "a") == ((Range(-math.inf, math.inf),),) * 2
    assert directory.cover(SPACE, "b") == ((Range(50, math.inf),), (Range(5, math.inf),))
    directory.put("b", MatcherRecord(Phase.SERVING, {SPACE: (50.0, 5.0)}))
    assert directory.cover(SPACE, "a") == ((Range(-math.inf, 50),), (Range(-math.inf, 5),))


def test_who_leaves_is_asked_while_others_are_fed() -> None:
    directory = a_view(a=(Phase.SERVING, (0.0, 0.0)), b=(Phase.LEAVING, (50.0, 5.0)))
    assert directory.now(SPACE).names == ("a", "b")
    assert list(directory.leaving()) == ["b"]
    assert directory.cover(SPACE, "a") == ((Range(-math.inf, math.inf),),) * 2
    assert directory.cover(SPACE, "b") == ((Range(50, math.inf),), (Range(5, math.inf),))
    directory.put("b", MatcherRecord(Phase.AWAY, {SPACE: (50.0, 5.0)}))
    assert directory.now(SPACE).names == ("a",)
    assert directory.cover(SPACE, "b") == ((), ())


def test_only_what_changes_tables_counts_as_a_change() -> None:
    directory = a_view(a=(Phase.SERVING, (0.0, 0.0)))
    before = directory.changes
    directory.put("a", MatcherRecord(Phase.SERVING, {SPACE: (0.0, 0.0)}, load=0.7))
    directory.gone("nobody")
    assert directory.changes == before
    directory.gone("a")
    assert directory.changes > before
    assert directory.now(SPACE).names == ()


@pytest.mark.parametrize("tokens", [(), (1.0,), (1.0, 2.0, 3.0), (math.nan, 1.0), (math.inf, 1.0)])
def test_tokens_that_are_none_are_left_out(tokens: tuple[float, ...]) -> None:
    directory = a_view(a=(Phase.SERVING, tokens), b=(Phase.SERVING, (0.0, 0.0)))
    assert directory.now(SPACE).names == ("b",)


def test_records_travel() -> None:
    record = MatcherRecord(Phase.SERVING, {SPACE: (0.0, 2.5)}, 0.25)
    assert decode_record(encode_record(record)) == record
    for wrong in (b"", b"\xc1", encode_record(record)[:-1], b"\x93\x09\x80\x00"):
        assert decode_record(wrong) is None


def test_a_record_has_its_bound() -> None:
    tokens: dict[str, tuple[float, ...]] = {
        f"{'x' * 100}#{number:016x}": (0.0,) * 16 for number in range(100)
    }
    assert len(tokens) * 100 < RECORD_BYTES_MAX
    with pytest.raises(ConfigError, match="100 spaces are too many"):
        encode_record(MatcherRecord(Phase.SERVING, tokens))


def test_candidates() -> None:
    tokens = {"c": (0.0, 5.0), "a": (50.0, 0.0), "b": (75.0, 2.5)}
    placement = Placement(LAYOUT, tokens)
    points = np.array([[-5.0, 3.0], [50.0, math.nan], [1e9, 5.0]])
    found = placement.candidates(points, EVERYONE, Random(1))
    names = [[placement.names[place] if place >= 0 else None for place in row] for row in found]
    assert names == [["c", "b"], ["a", None], ["b", "c"]]
    for row, point in zip(names, points.tolist(), strict=True):
        assert tuple(row) == placement.table.candidates(point)


def test_where_all_have_everything_any_usable_one_is_a_candidate() -> None:
    layout = Layout("s", (Bounds(0, 1),), (0,), Scheme.FULL, 1.0)
    placement = Placement(layout, dict.fromkeys("abc", (0.0,)))
    values = layout.values(np.full((200, 1), math.nan))
    usable = np.array([True, False, True])
    assert set(placement.candidates(values, usable, Random(1))[:, 0].tolist()) == {0, 2}
    nobody = np.zeros(3, np.bool_)
    assert set(placement.candidates(values, nobody, Random(1))[:, 0].tolist()) == {0, 1, 2}
