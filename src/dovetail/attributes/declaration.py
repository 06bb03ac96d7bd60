"""From `[spaces.NAME]` in a configuration file to spaces.

Settings have been judged, with lines; what a `Space` refuses beyond that is a bug.
"""

from collections.abc import Mapping

from dovetail.attributes.scheme import Scheme, Sharing
from dovetail.attributes.space import Dimension, Space
from dovetail.settings import SpaceSettings


def declared_spaces(spaces: Mapping[str, SpaceSettings]) -> tuple[Space, ...]:
    """In the order of the file, and so are their dimensions."""
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
        Sharing(Scheme(declared.scheme), declared.along, declared.policy),
        is_streamed=declared.engine == "spark",
    )
