"""Encode and decode MQTT packets: versions 3.1.1 and 5.0, both directions, without state.

In the order of the specification:

    datatypes.py   integers, strings, lengths (section 1.5)
    codes.py       packet types and reason codes (2.1, 2.4)
    properties.py  properties (2.2.2)
    packets.py     the packets as objects (3)
    decoder.py     bytes to packets
    encoder.py     packets to bytes
    scanner.py     finds the packets of a whole read buffer by a kernel
    run.py         neighbouring PUBLISH packets, taken apart or written for a receiver
    kernels/       compiled parts

Clauses of 3.1.1 are tagged [MQTT3-...] where 5.0 has no equal.
"""

from dovetail.codec.datatypes import decode_length, encode_length
from dovetail.codec.decoder import (
    CONNECT_HEAD_BYTES,
    connect_version,
    decode,
    decode_in_pieces,
    decode_publish,
    is_unknown_version,
)
from dovetail.codec.encoder import encode, encode_ack, encode_publish
from dovetail.codec.properties import forwardable_properties, user_properties

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
