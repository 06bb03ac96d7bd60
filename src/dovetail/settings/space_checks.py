"""Finds the faults of spaces, of each one and between them.

A topic may lie in one space at most: a publication has one point, and a where-clause uses the
attributes of one space. `attributes.space` refuses the same spaces, but does not know the lines of
the file.
"""

from collections.abc import Collection, Iterator, Mapping

from dovetail.limits import (
    ATTRIBUTE_NAME_CHARACTERS_MAX,
    SPACE_DIMENSIONS_MAX,
    SPACE_TEXTS_MAX,
    SPACES_MAX,
)
from dovetail.settings.faults import SettingFault, display, with_prefix
from dovetail.settings.filters import filter_fault, overlaps
from dovetail.settings.spaces import SpaceSettings


def space_faults(spaces: Mapping[str, SpaceSettings]) -> Iterator[SettingFault]:
    if len(spaces) > SPACES_MAX:
        yield SettingFault((), f"are {len(spaces)}, of at most {SPACES_MAX}.")
        return
    for name, space in spaces.items():
        if not _is_name(name):
            yield SettingFault((name,), f"cannot be the name of a space: {_NAMES}.")
        yield from with_prefix((name,), _faults(space))
    yield from _common_topic_faults(spaces)


def topics_fault(topics: str) -> str | None:
    """Return why a space cannot have these topics, or None."""
    first = topics.partition("/")[0]
    if first == "$SYS":
        return "the broker's own topics have no attributes"
    if "?" in topics:
        return "it holds ?, and in a space's topics a where-clause begins there"
    return filter_fault(topics)


def _faults(space: SpaceSettings) -> Iterator[SettingFault]:
    why = topics_fault(space.topics)
    if why is not None:
        yield SettingFault(("topics",), f"{display(space.topics)} will not do: {why}.")
    yield from with_prefix(("dimensions",), _dimension_faults(space))
    yield from with_prefix(("texts",), _text_faults(space))
    yield from with_prefix(("along",), _along_faults(space))


def _dimension_faults(space: SpaceSettings) -> Iterator[SettingFault]:
    dimensions = space.described
    yield from _count_faults(dimensions, SPACE_DIMENSIONS_MAX)
    if not any(dimension.searchable for dimension in dimensions.values()):
        yield SettingFault((), "none is searchable, and one has to be.")
    for name, dimension in dimensions.items():
        if not _is_name(name):
            yield SettingFault((name,), f"cannot be the name of a dimension: {_NAMES}.")
        low, high = dimension.bounds
        if not low < high:
            why = "are no bounds: it takes two numbers, the smaller one first."
            yield SettingFault((name,), f"{display(dimension.bounds)} {why}")


def _text_faults(space: SpaceSettings) -> Iterator[SettingFault]:
    yield from _count_faults(space.texts, SPACE_TEXTS_MAX)
    for index, name in enumerate(space.texts):
        if not _is_name(name):
            yield SettingFault(
                (index,), f"{display(name)} cannot be the name of an attribute: {_NAMES}."
            )
        elif name in space.dimensions:
            yield SettingFault((index,), f"{display(name)} is a dimension already.")
        elif name in space.texts[:index]:
            yield SettingFault((index,), f"{display(name)} is there twice.")


def _along_faults(space: SpaceSettings) -> Iterator[SettingFault]:
    along, dimensions = space.along, space.described
    if not along:
        return
    searchable = [name for name, dimension in dimensions.items() if dimension.searchable]
    if space.scheme != "p2p":
        yield SettingFault(
            (), f"{display(along)} is for the scheme p2p, and this is {space.scheme}."
        )
    elif along not in searchable:
        known = ", ".join(searchable) or "none"
        yield SettingFault((), f"{display(along)} is no searchable dimension; there are {known}.")


def _common_topic_faults(spaces: Mapping[str, SpaceSettings]) -> Iterator[SettingFault]:
    """Two spaces cannot share topics; the later one is at fault."""
    valid = [(name, one.topics) for name, one in spaces.items() if topics_fault(one.topics) is None]
    for index, (name, topics) in enumerate(valid):
        for earlier, earlier_topics in valid[:index]:
            if overlaps(topics.split("/"), earlier_topics.split("/")):
                other = f"{display(earlier_topics)} of space {display(earlier)}"
                why = "no topic may lie in two spaces"
                yield SettingFault(
                    (name, "topics"), f"{display(topics)} has topics in common with {other}: {why}."
                )
                break


def _count_faults(names: Collection[str], limit: int) -> Iterator[SettingFault]:
    if len(names) > limit:
        yield SettingFault((), f"are {len(names)}, of at most {limit}.")


def _is_name(name: str) -> bool:
    return 0 < len(name) <= ATTRIBUTE_NAME_CHARACTERS_MAX and name.isprintable()


_NAMES = f"it takes 1 to {ATTRIBUTE_NAME_CHARACTERS_MAX} characters that can be printed"
