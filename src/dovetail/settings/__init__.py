"""The settings of a node: one frozen tree, read from one TOML file and checked first.

A wrong file is refused whole, with every fault in it: file, line, key, what is wrong, what is
allowed. `load_settings` reads the file and `check_files` looks at the files that it names. The rest
is pure, and nothing here knows the broker.

The tree:

    model.py         the root
    mqtt.py          `[mqtt]`            listeners.py  `[[listeners]]`
    access.py        `[access]`          archive.py    `[archive]`
    cluster.py       `[cluster]`         matchers.py   `[matchers]`
    spaces.py        `[spaces.NAME]`     field.py      how a field is described

From a file to the tree:

    loader.py        TOML text to `Settings`, or to all its faults
    type_checks.py   known keys, right types, within bounds
    cross_checks.py  faults that a field alone does not show
    space_checks.py  faults of spaces
    filters.py       topic filters in settings
    faults.py        how a fault is told
    toml_lines.py    on which line a setting stands
    paths.py         the files that settings name
    overrides.py     what the command line says instead
    reference.py     `dovetail config explain`: the reference of all settings
"""

from dovetail.settings.access import Access, Rule
from dovetail.settings.archive import Archive
from dovetail.settings.cluster import Cluster
from dovetail.settings.listeners import DEFAULT_PORTS, SECURE_KINDS, WEBSOCKET_KINDS, Listener
from dovetail.settings.loader import load_settings, parse_settings
from dovetail.settings.matchers import Matchers, parse_counts
from dovetail.settings.model import Http, Log, Settings
from dovetail.settings.mqtt import Mqtt
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
    "Access",
    "Archive",
    "Cluster",
    "DimensionSettings",
    "Http",
    "Listener",
    "Log",
    "Matchers",
    "Mqtt",
    "Options",
    "Rule",
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
