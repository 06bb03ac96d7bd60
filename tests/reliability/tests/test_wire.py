"""Wires with faults, and the RST packets that refuse others."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from reliability.wire import QUEUE_SECONDS_MAX, Wire, checksum, refusal, target

draws = st.floats(0, 0.999)


def segment(flags: int, sequence: int, acknowledged: int, payload: bytes = b"") -> bytes:
    """Return a TCP segment from 10.78.0.1:1000 to 10.78.0.2:7883."""
    tcp = struct.pack(
        ">HHIIBBHHH", 1_000, 7_883, sequence, acknowledged, 5 << 4, flags, 9_000, 0, 0
    )
    size = 20 + len(tcp) + len(payload)
    addresses = bytes([10, 78, 0, 1]), bytes([10, 78, 0, 2])
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 0, 0, 64, 6, 0, *addresses)
    return head + tcp + payload


@given(draws)
def test_a_good_wire_passes_everything_at_once(draw: float) -> None:
    assert Wire().arrival(5, 1_500, draw) == 5
    assert Wire(delay_seconds=0.2).arrival(5, 1_500, draw) == 5.2


@given(draws)
def test_a_wire_that_is_cut_or_reset_passes_nothing(draw: float) -> None:
    assert Wire(is_cut=True).arrival(5, 1_500, draw) is None
    assert Wire(is_reset=True).arrival(5, 1_500, draw) is None


@given(st.floats(0, 1), draws)
def test_a_lossy_wire_loses_its_share(loss: float, draw: float) -> None:
    assert (Wire(loss=loss).arrival(5, 1_500, draw) is None) == (draw < loss)


@given(st.lists(st.integers(40, 1_500), min_size=1, max_size=50))
def test_a_slow_wire_passes_one_packet_after_another(sizes: list[int]) -> None:
    wire = Wire(bytes_per_second=10_000)
    arrivals = [wire.arrival(0, size, 0.5) for size in sizes]
    passed = [(at, size) for at, size in zip(arrivals, sizes, strict=True) if at is not None]
    total = 0
    for at, size in passed:
        total += size
        assert abs(at - total / 10_000) < 1e-6
    assert total / 10_000 <= QUEUE_SECONDS_MAX + 1_500 / 10_000


def test_addresses_are_read() -> None:
    assert target(segment(0x10, 1, 2)) == bytes([10, 78, 0, 2])
    assert target(b"\x60" + bytes(60)) is None  # IPv6
    assert target(b"") is None


def answer(packet: bytes) -> tuple[int, int, int]:
    """Return flags, sequence and acknowledgement of the refusal, whose checksums are right."""
    found = refusal(packet)
    assert found is not None
    assert checksum(found[:20]) == 0
    pseudo = found[12:20] + struct.pack(">BBH", 0, 6, len(found) - 20)
    assert checksum(pseudo + found[20:]) == 0
    assert (found[12:16], found[16:20]) == (packet[16:20], packet[12:16])
    from_port, to_port, sequence, acknowledged = struct.unpack_from(">HHII", found, 20)
    assert (from_port, to_port) == (7_883, 1_000)
    return found[33], sequence, acknowledged


def test_a_refusal_is_one_that_tcp_accepts() -> None:
    assert answer(segment(0x02, 100, 0)) == (0x14, 0, 101)  # SYN: RST and ACK
    assert answer(segment(0x18, 100, 500, b"data")) == (0x04, 500, 0)
    assert refusal(segment(0x04, 100, 0)) is None  # nobody refuses a RST
    assert refusal(b"\x45" + bytes(30)) is None


@given(st.binary(max_size=200))
def test_checksums_add_up(data: bytes) -> None:
    even = data + b"\0" * (len(data) % 2)
    assert checksum(even + struct.pack(">H", checksum(even))) == 0
