"""Options of the command line, which override the configuration file.

A relative path is taken from the current folder, not from the folder of the file.
"""

import socket
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dovetail.api.reports import NodeRole
from dovetail.errors import ConfigError
from dovetail.settings.access import AccessSettings
from dovetail.settings.archive import ArchiveSettings
from dovetail.settings.cluster import ClusterSettings
from dovetail.settings.cross_checks import consistency_faults
from dovetail.settings.faults import key_name
from dovetail.settings.limits import PIPELINE_MATCHERS
from dovetail.settings.loader import chosen_ports, load_settings
from dovetail.settings.matchers import MatcherSettings
from dovetail.settings.model import Settings

_DATA = Settings().data
_CHANGED = frozenset({"name", "cluster"})
"""Tables that options may make invalid."""
_HINT = "`dovetail node --help` lists the options for these settings."


class Options(Struct, frozen=True, kw_only=True):
    """The options of `up` and `node`. None: it was not given."""

    config: str | None = None
    host: str | None = None
    port: int | None = None
    data: str | None = None
    workers: int | None = None
    matchers: tuple[int, int] | None = None
    """The least and the most."""
    pipeline: bool = False
    """For `up`: add an archive, matchers if a space needs them, and a stream on Spark."""
    # For `node` only.
    is_node: bool = False
    role: NodeRole | Literal["both"] = "broker"
    name: str | None = None
    join: tuple[str, ...] = ()
    listen: str | None = None
    advertise: str | None = None
    secret_file: str | None = None

    @property
    def secret_folder(self) -> Path | None:
        """The folder of the secret that nodes share if they start in one working folder.

        Each of these nodes has a data folder of its own. None: the secret is in the data folder.
        """
        is_in_place = self.is_node and self.config is None and self.data is None
        return Path(_DATA) if is_in_place else None


def movable_kinds(options: Options) -> frozenset[str]:
    """Return kinds of listeners, "http" and "cluster", that may use another port than theirs.

    These are the ones whose port neither an option nor the file sets: a user without a choice
    wants a broker that starts.
    """
    chosen = chosen_ports(None if options.config is None else Path(options.config))
    if options.port is not None:
        chosen |= {"tcp"}
    if options.listen is not None:
        chosen |= {"cluster"}
    return frozenset({"tcp", "websocket", "http", "cluster"} - chosen)


def settings_of(options: Options) -> Settings:
    """Return the settings of the file, or the defaults, with the options applied."""
    settings = load_settings(None if options.config is None else Path(options.config))
    settings = _with_listener(settings, options)
    if options.name is not None:
        settings = replace(settings, name=options.name)
    if options.data is not None:
        settings = replace(settings, data=options.data)
    if options.workers is not None:
        settings = replace(settings, workers=options.workers)
    if options.matchers is not None:
        least, most = options.matchers
        matchers = replace(settings.matchers, count_min=least, count_max=most)
        settings = replace(settings, matchers=matchers)
    if options.pipeline:
        settings = _with_pipeline(settings, options)
    if options.is_node:
        settings = _as_node(settings, options)
    if options.role == "matcher":
        settings = _as_matcher_node(settings, options)
    if options.is_node or options.workers is not None:
        faults = [fault for fault in consistency_faults(settings) if fault.path[0] in _CHANGED]
        if faults:
            lines = [f"{key_name(path)}: {sentence}" for path, sentence in faults]
            raise ConfigError("\n".join(lines), hint=_HINT if options.is_node else None)
    return settings


def _with_listener(settings: Settings, options: Options) -> Settings:
    host, port = options.host, options.port
    if host is None and port is None:
        return settings
    listeners = list(settings.listeners)
    at = next((i for i, one in enumerate(listeners) if one.kind == "tcp"), None)
    if at is None:
        raise ConfigError(
            "--host and --port are those of the tcp listener, and the configuration has none.",
            hint="Change the listener there.",
        )
    plain = listeners[at]
    listeners[at] = replace(
        plain,
        host=plain.host if host is None else host,
        port=plain.port if port is None else port,
    )
    if host is not None:
        listeners = [
            replace(one, host=host) if one.kind == "websocket" else one for one in listeners
        ]
    return replace(settings, listeners=tuple(listeners))


def _with_pipeline(settings: Settings, options: Options) -> Settings:
    """Add what a pipeline needs and the file does not set."""
    archive, matchers = settings.archive, settings.matchers
    if not archive.topics:
        archive = replace(archive, topics=("#",))
    is_live = any(space.engine == "live" for space in settings.spaces.values())
    if is_live and options.matchers is None and not matchers.count_most:
        matchers = replace(matchers, count_min=PIPELINE_MATCHERS)
    return replace(settings, archive=archive, matchers=matchers)


def _as_node(settings: Settings, options: Options) -> Settings:
    cluster = replace(settings.cluster, enabled=True)
    if options.join:
        cluster = replace(cluster, join=options.join)
    if options.listen is not None:
        host, port = _host_and_port(options.listen, cluster)
        cluster = replace(cluster, host=host, port=port)
    if options.advertise is not None:
        cluster = replace(cluster, advertise=options.advertise)
    if options.secret_file is not None:
        cluster = replace(cluster, secret_file=options.secret_file)
    if options.config is None and options.data is None:
        name = settings.name or socket.gethostname()
        settings = replace(settings, data=str(Path(_DATA) / name))
    return replace(settings, cluster=cluster)


def _as_matcher_node(settings: Settings, options: Options) -> Settings:
    given = {
        "--host": options.host,
        "--port": options.port,
        "--workers": options.workers,
        "--data": options.data,
    }
    if any(value is not None for value in given.values()):
        names = " and ".join(name for name, value in given.items() if value is not None)
        raise ConfigError(f"{names}: a matcher has no clients, and keeps nothing on disk.")
    if not settings.cluster.join:
        raise ConfigError(
            "a matcher joins brokers: it takes the address of one.",
            hint="--join HOST:PORT, or `join` in the table [cluster].",
        )
    if options.name is None:
        # The file may belong to a broker, which has that name.
        settings = replace(settings, name=f"{settings.name or socket.gethostname()}-matcher")
    return as_matcher(settings)


def as_matcher(settings: Settings) -> Settings:
    """Remove the settings that only brokers use, so that their files may be missing."""
    return replace(
        settings,
        workers=1,
        matchers=MatcherSettings(),
        listeners=(),
        access=AccessSettings(),
        archive=ArchiveSettings(),
    )


def check_spaces(settings: Settings) -> None:
    """Raise ConfigError if there is no space for matchers."""
    if not settings.spaces:
        raise ConfigError(
            "matchers need a space, and the configuration declares none.",
            hint="--config names a file whose table [spaces.NAME] declares one, the same for "
            "brokers and matchers; `dovetail config --explain` has an example.",
        )


def _host_and_port(text: str, cluster: ClusterSettings) -> tuple[str, int]:
    """Parse --listen: host:port, or one of the two."""
    if text.isascii() and text.isdigit():
        text = f"{cluster.host}:{text}"
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1], cluster.port
    if not colon:
        return text, cluster.port
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--listen {text}: it takes host:port, or one of the two.")
    return host.strip("[]"), int(port)
