from typing import Any

from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from dovetail.codec.codes import FLAGS, REASONS, RETURN_CODE_OF, RETURN_CODES
from dovetail.codec.packets import PacketType
from dovetail.errors import ReasonCode


def test_reason_codes_as_paho_has_them() -> None:
    names: Any = PahoReasonCode.names
    theirs = {
        (packet, code)
        for code, by_name in names.items()
        for packets in by_name.values()
        for packet in packets
    }
    ours = {(int(packet), code) for packet, codes in REASONS.items() for code in codes}
    # Section 3.2.2.2 lists it (for the will's payload), the overview in section 2.4 does not.
    assert ours - theirs == {(PacketType.CONNACK, ReasonCode.PAYLOAD_FORMAT_INVALID)}
    assert theirs - ours == set()


def test_every_packet_type_has_flags() -> None:
    with_flags = {packet for packet in PacketType if FLAGS[packet]}
    assert with_flags == {PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE}


def test_return_codes_come_back_as_they_went() -> None:
    assert [RETURN_CODE_OF[reason] for reason in RETURN_CODES] == [0, 1, 2, 3, 4, 5]
