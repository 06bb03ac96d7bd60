"""Assigns the places of a plan to matchers, or refuses the plan. Pure.

A plan has places without names. Each goes to the matcher that already has most of it, so that
brokers feed little. All matchers must serve, the plan must have a place for each of them, and its
spaces must be defined as they are now. Otherwise the plan is refused with a reason.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dovetail.api.reports import SpacePlaces
from dovetail.attributes.partition import Bounds, Segments, SegmentTable, Tokens
from dovetail.errors import ClientError, ConfigError, ReasonCode
from dovetail.matcher.layout import Layout
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import (
    MatcherDirectory,
    Phase,
    PlannedMove,
    are_tokens,
    encode_record,
)


def no_matchers() -> ClientError:
    return _refused("there are no matchers here that could move")


def order_for(
    directory: MatcherDirectory, planned: Sequence[SpacePlaces], number: int
) -> MoveOrder:
    """Return the order that moves all matchers. A ClientError says why the plan is refused."""
    names = _movers(directory)
    places: dict[str, dict[str, Tokens]] = {name: {} for name in names}
    for one in planned:
        layout = _layout(directory, one)
        _check_places(one, layout, names)
        current = directory.now(layout.id).table.tokens
        for name, tokens in assigned(current, [*map(tuple, one.places)], layout.bounds).items():
            places[name][layout.id] = tokens
    try:
        for name, own in places.items():
            encode_record(
                replace(directory.records[name], move=PlannedMove(number, len(names), own))
            )
    except ConfigError as error:
        raise _refused(error.message) from None
    return MoveOrder(number, places)


def _movers(directory: MatcherDirectory) -> list[str]:
    there = sorted(name for name, one in directory.records.items() if one.phase is not Phase.AWAY)
    if not there:
        raise no_matchers()
    for name in there:
        phase = directory.records[name].phase
        if phase is not Phase.SERVING:
            raise _refused(f"{name} is {phase.name.lower()}: try again when all matchers serve")
    return there


def _layout(directory: MatcherDirectory, one: SpacePlaces) -> Layout:
    found = next(
        (layout for layout in directory.layouts.values() if layout.name == one.space), None
    )
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
    """Assign each matcher a place, those with the largest overlap first."""
    names = sorted(current)
    before = SegmentTable(bounds, {name: current[name] for name in names})
    numbers = [f"{place:06d}" for place in range(len(places))]
    after = SegmentTable(bounds, dict(zip(numbers, places, strict=True)))
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
    before: SegmentTable, name: str, after: SegmentTable, number: str, bounds: Sequence[Bounds]
) -> float:
    """Return how much of a place a matcher already has, summed over its segments' shares."""
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
