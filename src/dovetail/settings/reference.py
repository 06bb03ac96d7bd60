"""The reference of all settings: a TOML document with every description and default.

It is generated from the model, so it is always complete. As a configuration file it gives the
defaults.
"""

import textwrap
from collections.abc import Iterator

from msgspec import Struct
from msgspec.inspect import (
    DictType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    StructType,
    VarTupleType,
    type_info,
)

from dovetail.settings.faults import as_toml
from dovetail.settings.model import Settings
from dovetail.settings.type_checks import allowed, bare

COMMENT_COLUMNS = 100

_TOP = """\
# Every setting of Dovetail, with its default. A configuration file need hold only what differs:
#
#     dovetail up --config FILE        starts with it
#     dovetail config --check FILE     tries it
"""


def explain() -> str:
    """Return every setting with its description, bounds and default, as TOML."""
    return "\n".join((_TOP, *_table(Settings(), "")))


def description(field: Field) -> str:
    """Return the description of a field."""
    about = field.type.extra_json_schema if isinstance(field.type, Metadata) else None
    return str((about or {}).get("description", ""))


def example_of(field: Field) -> object:
    """Return the example of a field whose default is empty; None if there is none."""
    about = field.type.extra_json_schema if isinstance(field.type, Metadata) else None
    return next(iter((about or {}).get("examples", ())), None)


def fields_of(table: type[Struct]) -> tuple[Field, ...]:
    kind = type_info(table)
    return kind.fields if isinstance(kind, StructType) else ()


def _described(field: Field) -> str:
    """Return the description, with the allowed values if the default does not show them."""
    if isinstance(bare(field.type), IntType | FloatType | LiteralType):
        return f"{description(field)} It takes {allowed(field.type)}."
    return description(field)


def _table(table: Struct, name: str) -> Iterator[str]:
    """Yield the lines of a table below its header: first values, as TOML requires, then tables."""
    fields = fields_of(type(table))
    for field in fields:
        if not _holds_tables(field):
            yield from _comment(_described(field))
            yield _pair(table, field)
            yield ""
    for field in fields:
        if _holds_tables(field):
            below = f"{name}.{field.name}" if name else field.name
            yield from _subtable(getattr(table, field.name), field, below)


def _subtable(
    value: Struct | tuple[Struct, ...] | dict[str, object], field: Field, name: str
) -> Iterator[str]:
    yield from _comment(description(field))
    if isinstance(value, dict):
        yield from _named(value, field, name)
        return
    if isinstance(value, Struct):
        yield f"[{name}]"
        yield ""
        yield from _table(value, name)
        return
    for index, item in enumerate(value):
        yield f"[[{name}]]"
        if index == 0:
            yield ""
            yield from _table(item, name)
        else:
            yield from _unlike_the_first(value[0], item)
            yield ""
    if not value:
        yield ""
        yield from _commented_out([f"[[{name}]]", "", *_table(_example(field), name)])


def _named(value: dict[str, object], field: Field, name: str) -> Iterator[str]:
    """A table whose keys the user chooses; an empty one shows an example."""
    example = example_of(field)
    if not value and isinstance(example, dict):
        yield from _commented_out([*_named(example, field, name)])
        return
    tables = {key: item for key, item in value.items() if isinstance(item, Struct)}
    if len(tables) < len(value):
        tables = {}  # some have a short form, `name = value`
        yield f"[{name}]"
        yield ""
        yield from (f"{key} = {as_toml(item)}" for key, item in value.items())
        yield ""
    for key, table in tables.items():
        yield f"[{name}.{key}]"
        yield ""
        yield from _table(table, f"{name}.{key}")


def _unlike_the_first(first: Struct, item: Struct) -> Iterator[str]:
    for field in fields_of(type(item)):
        if getattr(item, field.name) != getattr(first, field.name):
            yield _pair(item, field)


def _example(field: Field) -> Struct:
    """Return a table as an example for a list that is empty by default."""
    match bare(field.type):
        case VarTupleType(item_type=StructType(cls=table)):
            return table()
    raise AssertionError(f"{field.name} holds no tables")


def _holds_tables(field: Field) -> bool:
    kind = bare(field.type)
    if isinstance(kind, VarTupleType):
        kind = bare(kind.item_type)
    return isinstance(kind, StructType | DictType)


def _pair(table: Struct, field: Field) -> str:
    return f"{field.name} = {as_toml(getattr(table, field.name))}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, COMMENT_COLUMNS, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def _commented_out(lines: list[str]) -> Iterator[str]:
    for line in lines[:-1]:
        yield f"# {line}".rstrip()
    yield ""
