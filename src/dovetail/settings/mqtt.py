"""`[mqtt]`: the limits of the broker for its clients, their sessions and messages."""

from typing import Annotated, Literal

from msgspec import Struct

from dovetail.limits import TOPIC_BYTES_MAX
from dovetail.settings.field import bounded, describe

_MIB = 1 << 20
_GIB = 1 << 30
_BYTES_MAX = 1 << 50
"""More than any memory: this bound only catches typing errors."""


class MqttSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of the broker. Bytes of a message are its topic, payload and properties."""

    maximum_qos: Annotated[
        Literal[0, 1, 2],
        describe(
            "The highest quality of service. Clients are told so; one that publishes above it is "
            "disconnected, and a subscription above it is granted this one."
        ),
    ] = 2
    retain_available: Annotated[
        bool,
        describe(
            "Keep retained messages. With false, clients are told so, and one that sends a "
            "retained message is disconnected."
        ),
    ] = True
    receive_max: Annotated[
        int,
        bounded(
            1,
            65_535,
            "QoS 1 and 2 messages that a client may send before the first is acknowledged. Clients "
            "are told so; one that sends more is disconnected.",
        ),
    ] = 1_000
    inflight_max: Annotated[
        int,
        bounded(
            1,
            65_535,
            "QoS 1 and 2 messages sent to a client and not acknowledged; fewer if the client asks "
            "for fewer. Further ones wait in its queue.",
        ),
    ] = 1_000
    queue_messages_max: Annotated[
        int,
        bounded(
            1,
            1_000_000_000,
            "QoS 1 and 2 messages that wait for one session, connected or not. Beyond, the newest "
            "is dropped, and counted.",
        ),
    ] = 10_000
    queue_bytes_max: Annotated[
        int,
        bounded(
            1_024,
            _BYTES_MAX,
            "Bytes of the messages that wait for one session. Beyond, the newest is dropped, and "
            "counted.",
        ),
    ] = 64 * _MIB
    queued_bytes_total_max: Annotated[
        int,
        bounded(
            1_024,
            _BYTES_MAX,
            "Bytes of the messages that wait for all sessions together. Beyond, the newest is "
            "dropped, and counted.",
        ),
    ] = _GIB
    backlog_bytes_max: Annotated[
        int,
        bounded(
            1_024,
            _BYTES_MAX,
            "Bytes on their way to a client that does not read them. Beyond, QoS 0 messages to it "
            "are dropped, and counted, and QoS 1 and 2 ones wait in its queue.",
        ),
    ] = 8 * _MIB
    publisher_wait_seconds: Annotated[
        float,
        bounded(
            0,
            60,
            "The longest time that a publisher waits before messages at QoS 0 are dropped, if all "
            "clients that could get them have more than three quarters of `backlog_bytes_max` to "
            "read. TCP slows the publisher down meanwhile. 0: it never waits.",
        ),
    ] = 1
    packet_bytes_max: Annotated[
        int,
        bounded(
            1_024,
            268_435_460,
            "Bytes of a packet from a client. Clients are told so; one that sends a larger packet "
            "is disconnected with reason 0x95.",
        ),
    ] = _MIB
    topic_levels_max: Annotated[
        int,
        bounded(
            1,
            65_536,
            "Levels of a topic or filter: its slashes and one. A publication to a deeper topic and "
            "a subscription with a deeper filter are refused.",
        ),
    ] = 128
    topic_bytes_max: Annotated[
        int,
        bounded(
            1,
            TOPIC_BYTES_MAX,
            "Bytes of a topic or filter. A publication to a longer topic and a subscription with a "
            "longer filter are refused.",
        ),
    ] = TOPIC_BYTES_MAX
    alias_in_max: Annotated[
        int,
        bounded(
            0,
            65_535,
            "Topic aliases that a client may set. Clients are told so; one that uses a higher "
            "alias is disconnected. 0: none.",
        ),
    ] = 100
    alias_out_max: Annotated[
        int,
        bounded(
            0,
            65_535,
            "Topic aliases that we set towards a client; fewer if the client asks for fewer. "
            "Further topics are sent in full. 0: none.",
        ),
    ] = 100
    keep_alive_max_seconds: Annotated[
        int,
        bounded(
            0,
            65_535,
            "The longest keep alive. An MQTT 5 client that asks for more, or for none, is told to "
            "use this one; MQTT 3.1.1 has no field for it. 0: no limit.",
        ),
    ] = 0
    session_expiry_max_seconds: Annotated[
        int,
        bounded(
            0,
            4_294_967_295,
            "The longest time that a session is kept after its connection ends. A client that asks "
            "for more is told this limit. 4_294_967_295: for ever, if the client asks for that.",
        ),
    ] = 4_294_967_295
    sessions_max: Annotated[
        int,
        bounded(
            1,
            1_000_000_000,
            "Sessions, connected or not. Beyond, a client without a session is refused with reason "
            "0x97.",
        ),
    ] = 1_000_000
    connections_max: Annotated[
        int,
        bounded(
            1,
            10_000_000,
            "Connections of all MQTT listeners together. Beyond, a new one is refused with reason "
            "0x89.",
        ),
    ] = 100_000
    subscriptions_per_session_max: Annotated[
        int,
        bounded(
            1,
            1_000_000_000,
            "Subscriptions of one session; one with a where-clause counts as many as it has boxes. "
            "Beyond, a further one is refused with reason 0x97.",
        ),
    ] = 100_000
    subscriptions_bytes_per_session_max: Annotated[
        int,
        bounded(
            1,
            1_000_000_000_000,
            "Bytes of the filters of one session together. Beyond, a further subscription is "
            "refused with reason 0x97.",
        ),
    ] = 16_777_216
    subscriptions_max: Annotated[
        int,
        bounded(
            1,
            1_000_000_000,
            "Subscriptions of all sessions together. Beyond, a further one is refused with reason "
            "0x97.",
        ),
    ] = 10_000_000
    retained_messages_max: Annotated[
        int,
        bounded(
            0,
            1_000_000_000,
            "Retained messages. Beyond, a publication that would retain one more is refused with "
            "reason 0x97; replacing and removing go on.",
        ),
    ] = 1_000_000
    retained_bytes_max: Annotated[
        int,
        bounded(
            0,
            _BYTES_MAX,
            "Bytes of all retained messages. Beyond, a publication that would retain more is "
            "refused with reason 0x97.",
        ),
    ] = _GIB
    client_id_bytes_max: Annotated[
        int,
        # Servers have to take 23 bytes [MQTT-3.1.3-5].
        bounded(
            23,
            65_535,
            "Bytes of a client identifier. A client with a longer one is refused with reason 0x85.",
        ),
    ] = 1_024
    connect_timeout_seconds: Annotated[
        float,
        bounded(
            0.1,
            3_600,
            "The time from the opening of a connection to the end of its CONNECT packet. A slower "
            "client is disconnected.",
        ),
    ] = 10
    write_stall_seconds: Annotated[
        float,
        bounded(
            1,
            86_400,
            "A client that reads no byte for this long, while bytes wait for it, is disconnected.",
        ),
    ] = 60
    sys_interval_seconds: Annotated[
        float,
        bounded(0, 86_400, "The interval at which the topics below $SYS are published. 0: never."),
    ] = 10
    spin_microseconds: Annotated[
        int,
        bounded(
            0,
            10_000,
            "The time that the broker polls for more input after a message before it sleeps. If it "
            "is longer than the gaps between messages, no message waits for a wake-up, at the "
            "price of a whole processor. 0: it sleeps at once.",
        ),
    ] = 0
    routes_max: Annotated[
        int,
        bounded(
            1,
            100_000_000,
            "Topics in the route cache. Beyond, some are forgotten, and looked up again when they "
            "are needed.",
        ),
    ] = 100_000
