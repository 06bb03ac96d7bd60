"""Our checks of a document's shape, compared with those of msgspec."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.settings import Settings, explain
from dovetail.settings.type_checks import shape_faults

values = st.one_of(
    st.booleans(),
    st.integers(-2, 70_000),
    st.floats(),
    st.sampled_from(["", "tcp", "tls", "none", "info", "loopback", "power"]),
    st.lists(st.sampled_from(["a", "b", 3]), max_size=2),
)

bounds = st.lists(values | st.floats(-1e301, 1e301) | st.integers(-(2**70), 2**70), max_size=3)
dimensions = st.dictionaries(
    st.sampled_from(["lat", "lon", "a b"]),
    values
    | bounds
    | st.fixed_dictionaries(
        {}, optional={"bounds": values | bounds, "searchable": values, "unknown": values}
    ),
    max_size=2,
)
spaces = st.fixed_dictionaries(
    {},
    optional={
        "topics": values,
        "dimensions": values | dimensions,
        "texts": values,
        "json_fields": values,
        "unknown": values,
    },
)


def model(kind: type, depth: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Tables with some right keys, some wrong ones, and values of all kinds."""
    tables: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        tables[field.name] = values
        if depth and isinstance(field.default, msgspec.Struct):
            tables[field.name] = st.one_of(values, model(type(field.default), depth - 1))
        elif depth and field.name in {"listeners", "rules"}:
            inner = msgspec.inspect.type_info(field.type)
            while not isinstance(inner, msgspec.inspect.StructType):
                inner = getattr(inner, "item_type", None) or inner.type  # type: ignore[attr-defined]
            tables[field.name] = st.lists(model(inner.cls, depth - 1), max_size=2)
        elif depth and field.name == "spaces":
            tables[field.name] = st.dictionaries(st.sampled_from("ab"), values | spaces, max_size=2)
    tables["unknown"] = values
    keys = st.lists(st.sampled_from([*tables]), max_size=3, unique=True)
    return keys.flatmap(lambda chosen: st.fixed_dictionaries({key: tables[key] for key in chosen}))


@given(model(Settings))
def test_we_refuse_what_msgspec_refuses(document: dict[str, Any]) -> None:
    try:
        msgspec.convert(document, Settings)
    except msgspec.ValidationError:
        accepted = False
    else:
        accepted = True
    assert (not list(shape_faults(document))) == accepted


@given(spaces)
def test_we_refuse_spaces_that_msgspec_refuses(space: dict[str, Any]) -> None:
    test_we_refuse_what_msgspec_refuses.hypothesis.inner_test({"spaces": {"s": space}})  # type: ignore[attr-defined]


def test_the_reference_has_no_faults() -> None:
    assert list(shape_faults(msgspec.toml.decode(explain()))) == []
