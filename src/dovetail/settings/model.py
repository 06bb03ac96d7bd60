"""The root of the settings: fields with type, bounds, default and description, all as data.

The checks, the error messages and `explain()` read these, so there is no second place to keep up to
date. Each larger table has a module of its own. Structs are frozen: a change is
`msgspec.structs.replace`, and a reload makes a new tree.
"""

from typing import Annotated, Literal

from msgspec import Struct

from dovetail.limits import SPACES_MAX, WORKERS_MAX
from dovetail.settings.access import AccessSettings
from dovetail.settings.archive import ArchiveSettings
from dovetail.settings.cluster import ClusterSettings
from dovetail.settings.field import bounded, describe
from dovetail.settings.listeners import ListenerSettings
from dovetail.settings.matchers import MatcherSettings
from dovetail.settings.mqtt import MqttSettings
from dovetail.settings.spaces import EXAMPLE, SpaceSettings


class HttpSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HTTP server of a node: state, metrics, health, and subscriptions by handle."""

    enabled: Annotated[bool, describe("Serve HTTP.")] = True
    host: Annotated[str, describe("The address or host name to listen on.")] = "127.0.0.1"
    port: Annotated[int, bounded(0, 65_535, "The port. 0 takes any free one.")] = 8080
    polls_max: Annotated[
        int,
        bounded(
            0,
            100_000,
            "Polls of subscriptions that wait at once, each with a connection of its own. Beyond "
            "that, a poll is refused with status 503.",
        ),
    ] = 500


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The log of a node on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        describe("The lowest level that is shown."),
    ] = "info"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of one node."""

    name: Annotated[
        str,
        describe(
            "The node's name, of letters, digits, '.', '_' and '-', up to 255. Empty: the name of "
            "this machine."
        ),
    ] = ""
    data: Annotated[
        str,
        describe(
            "The folder for sessions, queues and retained messages; created if it is missing. Like "
            "all relative paths here, it is taken from the folder of this file."
        ),
    ] = "dovetail-data"
    durability: Annotated[
        Literal["process", "power"],
        describe(
            "What acknowledged messages survive: process is the end of this process by any cause; "
            "power is also a power failure, at the price of a disk flush for every batch."
        ),
    ] = "process"
    workers: Annotated[
        int,
        bounded(
            1,
            WORKERS_MAX,
            "Brokers that share the listeners below, each with a process, a core and a folder "
            "within the data folder. Clients see this cluster on one machine as one broker.",
        ),
    ] = 1
    listeners: Annotated[
        tuple[ListenerSettings, ...],
        describe(
            "The addresses that MQTT clients connect to; each has a table of its own. The two "
            "below are the default of a file without listeners."
        ),
    ] = (
        ListenerSettings(kind="tcp"),
        ListenerSettings(kind="websocket"),
    )
    http: Annotated[
        HttpSettings,
        describe("The HTTP server of a node: state, metrics, health, and subscriptions by handle."),
    ] = HttpSettings()
    access: Annotated[
        AccessSettings, describe("Which clients may connect, and what they may do.")
    ] = AccessSettings()
    mqtt: Annotated[
        MqttSettings,
        describe("Limits. The bytes of a message are those of its topic, payload and properties."),
    ] = MqttSettings()
    cluster: Annotated[ClusterSettings, describe("The links of a node with other nodes.")] = (
        ClusterSettings()
    )
    matchers: Annotated[
        MatcherSettings,
        describe(
            "Matchers that one command runs on this machine besides its brokers. They need a space."
        ),
    ] = MatcherSettings()
    spaces: Annotated[
        dict[str, SpaceSettings],
        describe(
            f"Attributes of publications for where-clauses: up to {SPACES_MAX} spaces, each with a "
            "table of its own and a name that you choose.",
            example={"traffic": EXAMPLE},
        ),
    ] = {}
    archive: Annotated[
        ArchiveSettings,
        describe(
            "Publications that the brokers write to Parquet files, for jobs that read them. The "
            "broker where a publication arrives from its client writes it."
        ),
    ] = ArchiveSettings()
    log: Annotated[LogSettings, describe("The log of a node on standard error.")] = LogSettings()

    @property
    def restricts_clients(self) -> bool:
        """Do users, rules or client certificates restrict what clients may do?"""
        return bool(self.access.rules or self.access.password_file) or any(
            listener.client_certificate != "none" for listener in self.listeners
        )

    @property
    def has_archive(self) -> bool:
        """Does the broker archive named topics, or a space that Spark serves?"""
        return bool(self.archive.topics) or any(
            space.engine == "spark" for space in self.spaces.values()
        )
