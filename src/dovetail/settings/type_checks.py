"""Checks the shape of a parsed document: known keys, right types, values within bounds.

The types of the model define all checks. msgspec would refuse the same documents, but it reports
only the first fault, and does not say what is allowed.
"""

import difflib
from collections.abc import Iterator, Sequence

from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    StrType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from dovetail.settings.faults import SettingFault, display, with_prefix
from dovetail.settings.model import Settings

_COUNTS = {2: "two"}


def shape_faults(document: object) -> Iterator[SettingFault]:
    return _faults(document, type_info(Settings))


def bare(kind: Type) -> Type:
    """Return the type without its description."""
    return kind.type if isinstance(kind, Metadata) else kind


def allowed(kind: Type) -> str:
    """Return what a value of this type may be, as words of a sentence."""
    match bare(kind):
        case BoolType():
            words = "true or false"
        case IntType(ge=low, le=high):
            words = f"a whole number from {display(low)} to {display(high)}"
        case FloatType(ge=low, le=high):
            words = f"a number from {display(low)} to {display(high)}"
        case LiteralType(values=values):
            *others, last = map(display, values)
            words = f"{', '.join(others)} or {last}"
        case StrType():
            words = "a text in quotes"
        case container:
            words = _allowed_together(container)
    return words


def _allowed_together(kind: Type) -> str:
    match kind:
        case VarTupleType(item_type=item) if isinstance(bare(item), StructType):
            words = "tables, each below a header of its own in double brackets"
        case VarTupleType():
            words = "a list of texts"
        case StructType():
            words = "a table"
        case TupleType(item_types=items):
            words = f"a list of {_COUNTS[len(items)]} numbers"
        case UnionType(types=kinds):
            words = " or ".join(map(allowed, kinds))
        case DictType(value_type=value):
            words = f"names, each with {allowed(value)}"
        case other:
            raise AssertionError(f"the model has a type that nobody describes: {other}")
    return words


def _faults(value: object, kind: Type) -> Iterator[SettingFault]:
    match bare(kind):
        case StructType() as table if isinstance(value, dict):
            yield from _table_faults(value, table)
        case VarTupleType(item_type=item) if isinstance(value, list):
            for index, element in enumerate(value):
                yield from with_prefix((index,), _faults(element, item))
        case TupleType(item_types=items) if isinstance(value, list) and len(value) == len(items):
            for index, (element, item) in enumerate(zip(value, items, strict=True)):
                yield from with_prefix((index,), _faults(element, item))
        case UnionType(types=kinds) if fitting := [one for one in kinds if _is_like(value, one)]:
            yield from _faults(value, fitting[0])
        case DictType(value_type=item) if isinstance(value, dict):
            for key, element in value.items():
                yield from with_prefix((key,), _faults(element, item))
        case leaf if not _fits(value, leaf):
            yield SettingFault((), f"{display(value)} will not do: it takes {allowed(kind)}.")


def _is_like(value: object, kind: Type) -> bool:
    """Return True if the user meant this kind of several: one is a list, one a table."""
    is_list = isinstance(value, list) and isinstance(bare(kind), TupleType)
    return is_list or (isinstance(value, dict) and isinstance(bare(kind), StructType))


def _table_faults(table: dict[str, object], kind: StructType) -> Iterator[SettingFault]:
    fields = {field.name: field for field in kind.fields}
    for key, value in table.items():
        if key in fields:
            yield from with_prefix((key,), _faults(value, fields[key].type))
        else:
            yield SettingFault((key,), _unknown(key, list(fields)))
    for key, field in fields.items():
        if field.required and key not in table:
            yield SettingFault((key,), f"is missing: it takes {allowed(field.type)}.")


def _unknown(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"there is no such setting; did you mean {near[0]}?"
    homes = [home for home in _HOMES if key in _HOMES[home]]
    if homes:
        return f"there is no such setting here; it belongs to {' or '.join(homes)}."
    return f"there is no such setting here; known ones are {', '.join(known)}."


def _fits(value: object, kind: Type) -> bool:
    match kind:
        case BoolType():
            return isinstance(value, bool)
        case StrType():
            return isinstance(value, str)
        case LiteralType(values=values):
            return not isinstance(value, bool) and value in values  # True is 1 to Python
        case IntType(ge=low, le=high) | FloatType(ge=low, le=high):
            numbers = {int} if isinstance(kind, IntType) else {int, float}
            return type(value) in numbers and low <= value <= high  # type: ignore[operator]
    return False


def _homes(kind: Type, name: str) -> Iterator[tuple[str, frozenset[str]]]:
    match bare(kind):
        case VarTupleType(item_type=item):
            yield from _homes(item, f"[{name}]")
        case DictType(value_type=item):
            yield from _homes(item, f"{name[:-1]}.NAME]")
        case StructType(fields=fields):
            yield name or "the top of the file", frozenset(field.name for field in fields)
            prefix = f"{name.strip('[]')}." if name else ""
            for field in fields:
                yield from _homes(field.type, f"[{prefix}{field.name}]")


_HOMES = dict(_homes(type_info(Settings), ""))
"""The keys of every table, by its header: the error for a misplaced key names its table."""
