"""The codes of packets: flags of the fixed header, flags of CONNECT, reason codes by packet type.

Tables only; decoder.py and encoder.py use them.
"""

from typing import Final

from dovetail.codec.packets import PacketType
from dovetail.errors import ReasonCode

PROTOCOL_NAME: Final = b"MQTT"
# The low half of the first byte by packet type, for all but PUBLISH [MQTT-2.1.3-1].
FLAGS: Final = tuple(
    0b0010 if number in {PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE} else 0
    for number in range(16)
)
# Connect flags.
WILL_FLAG: Final = 0b0000_0100
WILL_RETAIN_FLAG: Final = 0b0010_0000
PASSWORD_FLAG: Final = 0b0100_0000
USER_FLAG: Final = 0b1000_0000

_PUBLISH_REASONS: Final = (0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASE_REASONS: Final = (0x00, 0x92)
# Section 2.4, table 2-6, by packet.
REASONS: Final[dict[int, dict[int, ReasonCode]]] = {
    packet_type: {code: ReasonCode(code) for code in codes}
    for packet_type, codes in {
        PacketType.CONNACK: (  # [MQTT-3.2.2-8]
            *(0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C),
            *(0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
        ),
        PacketType.PUBACK: _PUBLISH_REASONS,  # [MQTT-3.4.2-1]
        PacketType.PUBREC: _PUBLISH_REASONS,  # [MQTT-3.5.2-1]
        PacketType.PUBREL: _RELEASE_REASONS,  # [MQTT-3.6.2-1]
        PacketType.PUBCOMP: _RELEASE_REASONS,  # [MQTT-3.7.2-1]
        PacketType.SUBACK: (  # [MQTT-3.9.3-2]
            *(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
        ),
        PacketType.UNSUBACK: (0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),  # [MQTT-3.11.3-2]
        PacketType.DISCONNECT: (  # [MQTT-3.14.2-1]
            *(0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F),
            *(0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E),
            *(0x9F, 0xA0, 0xA1, 0xA2),
        ),
        PacketType.AUTH: (0x00, 0x18, 0x19),  # [MQTT-3.15.2-1]
    }.items()
}

# The return codes of CONNACK in 3.1.1 (its section 3.2.2.3), by number.
RETURN_CODES: Final = (
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
)
RETURN_CODE_OF: Final = {
    **{reason: code for code, reason in enumerate(RETURN_CODES)},
    ReasonCode.BAD_AUTHENTICATION_METHOD: 4,
    ReasonCode.BANNED: 5,
}
RETURN_CODE_OF_OTHERS: Final = 3
SUBACK_FAILURE: Final = 0x80
"""The only failure in a SUBACK of 3.1.1."""
