"""Invalid spaces, each with the line of its fault."""

import math

import pytest

from dovetail.errors import ConfigError
from dovetail.limits import (
    ATTRIBUTE_NAME_CHARACTERS_MAX,
    SPACE_DIMENSIONS_MAX,
    SPACE_TEXTS_MAX,
    SPACES_MAX,
)
from dovetail.settings import DimensionSettings, SpaceSettings, parse_settings

LONG = "x" * (ATTRIBUTE_NAME_CHARACTERS_MAX + 1)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "f")
    return caught.value.message


def space(
    name: str = "s", topics: str = "a/#", dimensions: str = "{ x = [0, 1] }", more: str = ""
) -> str:
    return f"[spaces.{name}]\ntopics = '{topics}'\ndimensions = {dimensions}\n{more}\n"


def test_a_valid_space() -> None:
    text = """
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
json_fields = true
[spaces.traffic.dimensions]
speed = { bounds = [0, 200], searchable = false }
lat = [-90, 90]
"odd name" = [-1e300, 1.5]
"""
    (declared,) = parse_settings(text, "f").spaces.values()
    assert declared == SpaceSettings(
        topics="traffic/#",
        dimensions={
            "speed": DimensionSettings(bounds=(0, 200), searchable=False),
            "lat": (-90, 90),
            "odd name": (-1e300, 1.5),
        },
        texts=("road",),
        json_fields=True,
    )
    assert [*declared.described] == ["speed", "lat", "odd name"]
    assert declared.described["lat"] == DimensionSettings(bounds=(-90, 90))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[spaces]\ns = 3", "f:2: spaces.s: 3 will not do: it takes a table."),
        ("spaces = 3", "f:1: spaces: 3 will not do: it takes names, each with a table."),
        (
            "[spaces.s]\ntopics = 'a'",
            "f:1: spaces.s.dimensions: is missing: it takes names, each w",
        ),
        ("[spaces.s.dimensions]\nx = [0, 1]", "f:1: spaces.s.topics: is missing: it takes a text"),
        (
            space(more="json_field = true"),
            "f:4: spaces.s.json_field: there is no such setting; did you mean json_fields?",
        ),
        (
            "bounds = 3",
            "f:1: bounds: there is no such setting here; known ones are",
        ),
        (
            "[http]\njson_fields = true",
            "f:2: http.json_fields: there is no such setting here; it belongs to [spaces.NAME].",
        ),
        # Bounds
        (
            space(dimensions="{ x = 1 }"),
            "f:3: spaces.s.dimensions.x: 1 will not do: it takes a list of two numbers or a table.",
        ),
        (
            space(dimensions="{ x = [1] }"),
            "f:3: spaces.s.dimensions.x: a list will not do: it takes a list of two numbers.",
        ),
        (
            "[spaces.s]\ntopics = 'a'\n[spaces.s.dimensions]\ny = [0, 1]\nx = [0, nan]",
            "f:5: spaces.s.dimensions.x[1]: nan will not do: it takes a number from -1e+300 to 1e+",
        ),
        (space(dimensions="{ x = [-inf, 1] }"), "f:3: spaces.s.dimensions.x[0]: -inf will not do"),
        (space(dimensions="{ x = [0, '1'] }"), 'f:3: spaces.s.dimensions.x[1]: "1" will not do'),
        (
            space(dimensions="{ x = { bounds = [0, true] } }"),
            "f:3: spaces.s.dimensions.x.bounds[1]: true will not do",
        ),
        (
            space(dimensions="{ x = { searchable = false } }"),
            "f:3: spaces.s.dimensions.x.bounds: is missing: it takes a list of two numbers.",
        ),
        (
            space(dimensions="{ x = { bounds = [0, 1], search = true } }"),
            "f:3: spaces.s.dimensions.x.search: there is no such setting; did you mean searchable?",
        ),
        (
            space(dimensions="{ x = [2, 1] }"),
            "f:3: spaces.s.dimensions.x: [2.0, 1.0] are no bounds: it takes two numbers, the small",
        ),
        (space(dimensions="{ x = [1, 1.0] }"), "f:3: spaces.s.dimensions.x: [1.0, 1.0] are no bou"),
        (
            space(dimensions="{ x = { bounds = [0, 1], searchable = false } }"),
            "f:3: spaces.s.dimensions: none is searchable, and one has to be.",
        ),
        (space(dimensions="{}"), "f:3: spaces.s.dimensions: none is searchable"),
        # Names
        (space(name="''"), 'f:1: spaces."": cannot be the name of a space: it takes 1 to 128 char'),
        (space(name='"a\\n"'), 'f:1: spaces."a\\n": cannot be the name of a space'),
        (space(name=LONG), "cannot be the name of a space"),
        (
            space(dimensions="{ '' = [0, 1] }"),
            'f:3: spaces.s.dimensions."": cannot be the name of a dimension: it takes 1',
        ),
        (space(dimensions=f"{{ {LONG} = [0, 1] }}"), "cannot be the name of a dimension"),
        (
            space(more="texts = [\n'a',\n'']"),
            'f:6: spaces.s.texts[1]: "" cannot be the name of an attribute: it takes 1 to 128',
        ),
        (space(more="texts = ['x']"), 'f:4: spaces.s.texts[0]: "x" is a dimension already.'),
        (space(more="texts = ['a', 'a']"), 'f:4: spaces.s.texts[1]: "a" is there twice.'),
        (
            space(more="texts = 'a'"),
            'f:4: spaces.s.texts: "a" will not do: it takes a list of text',
        ),
        # How matchers share it
        (
            space(more="scheme = 'p3p'"),
            'f:4: spaces.s.scheme: "p3p" will not do: it takes "full", "mpartition" or "p2p".',
        ),
        (
            space(more="policy = 'fastest'"),
            'f:4: spaces.s.policy: "fastest" will not do: it takes "adaptive", "random", "response',
        ),
        (
            space(more="along = 'x'"),
            'f:4: spaces.s.along: "x" is for the scheme p2p, and this is mpartition.',
        ),
        (
            space(more="along = 'y'\nscheme = 'p2p'"),
            'f:4: spaces.s.along: "y" is no searchable dimension; there are x.',
        ),
        # Topics
        (
            space(topics="a/#/b"),
            'f:2: spaces.s.topics: "a/#/b" will not do: # must be the last level, and a whole one.',
        ),
        (space(topics=""), 'f:2: spaces.s.topics: "" will not do: it is empty.'),
        (
            space(topics="$SYS/#"),
            'f:2: spaces.s.topics: "$SYS/#" will not do: the broker\'s own topics have no at',
        ),
        (
            space(topics="$share/g/a"),
            'f:2: spaces.s.topics: "$share/g/a" will not do: it takes the filter within a shared s',
        ),
        (
            space(topics="a?b"),
            'f:2: spaces.s.topics: "a?b" will not do: it holds ?, and in a space\'s topics a where',
        ),
        (
            space() + space("t", "+/b"),
            'f:6: spaces.t.topics: "+/b" has topics in common with "a/#" of space "s": no topic',
        ),
        (space() + space("t", "#"), 'f:6: spaces.t.topics: "#" has topics in common with "a/#"'),
    ],
)
def test_faults(text: str, expected: str) -> None:
    message = refusal(text)
    assert expected in message
    assert "\n" not in message


