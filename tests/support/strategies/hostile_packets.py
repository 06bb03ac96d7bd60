"""Draw packets that no well-behaved client sends, as bytes, fast and from a seed.

The codec makes pools of valid packets once. A packet is one of them, intact or damaged: bits,
bytes, lengths, pieces of two. A damaged body often gets a length that fits it, so that the decoder
meets the damage, and not the scanner. Names and numbers come from small sets: hostile clients share
topics, sessions and identifiers.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

from dovetail.codec import encode, encode_length, forwardable_properties
from dovetail.codec.codes import REASONS
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
    UserProperties,
    Will,
)
from dovetail.errors import ReasonCode

VERSIONS: Final = (MQTT_3_1_1, MQTT_5)
CLIENT_IDS: Final = ("", "c1", "c2", "c3", "c4", "c5", "é", "a/b", "#", "\n")
USERS: Final = (None, None, "", "u1", "u2", "+")
TOPICS: Final = (
    b"a", b"a/b", b"a/b/c", b"b", b"b/b", b"s/1", b"/", b"a//b", b"a/secret/x", b"u1/c1/x",
    b"$SYS/x", b"$x/y", "é/ü".encode(), "\ufeff".encode(), b"a/" * 100 + b"a",
)  # fmt: skip
FILTERS: Final = (
    "#", "+", "a/#", "a/+", "a/+/c", "+/b", "+/#", "a/b", "b", "s/1", "/", "a//b", "$SYS/#", "$x/+",
    "é/#", "$share/g/a/#", "$share/g/#", "$share/h/+/b", "$share/g/s/1", "+/" * 60 + "#",
)  # fmt: skip
ACKS: Final = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)

_PACKETS_A_KIND = 60
_KINDS: Final = (
    *("publish",) * 28,
    *("plain",) * 6,
    *("ack",) * 16,
    *("subscribe",) * 8,
    *("unsubscribe",) * 4,
    *("ping",) * 2,
    *("disconnect",) * 2,
    *("connect",) * 2,
    "servers",
)
_LENGTHS: Final = (
    b"\x00", b"\x7f", b"\x80\x00", b"\x80\x80\x80\x00", b"\xff\xff\xff\x7f", b"\xff\xff\x7f",
    b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\xff\xff\x3f",
)  # fmt: skip
"""Remaining lengths: from zero to the largest, five bytes, and forms longer than needed."""

_EDGES: Final = (b"\x00\x00", b"\x00\x01", b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\x00\x80")
_INTERVALS: Final = (0, 1, 10, 3_600, 0xFFFF_FFFF)

Item = TypeVar("Item")


def pick(random: Random, items: Sequence[Item]) -> Item:
    """Choose an item in a third of the time of `Random.choice`."""
    return items[int(random.random() * len(items))]


class HostilePackets:
    """`packet` and `valid` return the bytes of one packet, which may be invalid."""

    def __init__(self, random: Random) -> None:
        self.random = random
        """Can be replaced: the pools stay, and later draws use the new one."""
        self._pools: dict[tuple[int, str], list[bytes]] = {}
        for version in VERSIONS:
            makers: dict[str, Callable[[int], Packet]] = {
                "connect": self._connect,
                "simple connect": self._simple_connect,
                "simple subscribe": self._simple_subscribe,
                "publish": self._publish,
                "plain": self._plain,
                "ack": self._ack,
                "subscribe": self._subscribe,
                "unsubscribe": self._unsubscribe,
                "ping": lambda _version: Ping(PacketType.PINGREQ),
                "disconnect": self._disconnect,
                "servers": self._of_servers,
            }
            for kind, make in makers.items():
                self._pools[version, kind] = [
                    encode(version, make(version)) for _ in range(_PACKETS_A_KIND)
                ]
        self._large = {version: self._large_ones(version) for version in VERSIONS}

    # What is sent -------------------------------------------------------------------------------

    def valid(self, version: int, kind: str) -> bytes:
        """Return a valid packet of this kind, with unusual contents."""
        return pick(self.random, self._pools[version, kind])

    def packet(self, version: int) -> bytes:
        random = self.random
        chance = random.random()
        if chance < 0.02:
            return random.randbytes(1 + int(random.random() * 60))
        if chance < 0.025:
            return self._damaged(pick(random, self._large[version]), 0.5)
        data = pick(random, self._pools[version, pick(random, _KINDS)])
        return data if chance < 0.7 else self._damaged(data, 0.7)

    def _damaged(self, data: bytes, repaired: float) -> bytes:
        random = self.random
        if random.random() < repaired:
            start = 2 if data[1] < 0x80 else 3 if data[2] < 0x80 else 4
            body = self._mutated(data[start:])
            return data[:1] + encode_length(len(body)) + body
        return self._mutated(data)

    def _mutated(self, data: bytes) -> bytes:
        random = self.random.random
        for _ in range(1 + int(random() * random() * 4)):
            if not data:
                return self.random.randbytes(1)
            data = self._mutated_once(data, int(random() * 10), int(random() * len(data)))
        return data

    def _mutated_once(self, data: bytes, way: int, at: int) -> bytes:  # noqa: PLR0911
        random = self.random
        length = 1 + int(random.random() ** 3 * 12)
        if way <= 1:  # a bit
            return data[:at] + bytes((data[at] ^ 1 << int(random.random() * 8),)) + data[at + 1 :]
        if way == 2:  # a byte
            return data[:at] + random.randbytes(1) + data[at + 1 :]
        if way == 3:
            return data[:at]
        if way == 4:
            return data[:at] + random.randbytes(length) + data[at:]
        if way == 5:
            return data[:at] + data[at + length :]
        if way == 6:
            return data[: at + length] + data[at:]
        if way == 7:  # two packets, cut and joined
            other = pick(random, self._pools[pick(random, VERSIONS), pick(random, _KINDS)])
            return data[:at] + other[int(random.random() * len(other)) :]
        if way == 8:
            return data[:1] + pick(random, _LENGTHS) + data[2:]
        return data[:at] + pick(random, _EDGES) + data[at + 2 :]

    # What it is made from -----------------------------------------------------------------------

    def _connect(self, version: int) -> Connect:
        random = self.random
        is_5 = version == MQTT_5
        user = pick(random, USERS)
        clean = random.random() < 0.5
        packet = Connect(
            version,
            pick(random, CLIENT_IDS[0 if clean or is_5 else 1 :]),
            clean,
            keep_alive_seconds=pick(random, (0, 0, 1, 60, 65_535)),
            user=user,
            password=b"secret" if user and random.random() < 0.5 else None,
            will=self._will(version) if random.random() < 0.4 else None,
        )
        if is_5:
            packet.session_expiry_seconds = pick(random, _INTERVALS)
            packet.receive_max = pick(random, (1, 2, 10, 65_535))
            packet.packet_bytes_max = pick(random, (None, None, None, 1, 40, 100, 70_000))
            packet.alias_max = pick(random, (0, 0, 1, 3, 65_535))
            packet.wants_problem_information = random.random() < 0.8
            packet.wants_response_information = random.random() < 0.1
            packet.user_properties = self._user_properties()
            if random.random() < 0.03:
                packet.authentication_method = "SCRAM"
                packet.authentication_data = b"x"
        return packet

    def _simple_connect(self, version: int) -> Connect:
        return Connect(version, pick(self.random, CLIENT_IDS[:6]))

    def _simple_subscribe(self, _version: int) -> Subscribe:
        """Draw a CONNECT as nearly all real ones are."""
        request = SubscriptionRequest(pick(self.random, ("a/#", "a/b", "b")), 2)
        return Subscribe(self._packet_id(), [request])

    def _will(self, version: int) -> Will:
        random = self.random
        will = Will(
            pick(random, TOPICS),
            b"will",
            qos=int(random.random() * 3),
            retain=random.random() < 0.3,
        )
        if version == MQTT_5:
            will.properties = self._properties()
            will.expiry_seconds = pick(random, (None, *_INTERVALS))
            will.delay_seconds = pick(random, _INTERVALS)
        return will

    def _publish(self, version: int) -> Publish:
        random = self.random
        qos = int(random.random() * 3)
        packet = Publish(
            pick(random, TOPICS),
            pick(random, (b"", b"x", b"hello", bytes(130))),
            qos,
            retain=random.random() < 0.2,
            duplicate=qos > 0 and random.random() < 0.2,
            packet_id=self._packet_id() if qos else 0,
        )
        if version == MQTT_5 and random.random() < 0.6:
            packet.properties = self._properties()
            packet.expiry_seconds = pick(random, (None, *_INTERVALS))
            packet.alias = pick(random, (0, 0, 1, 2, 3, 100, 101))
            if packet.alias and random.random() < 0.5:
                packet.topic = b""
        return packet

    def _plain(self, _version: int) -> Publish:
        """Draw a PUBLISH that is forwarded unchanged."""
        return Publish(pick(self.random, TOPICS), pick(self.random, (b"", b"x", bytes(130))))

    def _ack(self, version: int) -> Ack:
        random = self.random
        packet = Ack(pick(random, ACKS), self._packet_id())
        if version == MQTT_5 and random.random() < 0.3:
            packet.reason = pick(random, tuple(REASONS[packet.type]))
            packet.user_properties = self._user_properties()
        return packet

    def _subscribe(self, version: int) -> Subscribe:
        random = self.random
        is_5 = version == MQTT_5
        requests = []
        for _ in range(1 + int(random.random() ** 2 * 4)):
            request = SubscriptionRequest(pick(random, FILTERS), int(random.random() * 3))
            if is_5:
                request.no_local = random.random() < 0.2 and not request.filter.startswith("$share")
                request.retain_as_published = random.random() < 0.3
                request.retain_handling = int(random.random() * 3)
            requests.append(request)
        packet = Subscribe(self._packet_id(), requests)
        if is_5:
            packet.identifier = pick(random, (0, 0, 1, 127, 128, 268_435_455))
            packet.user_properties = self._user_properties()
        return packet

    def _unsubscribe(self, version: int) -> Unsubscribe:
        random = self.random
        filters = [pick(random, FILTERS) for _ in range(1 + int(random.random() * 3))]
        packet = Unsubscribe(self._packet_id(), filters)
        if version == MQTT_5:
            packet.user_properties = self._user_properties()
        return packet

    def _disconnect(self, version: int) -> Disconnect:
        random = self.random
        if version == MQTT_3_1_1:
            return Disconnect()
        return Disconnect(
            pick(random, tuple(REASONS[PacketType.DISCONNECT])),
            session_expiry_seconds=pick(random, (None, *_INTERVALS)),
            user_properties=self._user_properties(),
        )

    def _of_servers(self, version: int) -> Packet:
        """Draw a packet that only a server may send."""
        ours: list[Packet] = [
            Connack(session_present=False, reason=ReasonCode.SUCCESS),
            SubscriptionAck(PacketType.SUBACK, 1, [0]),
            SubscriptionAck(PacketType.UNSUBACK, 1, [0]),
            Ping(PacketType.PINGRESP),
        ]
        if version == MQTT_5:
            ours.append(Auth(ReasonCode.RE_AUTHENTICATE, "SCRAM", b"data"))
            ours.append(Publish(b"a", b"", identifiers=(1, 2)))
        return pick(self.random, ours)

    def _large_ones(self, version: int) -> list[bytes]:
        """Draw packets whose fields are as long and as many as the wire format allows."""
        many = tuple((f"k{number}", "v" * 10) for number in range(3_000))
        request = SubscriptionRequest
        packets: list[Packet] = [
            Publish(b"x" * 65_535, b""),
            Publish(b"/" * 65_535, b"deep", 1, packet_id=1),
            Publish(b"a/" * 127 + b"a", b"128 levels"),
            Publish(b"a/" * 128 + b"a", b"129 levels", retain=True),
            Publish(b"a", bytes(100_000), 2, packet_id=3),
            Publish(b"a", bytes(1 << 20)),
            Subscribe(1, [request("+/" * 32_767 + "#")]),
            Subscribe(1, [request("x" * 65_535)]),
            Subscribe(2, [request(f"f/{number}/+") for number in range(500)]),
            Unsubscribe(3, [f"f/{number}/+" for number in range(500)]),
            Connect(version, "i" * 65_535),
            Connect(version, "c1", user="u" * 65_535, password=bytes(65_535)),
            Connect(version, "c2", will=Will(b"w" * 65_535, bytes(65_535), 2, True)),
        ]
        if version == MQTT_5:
            packets += [
                Publish(b"a", b"", properties=forwardable_properties(user=many)),
                Publish(b"y" * 65_535, b"", alias=1),
                Publish(b"z" * 60_000, b"", 1, True, packet_id=5, expiry_seconds=0xFFFF_FFFF),
                Connect(version, "c3", session_expiry_seconds=60, user_properties=many),
                Subscribe(4, [request("a/#", 2)], user_properties=many),
                Ack(PacketType.PUBREC, 1, ReasonCode.QUOTA_EXCEEDED, "r" * 65_535),
                Disconnect(ReasonCode.UNSPECIFIED_ERROR, reason_string="r" * 65_535),
            ]
        return [encode(version, packet) for packet in packets]

    def _properties(self) -> bytes:
        random = self.random
        return forwardable_properties(
            payload_format=pick(random, (None, 0, 1)),
            content_type=pick(random, (None, "text/plain")),
            response_topic=pick(random, (None, "a/b")),
            correlation_data=pick(random, (None, b"", b"\x00\xff")),
            user=self._user_properties(),
        )

    def _user_properties(self) -> UserProperties:
        random = self.random
        return (("k", "v"), ("k", "é")) if random.random() < 0.2 else ()

    def _packet_id(self) -> int:
        return pick(self.random, (1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 65_535))
