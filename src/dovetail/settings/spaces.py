"""`[spaces.NAME]`: the attributes of publications on some topics.

A broker works with `attributes.space.Space`, which `attributes.declaration` makes from these
settings.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct

from dovetail.limits import SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX
from dovetail.settings.field import bounded, describe
from dovetail.settings.limits import SPACE_BOUND_MAX

Bounds = tuple[
    Annotated[float, bounded(-SPACE_BOUND_MAX, SPACE_BOUND_MAX, "The low end.")],
    Annotated[float, bounded(-SPACE_BOUND_MAX, SPACE_BOUND_MAX, "The high end.")],
]


class DimensionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A dimension in its long form, with more than bounds."""

    bounds: Annotated[Bounds, describe("The range of most values, the smaller bound first.")]
    searchable: Annotated[
        bool,
        describe("Do matchers share boxes along it? At least one dimension of a space must be so."),
    ] = True


class SpaceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The attributes of publications on some topics."""

    topics: Annotated[
        str,
        describe(
            "The topics of its publications: a topic filter, with + and #. No topic may lie in two "
            "spaces."
        ),
    ]
    dimensions: Annotated[
        dict[str, Bounds | DimensionSettings],
        describe(
            f"Attributes that are numbers, up to {SPACE_DIMENSIONS_MAX}, with the bounds of most "
            "values. The bounds decide how matchers share the work; values beyond them are valid, "
            "too. Matchers share no work along a dimension that is not searchable, such as speed "
            "here, but clients can use it in where-clauses."
        ),
    ]
    texts: Annotated[
        tuple[str, ...],
        describe(f"Attributes that are texts, up to {SPACE_TEXTS_MAX}, by name."),
    ] = ()
    json_fields: Annotated[
        bool,
        describe(
            "Payloads are JSON objects, and their fields are attributes. User properties always "
            "are."
        ),
    ] = False
    engine: Annotated[
        Literal["live", "spark"],
        describe(
            "What evaluates where-clauses. live: the brokers and matchers, when a message is "
            "published. spark: a stream on Spark, some seconds later. Messages then wait in the "
            "archive, whose folder has to be named; subscriptions without a clause get them at "
            "once. All brokers need the same value."
        ),
    ] = "live"
    scheme: Annotated[
        Literal["mpartition", "p2p", "full"],
        describe(
            "Which matchers hold a clause. mpartition: those along every searchable dimension on "
            "which it is narrow. p2p: those along one dimension. full: all of them. All nodes of a "
            "cluster need the same value, or its brokers evaluate the clauses themselves."
        ),
    ] = "mpartition"
    along: Annotated[
        str,
        describe("The dimension of p2p. Empty: the first searchable one. Other schemes have none."),
    ] = ""
    policy: Annotated[
        Literal["adaptive", "response-time", "subscription-amount", "random"],
        describe(
            "Which candidate is asked about a publication. adaptive: the one that would answer "
            "first, by estimates of its current queue and rates. response-time: the same, by its "
            "last report. subscription-amount: the one with the fewest clauses. random: any. The "
            "policy decides between the dimensions of mpartition; with p2p there is one candidate, "
            "and with full one is drawn."
        ),
    ] = "adaptive"

    @property
    def described(self) -> Mapping[str, DimensionSettings]:
        """The dimensions by name, all in the long form."""
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
