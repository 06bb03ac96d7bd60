"""What a deployment may choose: one frozen tree, from one TOML file, checked before all else.

- A wrong file is refused whole, with every fault in it: file, line, key, what is wrong, what is
  allowed.
- `load_settings` reads the file and `check_files` looks at the files that it names; the rest is
  pure, and nothing here knows the broker.
"""

from dovetail.settings.access import Access, Rule
from dovetail.settings.archive import Archive
from dovetail.settings.cluster import Cluster
from dovetail.settings.explaining import explain
from dovetail.settings.files import check_files
from dovetail.settings.limits import Mqtt
from dovetail.settings.listeners import DEFAULT_PORTS, SECURE_KINDS, WEBSOCKET_KINDS, Listener
from dovetail.settings.matchers import Matchers, parse_counts
from dovetail.settings.model import Http, Log, Settings
from dovetail.settings.options import (
    Options,
    as_matcher,
    check_spaces,
    movable_kinds,
    settings_of,
)
from dovetail.settings.reading import load_settings, parse_settings
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
