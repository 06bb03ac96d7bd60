"""What is wrong with spaces, each by itself and with each other.

Spaces do not see each other, so a topic lies in one of them at most: a publication has one point,
and a where-clause is about attributes of one space. `attributes.space` refuses the same spaces, but
knows no lines.
"""

from collections.abc import Collection, Iterator, Mapping

from dovetail.limits import (
    ATTRIBUTE_NAME_CHARACTERS_MAX,
    SPACE_DIMENSIONS_MAX,
    SPACE_TEXTS_MAX,
    SPACES_MAX,
)
from dovetail.settings.faults import Fault, below, shown
from dovetail.settings.filters import filter_fault, overlaps
from dovetail.settings.spaces import SpaceSettings


def space_faults(spaces: Mapping[str, SpaceSettings]) -> Iterator[Fault]:
    if len(spaces) > SPACES_MAX:
        yield Fault((), f"are {len(spaces)}, of at most {SPACES_MAX}.")
        return
    for name, space in spaces.items():
        if not _is_name(name):
            yield Fault((name,), f"cannot be the name of a space: {_NAMES}.")
        yield from below((name,), _faults(space))
    yield from _common_topic_faults(spaces)


def topics_fault(topics: str) -> str | None:
    """Why no space can be about these topics."""
    first = topics.partition("/")[0]
    if first == "$SYS":
        return "what the broker tells of itself has no attributes"
    if "?" in topics:
        return "it holds ?, and in a space's topics a where-clause begins there"
    return filter_fault(topics)


def _faults(space: SpaceSettings) -> Iterator[Fault]:
    why = topics_fault(space.topics)
    if why is not None:
        yield Fault(("topics",), f"{shown(space.topics)} will not do: {why}.")
    yield from below(("dimensions",), _dimension_faults(space))
    yield from below(("texts",), _text_faults(space))
    yield from below(("along",), _along_faults(space))


def _dimension_faults(space: SpaceSettings) -> Iterator[Fault]:
    dimensions = space.described
    yield from _count_faults(dimensions, SPACE_DIMENSIONS_MAX)
    if not any(dimension.searchable for dimension in dimensions.values()):
        yield Fault((), "none is searchable, and one has to be.")
    for name, dimension in dimensions.items():
        if not _is_name(name):
            yield Fault((name,), f"cannot be the name of a dimension: {_NAMES}.")
        low, high = dimension.bounds
        if not low < high:
            why = "are no bounds: it takes two numbers, the smaller one first."
            yield Fault((name,), f"{shown(dimension.bounds)} {why}")


def _text_faults(space: SpaceSettings) -> Iterator[Fault]:
    yield from _count_faults(space.texts, SPACE_TEXTS_MAX)
    for index, name in enumerate(space.texts):
        if not _is_name(name):
            yield Fault((index,), f"{shown(name)} cannot be the name of an attribute: {_NAMES}.")
        elif name in space.dimensions:
            yield Fault((index,), f"{shown(name)} is a dimension already.")
        elif name in space.texts[:index]:
            yield Fault((index,), f"{shown(name)} is there twice.")


def _along_faults(space: SpaceSettings) -> Iterator[Fault]:
    along, dimensions = space.along, space.described
    if not along:
        return
    searchable = [name for name, dimension in dimensions.items() if dimension.searchable]
    if space.scheme != "p2p":
        yield Fault((), f"{shown(along)} is for the scheme p2p, and this is {space.scheme}.")
    elif along not in searchable:
        known = ", ".join(searchable) or "none"
        yield Fault((), f"{shown(along)} is no searchable dimension; there are {known}.")


def _common_topic_faults(spaces: Mapping[str, SpaceSettings]) -> Iterator[Fault]:
    """Who comes second to a topic is at fault."""
    valid = [(name, one.topics) for name, one in spaces.items() if topics_fault(one.topics) is None]
    for index, (name, topics) in enumerate(valid):
        for earlier, earlier_topics in valid[:index]:
            if overlaps(topics.split("/"), earlier_topics.split("/")):
                other = f"{shown(earlier_topics)} of space {shown(earlier)}"
                why = "no topic may lie in two spaces"
                yield Fault(
                    (name, "topics"), f"{shown(topics)} has topics in common with {other}: {why}."
                )
                break


def _count_faults(names: Collection[str], limit: int) -> Iterator[Fault]:
    if len(names) > limit:
        yield Fault((), f"are {len(names)}, of at most {limit}.")


def _is_name(name: str) -> bool:
    return 0 < len(name) <= ATTRIBUTE_NAME_CHARACTERS_MAX and name.isprintable()


_NAMES = f"it takes 1 to {ATTRIBUTE_NAME_CHARACTERS_MAX} characters that can be printed"
