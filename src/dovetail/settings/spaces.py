"""`[spaces.NAME]`: the attributes of publications on some topics.

`attributes.space.Space` is what a broker works with; it lies above settings, and is made of these
by `attributes.declaring`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct

from dovetail.limits import SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX
from dovetail.settings.field import about, number
from dovetail.settings.limits import SPACE_BOUND_MAX

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
    engine: Annotated[
        Literal["live", "spark"],
        about(
            "Who looks at where-clauses: live this cluster's brokers and matchers, when a message "
            "is published, spark a stream on Spark, some seconds later. Its messages wait in the "
            "archive, whose folder has to be named, and subscriptions without a clause get them at "
            "once. All brokers need the same."
        ),
    ] = "live"
    scheme: Annotated[
        Literal["mpartition", "p2p", "full"],
        about(
            "Which matchers hold a clause: mpartition those along every searchable dimension that "
            "it is narrow on, p2p those along one dimension, full all of them. All nodes of a "
            "cluster need the same, or its brokers look at clauses themselves."
        ),
    ] = "mpartition"
    along: Annotated[
        str,
        about("The dimension of p2p. Empty: the first that is searchable. For others it is empty."),
    ] = ""
    policy: Annotated[
        Literal["adaptive", "response-time", "subscription-amount", "random"],
        about(
            "Which of the matchers that could answer is asked about a publication: adaptive the "
            "one that would be done first, by its queue and rates as they are likely to be now, "
            "response-time by those that it told last, subscription-amount the one with the fewest "
            "clauses, random any. It decides between the dimensions of mpartition; with p2p there "
            "is one to ask, and with full it is drawn."
        ),
    ] = "adaptive"

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
