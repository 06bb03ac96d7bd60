"""A broker uses the spaces that a configuration file declares."""

from typing import Literal, get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.policies import POLICIES
from dovetail.attributes.scheme import Scheme, SpaceSharing
from dovetail.attributes.space import Dimension, Space
from dovetail.errors import ConfigError
from dovetail.settings import DimensionSettings, Settings, SpaceSettings, parse_settings
from dovetail.settings.space_checks import space_faults

TEXT = """
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
json_fields = true
[spaces.traffic.dimensions]
lat = [-90, 90]
speed = { bounds = [0, 200], searchable = false }
[spaces.rooms]
topics = "rooms/+"
dimensions = { heat = [-20, 50.5] }
scheme = "p2p"
along = "heat"
policy = "random"
"""


def test_spaces_keep_the_order_of_the_file() -> None:
    assert declared_spaces(parse_settings(TEXT, "f").spaces) == (
        Space(
            "traffic",
            "traffic/#",
            (Dimension("lat", -90, 90), Dimension("speed", 0, 200, is_searchable=False)),
            frozenset({"road"}),
            json_fields=True,
        ),
        Space(
            "rooms",
            "rooms/+",
            (Dimension("heat", -20, 50.5),),
            sharing=SpaceSharing(Scheme.P2P, "heat", "random"),
        ),
    )


def test_all_schemes_and_policies_can_be_declared() -> None:
    fields = get_type_hints(SpaceSettings)
    assert get_args(fields["scheme"]) == tuple(Scheme)
    assert get_args(fields["policy"]) == tuple(POLICIES)


def test_without_any_there_are_none() -> None:
    assert declared_spaces(Settings().spaces) == ()


names = st.sampled_from(["", "a", "b", "a b", "é", "\n", "x" * 128, "x" * 129])
bounds = st.tuples(st.integers(0, 2), st.integers(0, 2))
dimensions = st.dictionaries(
    names, bounds | st.builds(DimensionSettings, bounds=bounds, searchable=st.booleans())
)


@given(
    names,
    dimensions,
    st.lists(names).map(tuple),
    st.sampled_from(get_args(get_type_hints(SpaceSettings)["scheme"])),
    names,
)
def test_settings_refuse_what_a_space_refuses(
    name: str,
    dimensions: dict[str, tuple[int, int] | DimensionSettings],
    texts: tuple[str, ...],
    scheme: Literal["mpartition", "p2p", "full"],
    along: str,
) -> None:
    declared = {
        name: SpaceSettings(
            topics="a/#", dimensions={**dimensions}, texts=texts, scheme=scheme, along=along
        )
    }
    faults = [*space_faults(declared)]
    try:
        (space,) = declared_spaces(declared)
    except ConfigError:
        assert faults
    else:
        # A text that is there twice is one to a space.
        assert not faults or len(space.texts) < len(texts)
