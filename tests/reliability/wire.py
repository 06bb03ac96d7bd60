"""One direction between two brokers: a packet passes, waits, is lost, or is refused. Pure.

Times and random draws are arguments.
"""

import struct
from dataclasses import dataclass

QUEUE_SECONDS_MAX = 1.0
"""A slow wire drops packets that would wait longer, as a router does."""

_TCP = 6
_FIN, _SYN, _RST, _ACK = 0x01, 0x02, 0x04, 0x10
_TTL = 64


@dataclass
class Wire:
    is_cut: bool = False
    is_reset: bool = False
    """Answer TCP senders with RST."""
    delay_seconds: float = 0.0
    loss: float = 0.0
    """The share of lost packets."""
    bytes_per_second: float = 0.0
    """0: no limit."""
    busy_until: float = 0.0

    def arrival(self, now: float, size_bytes: int, draw: float) -> float | None:
        """Return when a packet arrives, or None if it is lost. `draw` is between 0 and 1."""
        if self.is_cut or self.is_reset or draw < self.loss:
            return None
        if self.bytes_per_second:
            begin = max(now, self.busy_until)
            if begin - now > QUEUE_SECONDS_MAX:
                return None
            self.busy_until = begin + size_bytes / self.bytes_per_second
            return self.busy_until + self.delay_seconds
        return now + self.delay_seconds


def target(packet: bytes) -> bytes | None:
    """Return the four bytes of an IPv4 packet's destination, or None if it is something else."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    return packet[16:20]


def refusal(packet: bytes) -> bytes | None:
    """Return the RST that answers a TCP packet (RFC 9293, 3.10.7.1), or None if none does."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
        return None
    start = (packet[0] & 0x0F) * 4
    if len(packet) < start + 20:
        return None
    origin, destination = packet[12:16], packet[16:20]
    from_port, to_port, sequence, acknowledged = struct.unpack_from(">HHII", packet, start)
    length = (packet[start + 12] >> 4) * 4
    flags = packet[start + 13]
    if flags & _RST:
        return None
    if flags & _ACK:
        numbers, answer = (acknowledged, 0), _RST
    else:
        taken = len(packet) - start - length + bool(flags & _SYN) + bool(flags & _FIN)
        numbers, answer = (0, (sequence + taken) & 0xFFFF_FFFF), _RST | _ACK
    tcp = struct.pack(">HHIIBBHHH", to_port, from_port, *numbers, 5 << 4, answer, 0, 0, 0)
    pseudo = destination + origin + struct.pack(">BBH", 0, _TCP, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp)) + tcp[18:]
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, _TTL, _TCP, 0, destination, origin
    )
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + tcp


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
