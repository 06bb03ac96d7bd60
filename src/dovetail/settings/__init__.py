"""The settings of a node: one frozen tree, read from one TOML file and checked before use.

A faulty file is refused with the list of all its faults: file, line, key, what is wrong, what is
allowed. `load_settings` reads the file, and `check_files` checks the files that it names. The rest
is pure. This package does not know the broker.

The tree:

    model.py         the root
    mqtt.py          `[mqtt]`            listeners.py  `[[listeners]]`
    access.py        `[access]`          archive.py    `[archive]`
    cluster.py       `[cluster]`         matchers.py   `[matchers]`
    spaces.py        `[spaces.NAME]`     field.py      how a field is described

From a file to the tree:

    loader.py        from TOML text to `Settings`, or to all its faults
    type_checks.py   known keys, right types, within bounds
    cross_checks.py  settings that contradict each other
    space_checks.py  faults of spaces
    filters.py       topic filters in settings
    faults.py        a fault, and the error message about all of them
    toml_lines.py    the line of each setting
    paths.py         the files that settings name
    overrides.py     options of the command line, which override the file
    reference.py     `dovetail config explain`: the reference of all settings
"""

from dovetail.settings.access import AccessRule, AccessSettings
from dovetail.settings.archive import ArchiveSettings
from dovetail.settings.cluster import ClusterSettings
from dovetail.settings.listeners import (
    DEFAULT_PORTS,
    SECURE_KINDS,
    WEBSOCKET_KINDS,
    ListenerSettings,
)
from dovetail.settings.loader import load_settings, parse_settings
from dovetail.settings.matchers import MatcherSettings, parse_counts
from dovetail.settings.model import HttpSettings, LogSettings, Settings
from dovetail.settings.mqtt import MqttSettings
from dovetail.settings.overrides import (
    Options,
    as_matcher,
    check_spaces,
    movable_kinds,
    settings_of,
)
from dovetail.settings.paths import check_files
from dovetail.settings.reference import explain
from dovetail.settings.spaces import DimensionSettings, SpaceSettings

__all__ = [
    "DEFAULT_PORTS",
    "SECURE_KINDS",
    "WEBSOCKET_KINDS",
    "AccessRule",
    "AccessSettings",
    "ArchiveSettings",
    "ClusterSettings",
    "DimensionSettings",
    "HttpSettings",
    "ListenerSettings",
    "LogSettings",
    "MatcherSettings",
    "MqttSettings",
    "Options",
    "Settings",
    "SpaceSettings",
    "as_matcher",
    "check_files",
    "check_spaces",
    "explain",
    "load_settings",
    "movable_kinds",
    "parse_counts",
    "parse_settings",
    "settings_of",
]
