"""Two sides of a handshake without a network between them, for tests of node links."""

from dovetail.cluster import frames
from dovetail.cluster.frames import FrameReader
from dovetail.cluster.handshake import (
    INSTANCE_BYTES,
    NONCE_BYTES,
    Check,
    Handshake,
    HandshakeRole,
    HandshakeState,
    Hello,
)
from dovetail.cluster.limits import HANDSHAKE_BYTES_MAX

KEY = b"k" * 32


def hello(name: str, nonce: int = 0, *, cluster: str = "test", instance: int = 0) -> Hello:
    """Return the hello of a node. Without `instance` the instance follows from the name."""
    return Hello(
        cluster=cluster,
        name=name,
        incarnation=7,
        host="127.0.0.1",
        port=7883,
        instance=(instance or sum(name.encode())).to_bytes(INSTANCE_BYTES),
        nonce=nonce.to_bytes(NONCE_BYTES),
        role="broker",
    )


def dialer(
    own: Hello | None = None,
    key: bytes = KEY,
    *,
    channel: bytes = b"",
    expected_name: str | None = None,
    check: Check | None = None,
) -> Handshake:
    return Handshake(
        HandshakeRole.DIALER,
        own or hello("a", 1),
        key,
        channel=channel,
        expected_name=expected_name,
        check=check,
    )


def acceptor(
    own: Hello | None = None,
    key: bytes = KEY,
    *,
    channel: bytes = b"",
    needs_secret: bool = False,
    check: Check | None = None,
) -> Handshake:
    return Handshake(
        HandshakeRole.ACCEPTOR,
        own or hello("b", 2),
        key,
        channel=channel,
        needs_secret=needs_secret,
        check=check,
    )


def only_frame(data: bytes) -> tuple[int, bytes]:
    (frame,) = FrameReader(HANDSHAKE_BYTES_MAX).feed(data)
    return frame


def step(side: Handshake, data: bytes) -> bytes:
    """Return the answer of `side` to the single frame in `data`."""
    return side.receive(*only_frame(data))


def run(one: Handshake, other: Handshake) -> list[int]:
    """Run the handshake to its end. Return the kinds of the frames that were sent."""
    kinds = []
    speaker, data = one, one.begin()
    while data:
        kinds.append(only_frame(data)[0])
        speaker = other if speaker is one else one
        data = step(speaker, data)
    return kinds


def is_done(*sides: Handshake) -> bool:
    return all(side.state is HandshakeState.DONE for side in sides)


WHOLE = [frames.HELLO, frames.HELLO, frames.PROOF, frames.PROOF]
