"""The reference is complete, and has the defaults."""

import re

from dovetail.settings import (
    AccessRule,
    AccessSettings,
    ClusterSettings,
    HttpSettings,
    ListenerSettings,
    LogSettings,
    MatcherSettings,
    MqttSettings,
    Settings,
    SpaceSettings,
    explain,
    parse_settings,
)
from dovetail.settings.reference import description, fields_of
from dovetail.settings.spaces import EXAMPLE


def test_read_as_settings_it_gives_the_defaults() -> None:
    assert parse_settings(explain(), "explain") == Settings()


def test_the_example_of_a_rule_is_one() -> None:
    text = explain()
    block = text[text.index("# [[access.rules]]") :].partition("\n\n")[0]
    shown = re.sub("^# ?", "", block, flags=re.MULTILINE)
    settings = parse_settings(shown, "explain")
    assert settings.access.rules == (AccessRule(),)


def test_the_example_of_a_space_is_one() -> None:
    text = explain()
    block = text[text.index("# [spaces.traffic]") :].partition("\n\n")[0]
    shown = re.sub("^# ?", "", block, flags=re.MULTILINE)
    assert parse_settings(shown, "explain").spaces == {"traffic": EXAMPLE}


def test_every_field_and_its_description_is_there() -> None:
    text = explain()
    words = " ".join(text.replace("#", " ").split())
    tables = (
        Settings,
        ListenerSettings,
        HttpSettings,
        AccessSettings,
        AccessRule,
        MqttSettings,
        ClusterSettings,
        MatcherSettings,
        SpaceSettings,
        LogSettings,
    )
    for table in tables:
        for field in fields_of(table):
            assert re.search(rf"^(# )?({field.name} = |\[+.*{field.name}[\].])", text, re.MULTILINE)
            assert " ".join(description(field).replace("#", " ").split()) in words


def test_no_line_is_too_wide_for_a_screen() -> None:
    assert max(map(len, explain().splitlines())) <= 102
