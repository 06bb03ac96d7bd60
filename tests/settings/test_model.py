"""The model as data: documented, bounded, frozen."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec.inspect import (
    DictType,
    Field,
    FloatType,
    IntType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from dovetail.settings import (
    DEFAULT_PORTS,
    AccessRule,
    AccessSettings,
    HttpSettings,
    ListenerSettings,
    MqttSettings,
    Settings,
)
from dovetail.settings.listeners import ListenerKind
from dovetail.settings.reference import description
from dovetail.settings.type_checks import bare


def fields(kind: Type, name: str = "") -> Iterator[tuple[str, Field]]:
    match bare(kind):
        case VarTupleType(item_type=item):
            yield from fields(item, name)
        case DictType(value_type=item):
            yield from fields(item, f"{name}.NAME")
        case UnionType(types=kinds):
            for one in kinds:
                yield from fields(one, name)
        case StructType(fields=members):
            for member in members:
                yield f"{name}.{member.name}", member
                yield from fields(member.type, f"{name}.{member.name}")


FIELDS = dict(fields(type_info(Settings)))


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_described(name: str) -> None:
    text = description(FIELDS[name])
    assert text
    assert text.endswith((".", "?"))


@pytest.mark.parametrize("name", FIELDS)
def test_every_number_has_bounds_that_hold_its_default(name: str) -> None:
    field = FIELDS[name]
    kind = bare(field.type)
    if not isinstance(kind, IntType | FloatType):
        return
    assert kind.ge is not None
    assert kind.le is not None
    if name != ".listeners.port":  # its default goes by kind
        assert kind.ge <= field.default <= kind.le


def test_the_default_port_goes_by_kind() -> None:
    kinds: list[ListenerKind] = ["tcp", "tls", "websocket", "secure-websocket"]
    assert {kind: ListenerSettings(kind=kind).port for kind in kinds} == DEFAULT_PORTS
    assert ListenerSettings(kind="tls", port=0).port == 0
    assert ListenerSettings(kind="tls", port=5).port == 5


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().name = "other"  # type: ignore[misc]


def test_a_changed_copy_keeps_the_rest() -> None:
    settings = msgspec.structs.replace(Settings(), http=HttpSettings(enabled=False))
    assert settings.mqtt == MqttSettings()
    assert not settings.http.enabled


@pytest.mark.parametrize(
    ("settings", "restricts"),
    [
        (Settings(), False),
        (Settings(access=AccessSettings(anonymous="always")), False),
        (Settings(access=AccessSettings(rules=(AccessRule(subscribe=("#",)),))), True),
        (Settings(access=AccessSettings(password_file="users")), True),
        (Settings(listeners=(ListenerSettings(kind="tls", client_certificate="optional"),)), True),
        (Settings(listeners=(ListenerSettings(kind="tls"),)), False),
    ],
)
def test_what_restricts_clients(settings: Settings, restricts: bool) -> None:
    assert settings.restricts_clients == restricts
