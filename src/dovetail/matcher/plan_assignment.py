"""Which matcher gets which place of a plan, and whether the plan fits those who are there. Pure.

A plan has places, and does not know who is there. They are shared out so that little has to be fed:
who has most of a place already gets it. A plan is for all matchers, all of which serve, and for
spaces as they are defined now; otherwise it is refused, with a sentence.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dovetail.api.reports import SpacePlaces
from dovetail.attributes.partition import Bounds, Segments, Table, Tokens
from dovetail.errors import ClientError, ConfigError, ReasonCode
from dovetail.matcher.layout import Layout
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import Move, Phase, View, are_tokens, encode_record


def no_matchers() -> ClientError:
    return _refused("there are no matchers here that could move")


def order_for(view: View, planned: Sequence[SpacePlaces], number: int) -> MoveOrder:
    """Who goes where. A ClientError says why nobody does."""
    names = _movers(view)
    places: dict[str, dict[str, Tokens]] = {name: {} for name in names}
    for one in planned:
        layout = _layout(view, one)
        _check_places(one, layout, names)
        current = view.now(layout.id).table.tokens
        for name, tokens in assigned(current, [*map(tuple, one.places)], layout.bounds).items():
            places[name][layout.id] = tokens
    try:
        for name, own in places.items():
            encode_record(replace(view.records[name], move=Move(number, len(names), own)))
    except ConfigError as error:
        raise _refused(error.message) from None
    return MoveOrder(number, places)


def _movers(view: View) -> list[str]:
    there = sorted(name for name, one in view.records.items() if one.phase is not Phase.AWAY)
    if not there:
        raise no_matchers()
    for name in there:
        phase = view.records[name].phase
        if phase is not Phase.SERVING:
            raise _refused(f"{name} is {phase.name.lower()}: try again when all matchers serve")
    return there


def _layout(view: View, one: SpacePlaces) -> Layout:
    found = next((layout for layout in view.layouts.values() if layout.name == one.space), None)
    if found is None:
        raise _refused(f"no space here is called {one.space!r}")
    if found.id != one.layout:
        raise _refused(
            f"the plan is for another definition of the space {one.space!r}: its dimensions, their "
            "bounds, which are searchable, or its scheme are not the same. Plan again with the "
            "brokers' configuration"
        )
    if found.is_copied:
        raise _refused(f"every matcher has all of the space {one.space!r} (scheme full)")
    return found


def _check_places(one: SpacePlaces, layout: Layout, names: Sequence[str]) -> None:
    if len(one.places) != len(names):
        raise _refused(
            f"the plan is for {_counted(len(one.places))}, and there "
            f"{'is' if len(names) == 1 else 'are'} {len(names)}: {', '.join(names)}. Plan again "
            f"with --matchers {len(names)}"
        )
    if not all(are_tokens(tuple(place), layout) for place in one.places):
        raise _refused(
            f"a place in the space {one.space!r} needs {layout.searchable} finite numbers"
        )
    if len({*map(tuple, one.places)}) < len(one.places):
        raise _refused(f"two places in the space {one.space!r} are the same")


def _counted(count: int) -> str:
    return "1 matcher" if count == 1 else f"{count} matchers"


def _refused(words: str) -> ClientError:
    return ClientError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, words)


def assigned(
    current: Mapping[str, Tokens], places: Sequence[Tokens], bounds: Sequence[Bounds]
) -> dict[str, Tokens]:
    """Each matcher's place: who has most of one already comes first."""
    names = sorted(current)
    before = Table(bounds, {name: current[name] for name in names})
    numbers = [f"{place:06d}" for place in range(len(places))]
    after = Table(bounds, dict(zip(numbers, places, strict=True)))
    shared = sorted(
        (
            (-_overlap(before, name, after, number, bounds), name, place)
            for name in names
            for place, number in enumerate(numbers)
        ),
    )
    found: dict[str, Tokens] = {}
    taken: set[int] = set()
    for _, name, place in shared:
        if name not in found and place not in taken:
            found[name] = places[place]
            taken.add(place)
    return found


def _overlap(
    before: Table, name: str, after: Table, number: str, bounds: Sequence[Bounds]
) -> float:
    """How much of a place a matcher has already, as shares of its segments."""
    return sum(
        _shared(old, name, new, number, bound)
        for old, new, bound in zip(before.dimensions, after.dimensions, bounds, strict=True)
    )


def _shared(old: Segments, name: str, new: Segments, number: str, bound: Bounds) -> float:
    mine, wanted = old.segment(name), new.segment(number)
    low, high = max(wanted.low, bound.low), min(wanted.high, bound.high)
    if low >= high:
        return 0.0
    common = min(mine.high, high) - max(mine.low, low)
    return max(common, 0.0) / (high - low)
