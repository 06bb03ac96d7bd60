"""The tree of settings: every field with its type, bounds, default and description, all as data.

The checks, the error messages and `explain()` read them from here, so there is no second place to
keep up to date. Structs are frozen: a change is `msgspec.structs.replace`, a reload is a new tree.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from dovetail.config import (
    CLUSTER_JOIN_SECONDS_MAX,
    CLUSTER_PORT,
    FORGET_SECONDS,
    LINK_SILENCE_SECONDS_MAX,
    TOPIC_BYTES_MAX,
    WORKERS_MAX,
)

MIB = 1 << 20
GIB = 1 << 30
_BYTES_MAX = 1 << 50
"""Above any memory: a bound against slips of the keyboard only."""

ListenerKind = Literal["tcp", "tls", "websocket", "secure-websocket"]

DEFAULT_PORTS: Mapping[str, int] = {
    "tcp": 1883,
    "tls": 8883,
    "websocket": 8083,
    "secure-websocket": 8084,
}
SECURE_KINDS = frozenset({"tls", "secure-websocket"})
WEBSOCKET_KINDS = frozenset({"websocket", "secure-websocket"})

_PORT_OF_KIND = -1


def _about(description: str) -> Meta:
    return Meta(description=description)


def _number(low: float, high: float, description: str) -> Meta:
    return Meta(ge=low, le=high, description=description)


class Listener(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One address where MQTT clients are served."""

    kind: Annotated[ListenerKind, _about("What is spoken there: MQTT over what.")]
    host: Annotated[
        str,
        _about(
            "The address or host name to listen on. 0.0.0.0 is every IPv4 address of this machine, "
            ":: every IPv6 one, and an empty text both."
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        _number(
            0,
            65_535,
            "The port. Left out, it goes by kind: tcp 1883, tls 8883, websocket 8083, "
            "secure-websocket 8084. 0 takes any free one.",
        ),
    ] = _PORT_OF_KIND
    certificate: Annotated[
        str,
        _about(
            "The server's certificate chain, a PEM file. tls and secure-websocket need it, and the "
            "others do not take it."
        ),
    ] = ""
    key: Annotated[
        str,
        _about(
            "The certificate's private key, a PEM file without a passphrase. Empty: it is in the "
            "certificate's file."
        ),
    ] = ""
    client_ca: Annotated[
        str,
        _about(
            "A PEM file with the authorities whose client certificates are believed. Needed when "
            "client_certificate is optional or required."
        ),
    ] = ""
    client_certificate: Annotated[
        Literal["none", "optional", "required"],
        _about(
            "Are clients asked for a certificate? With required, a client without one is refused "
            "before MQTT begins; with optional it has to log in like anyone."
        ),
    ] = "none"
    user_from_certificate: Annotated[
        bool,
        _about(
            "A client certificate's common name is the client's user name, and no password is "
            "asked for. With false a certificate only opens the connection."
        ),
    ] = True
    path: Annotated[
        str, _about("The path of the websocket. A request for another one is answered with 404.")
    ] = "/mqtt"
    allowed_origins: Annotated[
        tuple[str, ...],
        _about(
            "Web pages that may open a websocket here, by origin, such as https://example.org. "
            "Empty: any. Others are refused with 403; clients that are no browsers send no origin, "
            "and may always."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if self.port == _PORT_OF_KIND:
            force_setattr(self, "port", DEFAULT_PORTS[self.kind])


class Http(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The web side of a node: its state, its metrics, its health."""

    enabled: Annotated[bool, _about("Serve HTTP at all.")] = True
    host: Annotated[str, _about("The address or host name to listen on.")] = "127.0.0.1"
    port: Annotated[int, _number(0, 65_535, "The port. 0 takes any free one.")] = 8080


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What some clients may do.

    A client may do what any rule that applies to it allows and none that applies to it denies.
    """

    user: Annotated[
        str,
        _about(
            "Applies to users whose name fits this pattern: * is any text, ? one character. "
            "An empty text is who did not log in; * is everyone, them included."
        ),
    ] = "*"
    client: Annotated[
        str,
        _about("Applies to client identifiers that fit this pattern. Both patterns have to fit."),
    ] = "*"
    publish: Annotated[
        tuple[str, ...],
        _about(
            "Topics that they may publish to: topic filters, with + and #. %u stands for the user "
            "name and %c for the client identifier; where these are empty or hold /, + or #, the "
            "filter allows nothing. Topics that begin with $ have to be named: # is not enough."
        ),
    ] = ()
    subscribe: Annotated[
        tuple[str, ...],
        _about(
            "Filters that they may subscribe to: everything that a subscription could match has to "
            "lie within one of these. A shared subscription is judged by the filter in it."
        ),
    ] = ()
    deny_publish: Annotated[
        tuple[str, ...],
        _about("Topics that they may not publish to, whatever another rule allows."),
    ] = ()
    deny_subscribe: Annotated[
        tuple[str, ...],
        _about(
            "A subscription that could match a topic in one of these is refused, whatever another "
            "rule allows."
        ),
    ] = ()


class Access(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may come in, and what they may do there."""

    anonymous: Annotated[
        Literal["loopback", "always", "never"],
        _about(
            "Who may connect without logging in: clients on this machine, everyone, or nobody. "
            "Without a password file no name can be proven, and who gives one counts as anonymous."
        ),
    ] = "loopback"
    password_file: Annotated[
        str,
        _about(
            "User names and hashed passwords, as `dovetail passwd` writes them. With it, a client "
            "that gives a name has to give its password too. Empty: no user can log in."
        ),
    ] = ""
    rules: Annotated[
        tuple[Rule, ...],
        _about(
            "Without a rule every client may publish and subscribe to everything. From the first "
            "rule on only what a rule allows is allowed."
        ),
    ] = ()


class Mqtt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of the broker. Bytes of a message are its topic, payload and properties."""

    maximum_qos: Annotated[
        Literal[0, 1, 2],
        _about(
            "The highest quality of service. Clients are told so; one that publishes above it is "
            "disconnected, and a subscription above it is granted this one."
        ),
    ] = 2
    retain_available: Annotated[
        bool,
        _about(
            "Keep retained messages. With false, clients are told so, and one that sends a "
            "retained message is disconnected."
        ),
    ] = True
    receive_max: Annotated[
        int,
        _number(
            1,
            65_535,
            "QoS 1 and 2 messages that a client may send before the first is acknowledged. Clients "
            "are told so; one that sends more is disconnected.",
        ),
    ] = 1_000
    inflight_max: Annotated[
        int,
        _number(
            1,
            65_535,
            "QoS 1 and 2 messages sent to a client and not acknowledged; fewer if the client asks "
            "for fewer. Further ones wait in its queue.",
        ),
    ] = 1_000
    queue_messages_max: Annotated[
        int,
        _number(
            1,
            1_000_000_000,
            "QoS 1 and 2 messages that wait for one session, connected or not. Beyond, the newest "
            "is dropped, and counted.",
        ),
    ] = 10_000
    queue_bytes_max: Annotated[
        int,
        _number(
            1_024,
            _BYTES_MAX,
            "Bytes of the messages that wait for one session. Beyond, the newest is dropped, and "
            "counted.",
        ),
    ] = 64 * MIB
    queued_bytes_total_max: Annotated[
        int,
        _number(
            1_024,
            _BYTES_MAX,
            "Bytes of the messages that wait for all sessions together. Beyond, the newest is "
            "dropped, and counted.",
        ),
    ] = GIB
    backlog_bytes_max: Annotated[
        int,
        _number(
            1_024,
            _BYTES_MAX,
            "Bytes on their way to a client that does not read them. Beyond, QoS 0 messages to it "
            "are dropped, and counted, and QoS 1 and 2 ones wait in its queue.",
        ),
    ] = 8 * MIB
    packet_bytes_max: Annotated[
        int,
        _number(
            1_024,
            268_435_460,
            "Bytes of a packet from a client. Clients are told so; one that sends a larger packet "
            "is disconnected with reason 0x95.",
        ),
    ] = MIB
    topic_levels_max: Annotated[
        int,
        _number(
            1,
            65_536,
            "Levels of a topic or filter: its slashes and one. A publication to a deeper topic and "
            "a subscription with a deeper filter are refused.",
        ),
    ] = 128
    topic_bytes_max: Annotated[
        int,
        _number(
            1,
            TOPIC_BYTES_MAX,
            "Bytes of a topic or filter. A publication to a longer topic and a subscription with a "
            "longer filter are refused.",
        ),
    ] = TOPIC_BYTES_MAX
    alias_in_max: Annotated[
        int,
        _number(
            0,
            65_535,
            "Topic aliases that a client may set. Clients are told so; one that uses a higher "
            "alias is disconnected. 0: none.",
        ),
    ] = 100
    alias_out_max: Annotated[
        int,
        _number(
            0,
            65_535,
            "Topic aliases that we set towards a client; fewer if the client asks for fewer. "
            "Further topics are sent in full. 0: none.",
        ),
    ] = 100
    keep_alive_max_seconds: Annotated[
        int,
        _number(
            0,
            65_535,
            "The longest keep alive. An MQTT 5 client that asks for more, or for none, is told to "
            "use this one; MQTT 3.1.1 has no words for it. 0: the client's choice stands.",
        ),
    ] = 0
    session_expiry_max_seconds: Annotated[
        int,
        _number(
            0,
            4_294_967_295,
            "How long a session is kept after its connection ended. A client that asks for more is "
            "told that it gets this. 4_294_967_295: for ever, if the client wants so.",
        ),
    ] = 4_294_967_295
    sessions_max: Annotated[
        int,
        _number(
            1,
            1_000_000_000,
            "Sessions, connected or not. Beyond, a client without a session is refused with reason "
            "0x97.",
        ),
    ] = 1_000_000
    connections_max: Annotated[
        int,
        _number(
            1,
            10_000_000,
            "Connections of all MQTT listeners together. Beyond, a new one is refused with reason "
            "0x89.",
        ),
    ] = 100_000
    subscriptions_per_session_max: Annotated[
        int,
        _number(
            1,
            1_000_000_000,
            "Subscriptions of one session. Beyond, a further one is refused with reason 0x97.",
        ),
    ] = 100_000
    subscriptions_bytes_per_session_max: Annotated[
        int,
        _number(
            1,
            1_000_000_000_000,
            "Bytes of the filters of one session together. Beyond, a further subscription is "
            "refused with reason 0x97.",
        ),
    ] = 16_777_216
    subscriptions_max: Annotated[
        int,
        _number(
            1,
            1_000_000_000,
            "Subscriptions of all sessions together. Beyond, a further one is refused with reason "
            "0x97.",
        ),
    ] = 10_000_000
    retained_messages_max: Annotated[
        int,
        _number(
            0,
            1_000_000_000,
            "Retained messages. Beyond, a publication that would retain one more is refused with "
            "reason 0x97; replacing and removing go on.",
        ),
    ] = 1_000_000
    retained_bytes_max: Annotated[
        int,
        _number(
            0,
            _BYTES_MAX,
            "Bytes of all retained messages. Beyond, a publication that would retain more is "
            "refused with reason 0x97.",
        ),
    ] = GIB
    client_id_bytes_max: Annotated[
        int,
        # Servers have to take 23 bytes [MQTT-3.1.3-5].
        _number(
            23,
            65_535,
            "Bytes of a client identifier. A client with a longer one is refused with reason 0x85.",
        ),
    ] = 1_024
    connect_timeout_seconds: Annotated[
        float,
        _number(
            0.1,
            3_600,
            "From the opening of a connection to the end of its CONNECT packet. A slower client is "
            "closed.",
        ),
    ] = 10
    write_stall_seconds: Annotated[
        float,
        _number(
            1,
            86_400,
            "A client that takes no byte for so long, while bytes wait for it, is closed.",
        ),
    ] = 60
    sys_interval_seconds: Annotated[
        float,
        _number(0, 86_400, "How often the topics below $SYS are published. 0: there are none."),
    ] = 10
    spin_microseconds: Annotated[
        int,
        _number(
            0,
            10_000,
            "How long the broker looks for more after a message, rather than sleep until it is "
            "woken. Longer than the gaps between messages, it saves each of them the time of "
            "waking up, and takes a whole processor meanwhile. 0: it sleeps at once.",
        ),
    ] = 0
    routes_max: Annotated[
        int,
        _number(
            1,
            100_000_000,
            "Topics whose receivers are remembered. Beyond, some are forgotten, and found anew "
            "when they are needed.",
        ),
    ] = 100_000


class Log(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node says about itself on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _about("The least important messages that are shown."),
    ] = "info"


class Cluster(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's links with other brokers."""

    enabled: Annotated[bool, _about("Be one broker of a cluster.")] = False
    name: Annotated[
        str,
        _about(
            "The cluster's name, of letters, digits, '.', '_' and '-', up to 128. Nodes of "
            "different clusters refuse each other."
        ),
    ] = "dovetail"
    host: Annotated[
        str,
        _about(
            "The address to listen on for other nodes. Only this machine can reach 127.0.0.1; any "
            "other one needs a secret_file, and an empty text, 0.0.0.0 or :: needs advertise too."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, _number(0, 65_535, "The port for other nodes. 0 takes any free one.")] = (
        CLUSTER_PORT
    )
    advertise: Annotated[
        str,
        _about(
            f"Where other nodes reach this one, as host:port, or the host alone for port "
            f"{CLUSTER_PORT}. Empty: where it listens."
        ),
    ] = ""
    join: Annotated[
        tuple[str, ...],
        _about(
            f"Nodes to look for at the start, as host:port, or the host alone for port "
            f"{CLUSTER_PORT}. One that is up is enough, and the node itself may be among them: all "
            "nodes can have the same list. Those of the last time are remembered as well."
        ),
    ] = ()
    secret_file: Annotated[
        str,
        _about(
            "A file with the secret that all nodes of the cluster share: at least 16 bytes, which "
            "not everybody may read. Empty: cluster.secret in the data folder, which a node that "
            "joins nobody makes if it is missing."
        ),
    ] = ""
    certificate: Annotated[
        str,
        _about(
            "The node's certificate chain for links with other nodes, a PEM file. All nodes have "
            "one, or none has. Empty: links are not encrypted."
        ),
    ] = ""
    key: Annotated[
        str,
        _about(
            "The certificate's private key, a PEM file without a passphrase. Empty: it is in the "
            "certificate's file."
        ),
    ] = ""
    ca: Annotated[
        str,
        _about(
            "A PEM file with the authorities whose certificates other nodes have to show, whatever "
            "names are in them. Empty: any certificate will do, since the proof of the secret "
            "covers it."
        ),
    ] = ""
    silence_seconds: Annotated[
        float,
        _number(
            1,
            3_600,
            "A node that is not heard for so long counts as down: publishers do not wait for it, "
            "and what it is owed is kept on disk.",
        ),
    ] = LINK_SILENCE_SECONDS_MAX
    join_seconds: Annotated[
        float,
        _number(
            0,
            3_600,
            "For so long a node that starts waits for the others to tell it what is subscribed to "
            "there, before it lets clients in without.",
        ),
    ] = CLUSTER_JOIN_SECONDS_MAX
    forget_seconds: Annotated[
        float,
        _number(
            60,
            FORGET_SECONDS,
            "A node that was away for so long is forgotten, with what it was owed.",
        ),
    ] = FORGET_SECONDS


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One node."""

    name: Annotated[
        str,
        _about(
            "The node's name, of letters, digits, '.', '_' and '-', up to 255. Empty: the name of "
            "this machine."
        ),
    ] = ""
    data: Annotated[
        str,
        _about(
            "The folder for sessions, queues and retained messages; made when it is missing. Like "
            "every path here, a relative one is taken from the folder of this file."
        ),
    ] = "dovetail-data"
    durability: Annotated[
        Literal["process", "power"],
        _about(
            "What acknowledged messages survive: process is the end of this process by any cause, "
            "power is also the loss of power, at the price of a disk flush for every batch."
        ),
    ] = "process"
    workers: Annotated[
        int,
        _number(
            1,
            WORKERS_MAX,
            "Brokers that share the listeners below, each in a process and with a folder of its "
            "own: a cluster on this machine that is one broker to clients, and uses so many cores. "
            "The folders are within the data folder.",
        ),
    ] = 1
    listeners: Annotated[
        tuple[Listener, ...],
        _about(
            "Where MQTT clients are served; each has a table of its own. A file with any of them "
            "has to name all: the two below are for files with none."
        ),
    ] = (
        Listener(kind="tcp"),
        Listener(kind="websocket"),
    )
    http: Annotated[Http, _about("The web side of a node: its state, its metrics, its health.")] = (
        Http()
    )
    access: Annotated[Access, _about("Who may come in, and what they may do there.")] = Access()
    mqtt: Annotated[
        Mqtt,
        _about("Limits. The bytes of a message are those of its topic, payload and properties."),
    ] = Mqtt()
    cluster: Annotated[
        Cluster, _about("The node's links with other brokers, and who they are.")
    ] = Cluster()
    log: Annotated[Log, _about("What a node says about itself on standard error.")] = Log()
