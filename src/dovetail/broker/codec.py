"""MQTT packets to and from bytes: versions 3.1.1 and 5.0, both directions, without state.

This is the door; behind it, in the order of the specification: datatypes.py (section 1.5),
codes.py (2.1, 2.4), properties.py (2.2.2), and the packets (3) in decoding.py and encoding.py.

Clauses of 3.1.1 are tagged [MQTT3-...] where 5.0 has no equal.
"""

from dovetail.broker.datatypes import decode_length, encode_length
from dovetail.broker.decoding import (
    CONNECT_HEAD_BYTES,
    connect_version,
    decode,
    decode_in_pieces,
    decode_publish,
    is_unknown_version,
)
from dovetail.broker.encoding import encode, encode_ack, encode_publish
from dovetail.broker.properties import forwardable_properties, user_properties

__all__ = [
    "CONNECT_HEAD_BYTES",
    "connect_version",
    "decode",
    "decode_in_pieces",
    "decode_length",
    "decode_publish",
    "encode",
    "encode_ack",
    "encode_length",
    "encode_publish",
    "forwardable_properties",
    "is_unknown_version",
    "user_properties",
]
