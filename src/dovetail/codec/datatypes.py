"""Encode and decode the data types of MQTT packets (MQTT 5.0 section 1.5).

Bytes from the wire that cannot be read are the sender's fault: a ClientError. A value that cannot
be written is our fault: a ValueError. Nothing here knows packets or properties.
"""

from struct import Struct

from dovetail.errors import ClientError, ReasonCode

LENGTH_MAX = 268_435_455
"""The largest variable byte integer: four bytes of seven bits."""

_TWO_BYTES = Struct(">H")
_FOUR_BYTES = Struct(">I")
_ONE_BYTE_LENGTHS = tuple(bytes([length]) for length in range(128))

write_two_bytes = _TWO_BYTES.pack
write_four_bytes = _FOUR_BYTES.pack


def malformed(message: str) -> ClientError:
    """Return the error for bytes that cannot be parsed, or are malformed by the specification."""
    return ClientError(ReasonCode.MALFORMED_PACKET, message)


def protocol_error(message: str) -> ClientError:
    """Return the error for a packet that can be parsed and is not allowed."""
    return ClientError(ReasonCode.PROTOCOL_ERROR, message)


def encode_length(length: int) -> bytes:
    """Encode a variable byte integer, in as few bytes as it needs [MQTT-1.5.5-1]."""
    if 0 <= length < 128:
        return _ONE_BYTE_LENGTHS[length]
    if not 0 <= length <= LENGTH_MAX:
        raise ValueError(f"{length:,} is no variable byte integer: 0 to {LENGTH_MAX:,} are")
    encoded = bytearray()
    while length >= 128:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def decode_length(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int] | None:
    """Return a variable byte integer and the position behind it; None if more bytes are needed.

    Forms that are longer than necessary are accepted: 3.1.1 does not forbid them, and before a
    CONNECT is read the version is unknown.
    """
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for position, byte in enumerate(data[at : at + 4]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value, at + position + 1
    if len(data) - at >= 4:
        raise malformed("a variable byte integer does not end within four bytes")
    return None


def write_byte(value: int) -> bytes:
    return bytes((value,))


def write_binary(data: bytes) -> bytes:
    if len(data) > 65_535:
        raise ValueError(f"{len(data):,} bytes do not fit a field of at most 65,535 bytes")
    return _TWO_BYTES.pack(len(data)) + data


def write_text(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("text for the wire holds the null character U+0000")
    return write_binary(text.encode())


def write_pair(pair: tuple[str, str]) -> bytes:
    return write_text(pair[0]) + write_text(pair[1])


def check_text(encoded: bytes, what: str) -> str:
    """Return the text of these bytes. A ClientError if it is not valid text in MQTT."""
    try:
        text = encoded.decode()  # refuses surrogates, too; a U+FEFF stays [MQTT-1.5.4-3]
    except UnicodeDecodeError as error:  # [MQTT-1.5.4-1]
        raise malformed(f"{what} is not well-formed UTF-8 ({error.reason})") from None
    if "\0" in text:  # [MQTT-1.5.4-2]
        raise malformed(f"{what} holds the null character U+0000")
    return text


class FieldReader:
    """Reads the fields of a packet one after the other; `what` names the field in errors."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    def take(self, count: int, what: str) -> bytes:
        start = self.at
        stop = start + count
        if stop > self.end:
            raise self._short(count, what)
        self.at = stop
        return self.data[start:stop]

    def rest(self) -> bytes:
        start, self.at = self.at, self.end
        return self.data[start:]

    def done(self) -> bool:
        return self.at == self.end

    def finish(self) -> None:
        if self.at != self.end:
            raise malformed(f"{self.end - self.at:,} bytes follow where the packet should end")

    def byte(self, what: str) -> int:
        at = self.at
        if at >= self.end:
            raise self._short(1, what)
        self.at = at + 1
        return self.data[at]

    def flag(self, what: str) -> bool:
        value = self.byte(what)
        if value > 1:
            raise protocol_error(f"{what} is {value}, and only 0 and 1 mean something")
        return value == 1

    def two_bytes(self, what: str) -> int:
        at = self.at
        if at + 2 > self.end:
            raise self._short(2, what)
        self.at = at + 2
        return self.data[at] << 8 | self.data[at + 1]

    def four_bytes(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "big")

    def variable(self, what: str) -> int:
        at = self.at
        if at < self.end and (value := self.data[at]) < 0x80:
            self.at = at + 1
            return value
        found = decode_length(self.data, self.at)
        if found is None:
            raise malformed(f"{what} is cut off")
        value, stop = found
        if stop - self.at > 1 and not self.data[stop - 1]:  # [MQTT-1.5.5-1]
            raise malformed(f"{what} takes more bytes than {value:,} needs")
        self.at = stop
        return value

    def binary(self, what: str) -> bytes:
        return self.take(self.two_bytes(what), what)

    def text(self, what: str) -> str:
        return check_text(self.take(self.two_bytes(what), what), what)

    def pair(self, what: str) -> tuple[str, str]:
        return self.text(what), self.text(what)

    def packet_id(self) -> int:
        packet_id = self.two_bytes("the packet identifier")
        if not packet_id:  # [MQTT-2.2.1-3], [MQTT3-2.3.1-1]
            raise protocol_error("the packet identifier is 0; it has to be 1 to 65,535")
        return packet_id

    def _short(self, count: int, what: str) -> ClientError:
        return malformed(f"{what}: {count:,} bytes should be there, {self.end - self.at:,} are")
