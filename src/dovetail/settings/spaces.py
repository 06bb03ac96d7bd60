"""`[spaces.NAME]`: the attributes of publications on some topics.

`attributes.space.Space` is what a broker works with; it lies above settings, and is made of these
by `attributes.declaring`.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct

from dovetail.config import SPACE_BOUND_MAX, SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX
from dovetail.settings.describing import about, number

Bounds = tuple[
    Annotated[float, number(-SPACE_BOUND_MAX, SPACE_BOUND_MAX, "The low end.")],
    Annotated[float, number(-SPACE_BOUND_MAX, SPACE_BOUND_MAX, "The high end.")],
]


class DimensionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A dimension that says more than its bounds."""

    bounds: Annotated[
        Bounds, about("Between which values most publications lie, the smaller one first.")
    ]
    searchable: Annotated[
        bool, about("May publications be matched by it? One of a space's dimensions has to be.")
    ] = True


class SpaceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The attributes of publications on some topics."""

    topics: Annotated[
        str,
        about(
            "The publications it is about: a topic filter, with + and #. No topic may lie in two "
            "spaces."
        ),
    ]
    dimensions: Annotated[
        dict[str, Bounds | DimensionSettings],
        about(
            f"Attributes that are numbers, up to {SPACE_DIMENSIONS_MAX}, with bounds between which "
            "most values lie. They say how work is shared, and values beyond them are as good as "
            "others. By a dimension that is not searchable, as speed is here, no work is shared; "
            "clients can ask for it all the same."
        ),
    ]
    texts: Annotated[
        tuple[str, ...],
        about(f"Attributes that are texts, up to {SPACE_TEXTS_MAX}, by name."),
    ] = ()
    json_fields: Annotated[
        bool,
        about(
            "Payloads are JSON objects, and their fields are attributes, as user properties are in "
            "any case."
        ),
    ] = False

    @property
    def described(self) -> Mapping[str, DimensionSettings]:
        """The dimensions by name, however each was written."""
        return {
            name: one if isinstance(one, DimensionSettings) else DimensionSettings(bounds=one)
            for name, one in self.dimensions.items()
        }


EXAMPLE = SpaceSettings(
    topics="traffic/#",
    dimensions={
        "lat": (-90, 90),
        "lon": (-180, 180),
        "speed": DimensionSettings(bounds=(0, 200), searchable=False),
    },
    texts=("road",),
)
