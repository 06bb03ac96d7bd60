"""The tree of settings: every field with its type, bounds, default and description, all as data.

The checks, the error messages and `explain()` read them from here, so there is no second place to
keep up to date. The larger tables have a module each: listeners.py, access.py, mqtt.py
(`[mqtt]`), cluster.py, matchers.py, spaces.py and archive.py. Structs are frozen: a change is
`msgspec.structs.replace`, a reload is a new tree.
"""

from typing import Annotated, Literal

from msgspec import Struct

from dovetail.limits import SPACES_MAX, WORKERS_MAX
from dovetail.settings.access import Access
from dovetail.settings.archive import Archive
from dovetail.settings.cluster import Cluster
from dovetail.settings.field import about, number
from dovetail.settings.listeners import Listener
from dovetail.settings.matchers import Matchers
from dovetail.settings.mqtt import Mqtt
from dovetail.settings.spaces import EXAMPLE, SpaceSettings


class Http(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The web side of a node: its state, its metrics, its health, and subscriptions by handle."""

    enabled: Annotated[bool, about("Serve HTTP at all.")] = True
    host: Annotated[str, about("The address or host name to listen on.")] = "127.0.0.1"
    port: Annotated[int, number(0, 65_535, "The port. 0 takes any free one.")] = 8080
    polls_max: Annotated[
        int,
        number(
            0,
            100_000,
            "Polls of subscriptions that wait at once, each with a connection of its own. Beyond, "
            "one is refused with status 503.",
        ),
    ] = 500


class Log(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node says about itself on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        about("The least important messages that are shown."),
    ] = "info"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One node."""

    name: Annotated[
        str,
        about(
            "The node's name, of letters, digits, '.', '_' and '-', up to 255. Empty: the name of "
            "this machine."
        ),
    ] = ""
    data: Annotated[
        str,
        about(
            "The folder for sessions, queues and retained messages; made when it is missing. Like "
            "every path here, a relative one is taken from the folder of this file."
        ),
    ] = "dovetail-data"
    durability: Annotated[
        Literal["process", "power"],
        about(
            "What acknowledged messages survive: process is the end of this process by any cause, "
            "power is also the loss of power, at the price of a disk flush for every batch."
        ),
    ] = "process"
    workers: Annotated[
        int,
        number(
            1,
            WORKERS_MAX,
            "Brokers that share the listeners below, each in a process and with a folder of its "
            "own: a cluster on this machine that is one broker to clients, and uses so many cores. "
            "The folders are within the data folder.",
        ),
    ] = 1
    listeners: Annotated[
        tuple[Listener, ...],
        about(
            "Where MQTT clients are served; each has a table of its own. A file with any of them "
            "has to name all: the two below are for files with none."
        ),
    ] = (
        Listener(kind="tcp"),
        Listener(kind="websocket"),
    )
    http: Annotated[
        Http,
        about(
            "The web side of a node: its state, its metrics, its health, and subscriptions by "
            "handle."
        ),
    ] = Http()
    access: Annotated[Access, about("Who may come in, and what they may do there.")] = Access()
    mqtt: Annotated[
        Mqtt,
        about("Limits. The bytes of a message are those of its topic, payload and properties."),
    ] = Mqtt()
    cluster: Annotated[Cluster, about("The node's links with other brokers, and who they are.")] = (
        Cluster()
    )
    matchers: Annotated[
        Matchers,
        about(
            "Matchers that one command runs on this machine besides its brokers. They need a space."
        ),
    ] = Matchers()
    spaces: Annotated[
        dict[str, SpaceSettings],
        about(
            f"Attributes of publications, by which clients can subscribe; up to {SPACES_MAX} "
            "spaces, each with a table of its own and a name that you choose.",
            example={"traffic": EXAMPLE},
        ),
    ] = {}
    archive: Annotated[
        Archive,
        about(
            "Publications that are written to Parquet files, for jobs that read them: each by the "
            "broker that it was published at."
        ),
    ] = Archive()
    log: Annotated[Log, about("What a node says about itself on standard error.")] = Log()

    @property
    def restricts_clients(self) -> bool:
        """Are there users, rules or client certificates, so that not every client may do all?"""
        return bool(self.access.rules or self.access.password_file) or any(
            listener.client_certificate != "none" for listener in self.listeners
        )

    @property
    def has_archive(self) -> bool:
        """For topics that are named there, or for a space that Spark serves."""
        return bool(self.archive.topics) or any(
            space.engine == "spark" for space in self.spaces.values()
        )