def test_limits() -> None:
    def numbers(count: int) -> str:
        return f"{{ {', '.join(f'd{index} = [0, 1]' for index in range(count))} }}"

    def texts(count: int) -> str:
        return f"texts = {[f't{index}' for index in range(count)]}"

    def spaces(count: int) -> str:
        return "".join(space(f"s{index}", f"a/{index}") for index in range(count))

    parse_settings(
        space(dimensions=numbers(SPACE_DIMENSIONS_MAX), more=texts(SPACE_TEXTS_MAX)), "f"
    )
    parse_settings(spaces(SPACES_MAX), "f")
    assert refusal(space(dimensions=numbers(SPACE_DIMENSIONS_MAX + 1))) == (
        "f:3: spaces.s.dimensions: are 17, of at most 16."
    )
    assert refusal(space(more=texts(SPACE_TEXTS_MAX + 1))) == (
        "f:4: spaces.s.texts: are 17, of at most 16."
    )
    assert refusal(spaces(SPACES_MAX + 1)) == "f:1: spaces: are 65, of at most 64."


def test_spaces_with_disjoint_topics() -> None:
    text = space() + space("t", "$a/#") + space("u", "b/c/#") + space("v", "b")
    assert [*parse_settings(text, "f").spaces] == ["s", "t", "u", "v"]


def test_faults_of_one_space_do_not_hide_those_of_another() -> None:
    message = refusal(space(topics="a/#/b") + space("t", dimensions="{ x = [1, 0] }"))
    assert [line.partition(": ")[0] for line in message.splitlines()] == ["f:2", "f:7"]


def test_numbers_that_have_no_float_are_refused() -> None:
    assert "will not do" in refusal(space(dimensions=f"{{ x = [0, {10**400}] }}"))
    assert math.isfinite(
        parse_settings(space(dimensions=f"{{ x = [0, {10**299}] }}"), "f")
        .spaces["s"]
        .described["x"]
        .bounds[1]
    )
