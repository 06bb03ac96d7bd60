"""Make spaces of `[spaces.NAME]` in a configuration file.

The settings are already validated, with line numbers. An error of `Space` beyond that is a bug.
"""

from collections.abc import Mapping

from dovetail.attributes.scheme import Scheme, SpaceSharing
from dovetail.attributes.space import Dimension, Space
from dovetail.settings import SpaceSettings


def declared_spaces(spaces: Mapping[str, SpaceSettings]) -> tuple[Space, ...]:
    """Return the spaces, and their dimensions, in the order of the file."""
    return tuple(_space(name, declared) for name, declared in spaces.items())


def _space(name: str, declared: SpaceSettings) -> Space:
    dimensions = tuple(
        Dimension(dimension, *settings.bounds, is_searchable=settings.searchable)
        for dimension, settings in declared.described.items()
    )
    return Space(
        name,
        declared.topics,
        dimensions,
        frozenset(declared.texts),
        declared.json_fields,
        SpaceSharing(Scheme(declared.scheme), declared.along, declared.policy),
        is_streamed=declared.engine == "spark",
    )
