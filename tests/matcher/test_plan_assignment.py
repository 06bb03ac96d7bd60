"""Places for the matchers: boxes move little, and a plan that does not fit is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dovetail.api.reports import SpacePlaces
from dovetail.attributes.partition import Bounds, even_tokens
from dovetail.attributes.scheme import Scheme
from dovetail.errors import ClientError
from dovetail.matcher.layout import Layout
from dovetail.matcher.plan_assignment import assigned, order_for
from dovetail.matcher.segment_tables import MatcherDirectory, MatcherRecord, Phase

BOUNDS = (Bounds(0, 100), Bounds(0, 10))
LAYOUT = Layout("s", BOUNDS, (0, 1))
EVEN = even_tokens(["a", "b", "c"], BOUNDS)


def a_view(layout: Layout = LAYOUT, **phases: Phase) -> MatcherDirectory:
    directory = MatcherDirectory({layout.id: layout})
    for name, tokens in EVEN.items():
        own = tokens[: layout.searchable]
        directory.put(name, MatcherRecord(phases.get(name, Phase.SERVING), {layout.id: own}))
    return directory


def refusal(directory: MatcherDirectory, *planned: SpacePlaces) -> str:
    with pytest.raises(ClientError) as caught:
        order_for(directory, planned, 1)
    return caught.value.message


def planned(*places: list[float], space: str = "s", layout: Layout = LAYOUT) -> SpacePlaces:
    return SpacePlaces(space, layout.id, list(places))


THREE = ([0.0, 0.0], [10.0, 1.0], [20.0, 2.0])


@given(some.permutations(sorted(EVEN.values())))
def test_who_has_a_place_keeps_it(places: list[tuple[float, ...]]) -> None:
    assert assigned(EVEN, places, BOUNDS) == EVEN


def test_who_has_most_of_it_gets_it() -> None:
    places = [(60.0, 6.0), (0.0, 0.0), (20.0, 2.0)]
    assert assigned(EVEN, places, BOUNDS) == {"a": (0.0, 0.0), "b": (20.0, 2.0), "c": (60.0, 6.0)}


def test_an_order() -> None:
    order = order_for(a_view(), [planned(*THREE)], 5)
    assert order.number == 5
    assert sorted(own[LAYOUT.id] for own in order.places.values()) == [*map(tuple, THREE)]
    assert order.places.keys() == EVEN.keys()


def test_what_does_not_fit_is_refused() -> None:
    assert (
        refusal(MatcherDirectory({}), planned(*THREE))
        == "there are no matchers here that could move"
    )
    assert refusal(a_view(b=Phase.LEAVING), planned(*THREE)) == (
        "b is leaving: try again when all matchers serve"
    )
    assert refusal(a_view(), planned(*THREE[:2])) == (
        "the plan is for 2 matchers, and there are 3: a, b, c. Plan again with --matchers 3"
    )
    assert refusal(a_view(), planned(*THREE, space="t")) == "no space here is called 't'"
    other = Layout("s", (Bounds(0, 100), Bounds(0, 11)), (0, 1))
    assert refusal(a_view(), planned(*THREE, layout=other)).startswith(
        "the plan is for another definition of the space 's'"
    )
    full = Layout("s", BOUNDS, (0,), Scheme.FULL, 1.0)
    assert "(scheme full)" in refusal(a_view(full), planned([0.0], [1.0], [2.0], layout=full))
    assert "needs 2 finite numbers" in refusal(a_view(), planned(*THREE[:2], [1.0]))
    assert "two places" in refusal(a_view(), planned(*THREE[:2], THREE[0]))
