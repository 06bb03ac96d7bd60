"""The handshake of two nodes: both prove that they have the cluster's secret. Pure.

    dialer                                      acceptor
    | -- HELLO: cluster, name, nonce, ... ------> |   version, cluster and name are checked
    | <- HELLO ---------------------------------- |
    | -- PROOF of both HELLOs as "dialer" ------> |   checked; then the node's own check
    | <- PROOF of both HELLOs as "acceptor" ----- |
    checked; then the node's own check

| state         | frame   | dialer                       | acceptor                       |
|---------------|---------|------------------------------|--------------------------------|
| HELLO_AWAITED | HELLO   | sends PROOF -> PROOF_AWAITED | sends HELLO -> PROOF_AWAITED   |
| PROOF_AWAITED | PROOF   | -> DONE                      | sends PROOF -> DONE            |
| any           | REFUSAL | -> REFUSED                   | -> REFUSED                     |
| any           | others  | sends REFUSAL -> REFUSED     | sends REFUSAL -> REFUSED       |

Rules:

- A proof is an HMAC over the role, the channel and the HELLOs as they came. So it is useless in the
  other role, with other HELLOs, or on another connection: each HELLO has its own nonce.
- The dialer proves first: a dialer without the secret gets a HELLO, and no proof to attack offline.
- The channel is the digest of the acceptor's certificate, empty without TLS. So a man in the middle
  with another certificate fails, with or without an authority. Without TLS, a man in the middle can
  still read, and write, after the proofs have passed.
- A peer's mistake never raises: it ends in REFUSED, with a sentence for both sides' logs. A refusal
  is not authenticated, and so no reason to give a peer up for ever.
- Magic, version and refusals stay as they are in all versions, so that any two nodes can say what
  is wrong.
"""

import hmac
from collections.abc import Callable
from enum import Enum, IntEnum, auto
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dovetail.api.reports import NodeRole
from dovetail.cluster import frames
from dovetail.cluster.addresses import HOST_PATTERN, Address
from dovetail.cluster.limits import REFUSAL_CHARACTERS_MAX
from dovetail.limits import NODE_NAME_BYTES_MAX

MAGIC = b"DOVETAIL"
VERSION = 2
NONCE_BYTES = 32
INSTANCE_BYTES = 16
NAME_PATTERN = rf"\A[A-Za-z0-9._-]{{1,{NODE_NAME_BYTES_MAX}}}\Z"
"""Names of nodes and clusters: no characters that could break a line of the log."""

_VERSION_BYTES = 2
_PREFIX_BYTES = len(MAGIC) + _VERSION_BYTES

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]


class HandshakeRole(Enum):
    DIALER = b"dialer"
    ACCEPTOR = b"acceptor"


class HandshakeState(Enum):
    HELLO_AWAITED = auto()
    PROOF_AWAITED = auto()
    DONE = auto()
    REFUSED = auto()


class RefusalCode(IntEnum):
    """Why a node refuses another."""

    MALFORMED = 1
    OTHER_VERSION = 2
    OTHER_CLUSTER = 3
    WRONG_SECRET = 4
    SECRET_NEEDED = 5
    OURSELVES = 6
    NAME_IN_USE = 7
    OTHER_NAME = 8
    NOT_TAKEN = 9


