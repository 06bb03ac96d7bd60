"""MQTT control packets as objects, which the codec makes and the session logic reads.

Data that is only forwarded stays bytes (topic names, payloads); text that is compared or shown is
str. A packet of these classes is well-formed: the codec has checked every rule that needs no state.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from dovetail.errors import ReasonCode

MQTT_3_1_1 = 4
MQTT_5 = 5

SESSION_NEVER_EXPIRES = 0xFFFF_FFFF
"""The Session Expiry Interval of a session that does not expire (section 3.1.2.11.2)."""


class PacketType(IntEnum):
    """The first four bits of a packet (section 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


UserProperties = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Will:
    """The publication that the server sends when a client vanishes. `properties`: see `Publish`."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""
    expiry_seconds: int | None = None
    delay_seconds: int = 0


@dataclass(slots=True)
class Connect:
    """A client's first packet. Fields that 3.1.1 lacks have the defaults of 5.0."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive_seconds: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    session_expiry_seconds: int = 0
    receive_max: int = 65_535
    packet_bytes_max: int | None = None
    alias_max: int = 0
    wants_response_information: bool = False
    wants_problem_information: bool = True
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    user_properties: UserProperties = ()
    is_handle: bool = False  # from HTTP (broker/mailbox.py); not on the wire


@dataclass(slots=True)
class Connack:
    """The server's answer to a CONNECT. None and False are left out on the wire."""

    session_present: bool
    reason: ReasonCode
    session_expiry_seconds: int | None = None
    receive_max: int | None = None
    maximum_qos: int | None = None
    retain_available: bool = True
    packet_bytes_max: int | None = None
    assigned_client_id: str | None = None
    alias_max: int = 0
    reason_string: str | None = None
    keep_alive_seconds: int | None = None
    response_information: str | None = None
    authentication_method: str | None = None
    user_properties: UserProperties = ()


@dataclass(slots=True)
class Publish:
    """A publication. `properties` has the raw bytes of the properties that a server forwards.

    These are payload format indicator, content type, response topic, correlation data and user
    properties, in their order. Expiry, alias and subscription identifiers have their own fields.
    """

    topic: bytes  # empty where an alias stands for it
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0
    properties: bytes = b""
    expiry_seconds: int | None = None
    alias: int = 0
    identifiers: tuple[int, ...] = ()  # only from server to client


@dataclass(slots=True)
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    type: PacketType
    packet_id: int
    reason: int = ReasonCode.SUCCESS
    reason_string: str | None = None
    user_properties: UserProperties = ()


@dataclass(slots=True)
class SubscriptionRequest:
    """One filter of a SUBSCRIBE, with its options (section 3.8.3.1)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    packet_id: int
    requests: list[SubscriptionRequest]
    identifier: int = 0  # 0: none
    user_properties: UserProperties = ()


@dataclass(slots=True)
class Unsubscribe:
    packet_id: int
    filters: list[str]
    user_properties: UserProperties = ()


@dataclass(slots=True)
class SubscriptionAck:
    """SUBACK or UNSUBACK: a reason code for each filter. 3.1.1 has none in an UNSUBACK."""

    type: PacketType
    packet_id: int
    reasons: list[int] = field(default_factory=list)
    reason_string: str | None = None
    user_properties: UserProperties = ()


@dataclass(slots=True)
class Ping:
    """PINGREQ or PINGRESP."""

    type: PacketType


@dataclass(slots=True)
class Disconnect:
    reason: int = ReasonCode.SUCCESS
    session_expiry_seconds: int | None = None
    reason_string: str | None = None
    server_reference: str | None = None
    user_properties: UserProperties = ()


@dataclass(slots=True)
class Auth:
    reason: int = ReasonCode.SUCCESS
    method: str | None = None
    data: bytes | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()


Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Unsubscribe
    | SubscriptionAck
    | Ping
    | Disconnect
    | Auth
)