class Hello(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """HELLO: who a node says it is."""

    cluster: Name
    name: Name
    incarnation: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    host: Annotated[str, Meta(pattern=HOST_PATTERN)]
    port: Annotated[int, Meta(ge=1, le=65_535)]
    instance: Annotated[bytes, Meta(min_length=INSTANCE_BYTES, max_length=INSTANCE_BYTES)]
    """Drawn when the process starts: tells two processes of the same name apart."""
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    """Drawn for this connection."""
    role: NodeRole

    @property
    def address(self) -> Address:
        """Where others may dial it."""
        return Address(self.host, self.port)


class HandshakeRefusal(Struct, frozen=True, array_like=True):
    """REFUSAL: a code for programs, and a sentence for people."""

    code: int
    sentence: str


Check = Callable[[Hello], HandshakeRefusal | None]
"""Returns why this authenticated node is refused; None: it is accepted."""

_decode_hello = msgspec.msgpack.Decoder(Hello).decode
_decode_refusal = msgspec.msgpack.Decoder(HandshakeRefusal).decode
_encode = msgspec.msgpack.Encoder().encode


class Handshake:
    """One side of a handshake. The caller sends the bytes that methods return."""

    def __init__(
        self,
        role: HandshakeRole,
        hello: Hello,
        key: bytes,
        *,
        channel: bytes = b"",
        expected_name: str | None = None,
        needs_secret: bool = False,
        check: Check | None = None,
    ) -> None:
        """`hello` is our own, with a fresh nonce.

        With `needs_secret` every peer is refused: we have no secret, and it is on another machine.
        """
        self.role = role
        self.state = HandshakeState.HELLO_AWAITED
        self.hello = hello
        self.peer: Hello | None = None
        """The peer's HELLO; proven in DONE."""
        self.refusal: HandshakeRefusal | None = None
        self.is_refused_by_us = False
        self._key = key
        self._channel = channel
        self._expected_name = expected_name
        self._needs_secret = needs_secret
        self._check = check
        self._own_hello_body = encode_hello(hello)
        self._peer_hello_body = b""

    def begin(self) -> bytes:
        """Return the dialer's HELLO; nothing for the acceptor."""
        return (
            frames.encode(frames.HELLO, self._own_hello_body)
            if self.role is HandshakeRole.DIALER
            else b""
        )

    def receive(self, kind: int, body: bytes) -> bytes:
        if self.state is HandshakeState.REFUSED:
            return b""
        if kind == frames.REFUSAL:
            self.state = HandshakeState.REFUSED
            self.refusal = decode_refusal(body)
            return b""
        if self.state is HandshakeState.HELLO_AWAITED and kind == frames.HELLO:
            return self._take_hello(body)
        if self.state is HandshakeState.PROOF_AWAITED and kind == frames.PROOF:
            return self._take_proof(body)
        return self.refuse(RefusalCode.MALFORMED, f"a frame of kind {kind} came out of turn")

    def refuse(self, code: RefusalCode, sentence: str) -> bytes:
        """End the handshake, and return a REFUSAL with the reason."""
        self.state = HandshakeState.REFUSED
        self.refusal = HandshakeRefusal(code, sentence)
        self.is_refused_by_us = True
        return frames.encode(frames.REFUSAL, _encode(self.refusal))

    def _take_hello(self, body: bytes) -> bytes:
        if not body.startswith(MAGIC) or len(body) < _PREFIX_BYTES:
            return self.refuse(RefusalCode.MALFORMED, "what came is no HELLO of a Dovetail node")
        version = int.from_bytes(body[len(MAGIC) : _PREFIX_BYTES])
        if version != VERSION:
            sentence = f"{self.hello.name} speaks version {VERSION} of this protocol, not {version}"
            return self.refuse(RefusalCode.OTHER_VERSION, sentence)
        try:
            self.peer = _decode_hello(body[_PREFIX_BYTES:])
        except ValueError as error:  # all that msgspec raises are
            return self.refuse(RefusalCode.MALFORMED, f"the HELLO cannot be read: {error}")
        refusal = self._check_hello(self.peer)
        if refusal is not None:
            return self.refuse(*refusal)
        self._peer_hello_body = body
        self.state = HandshakeState.PROOF_AWAITED
        if self.role is HandshakeRole.ACCEPTOR:
            return frames.encode(frames.HELLO, self._own_hello_body)
        return frames.encode(frames.PROOF, self._proof_of(HandshakeRole.DIALER))

    def _check_hello(self, peer: Hello) -> tuple[RefusalCode, str] | None:
        """Check a HELLO that is not proven yet. Return the code and sentence of a refusal."""
        own = self.hello
        if self._needs_secret:
            sentence = f"{own.name} has no secret, and so links with nodes on its machine only"
            return RefusalCode.SECRET_NEEDED, sentence
        if peer.cluster != own.cluster:
            sentence = f"{own.name} is in the cluster {own.cluster}, {peer.name} in {peer.cluster}"
            return RefusalCode.OTHER_CLUSTER, sentence
        if peer.name == own.name and peer.instance == own.instance:
            return RefusalCode.OURSELVES, f"{own.name} has dialed itself"
        if peer.name == own.name:
            return RefusalCode.NAME_IN_USE, f"there are two nodes with the name {own.name}"
        if self._expected_name not in {None, peer.name}:
            return (
                RefusalCode.OTHER_NAME,
                f"{self._expected_name} was expected where {peer.name} is",
            )
        return None

    def _take_proof(self, body: bytes) -> bytes:
        peer = self.peer
        assert peer is not None
        others = (
            HandshakeRole.ACCEPTOR if self.role is HandshakeRole.DIALER else HandshakeRole.DIALER
        )
        if not hmac.compare_digest(body, self._proof_of(others)):
            sentence = f"the proof of {peer.name} is wrong: {self.hello.name} has another secret"
            if self._channel:
                sentence += ", or somebody stands between them"
            return self.refuse(RefusalCode.WRONG_SECRET, sentence)
        refusal = self._check(peer) if self._check is not None else None
        if refusal is not None:
            return self.refuse(RefusalCode(refusal.code), refusal.sentence)
        self.state = HandshakeState.DONE
        if self.role is HandshakeRole.DIALER:
            return b""
        return frames.encode(frames.PROOF, self._proof_of(HandshakeRole.ACCEPTOR))

    def _proof_of(self, role: HandshakeRole) -> bytes:
        hellos = [self._own_hello_body, self._peer_hello_body]
        if self.role is HandshakeRole.ACCEPTOR:
            hellos.reverse()
        # Each part has its length in front, so that different parts never make the same bytes.
        parts = [role.value, self._channel, *hellos]
        proven = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hmac.digest(self._key, proven, "sha256")


def encode_hello(hello: Hello, version: int = VERSION) -> bytes:
    return MAGIC + version.to_bytes(_VERSION_BYTES) + _encode(hello)


def decode_refusal(body: bytes) -> HandshakeRefusal:
    """Decode a refusal. Its sender may be hostile: our log gets one short, printable line."""
    try:
        refusal = _decode_refusal(body)
    except ValueError:
        return HandshakeRefusal(RefusalCode.MALFORMED, "the refusal cannot be read")
    sentence = refusal.sentence[:REFUSAL_CHARACTERS_MAX]
    printable = "".join(letter if letter.isprintable() else "?" for letter in sentence)
    return HandshakeRefusal(refusal.code, printable)
