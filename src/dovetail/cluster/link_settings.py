"""The settings of a node's links with others. They are checked when they are made."""

import re
from dataclasses import dataclass

from dovetail.api.reports import NodeRole
from dovetail.cluster.addresses import HOST_PATTERN, Address, is_unspecified
from dovetail.cluster.handshake import NAME_PATTERN
from dovetail.cluster.limits import (
    DIAL_SECONDS_MAX,
    DIAL_SECONDS_MIN,
    HANDSHAKE_SECONDS_MAX,
    LINK_PING_SECONDS,
    LINK_STEADY_SECONDS,
    MEMBER_HANDSHAKES_MAX,
    PEER_BACKLOG_BYTES_MAX,
    PEER_FRAME_BYTES_MAX,
    PEER_STALL_SECONDS_MAX,
    STRANGER_HANDSHAKES_MAX,
    STRANGER_HANDSHAKES_PER_ADDRESS_MAX,
)
from dovetail.cluster.secret import check_secret
from dovetail.errors import ConfigError
from dovetail.limits import CLUSTER_PORT, LINK_SILENCE_SECONDS_MAX, NODE_NAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Name, addresses, secret, TLS and limits of a node's links; not the nodes that it dials."""

    name: str
    """The node's name, unique in the cluster."""

    role: NodeRole = "broker"
    """The node's role."""

    cluster: str = "dovetail"
    """Nodes of different clusters refuse each other."""

    host: str = "127.0.0.1"
    """Where it listens; empty for every address of the machine."""

    port: int = CLUSTER_PORT
    """0 takes any free one."""

    may_move: bool = False
    """Take a later port if this one is in use."""

    shares_port: bool = False
    """Share the port with the process that started this node and holds it."""

    advertise: Address | None = None
    """Where others dial it. None: where it listens, which then has to be one address."""

    secret: bytes = b""
    """The cluster's secret. Empty: only nodes on this machine are linked."""

    certificate: str = ""
    """A PEM file with the node's certificate chain. Empty: no TLS, on either side."""

    key: str = ""
    """Its private key. Empty: it is in the certificate's file."""

    ca: str = ""
    """A PEM file with the cluster's authorities. With it both sides of a link show certificates
    that these signed, whatever names are in them. Empty: any certificate will do, since the proof
    of the secret covers it."""

    frame_bytes_max: int = PEER_FRAME_BYTES_MAX
    backlog_bytes_max: int = PEER_BACKLOG_BYTES_MAX
    stall_seconds_max: float = PEER_STALL_SECONDS_MAX
    ping_seconds: float = LINK_PING_SECONDS
    silence_seconds_max: float = LINK_SILENCE_SECONDS_MAX
    steady_seconds: float = LINK_STEADY_SECONDS
    handshake_seconds_max: float = HANDSHAKE_SECONDS_MAX
    member_handshakes_max: int = MEMBER_HANDSHAKES_MAX
    stranger_handshakes_max: int = STRANGER_HANDSHAKES_MAX
    stranger_handshakes_per_address_max: int = STRANGER_HANDSHAKES_PER_ADDRESS_MAX
    dial_seconds_min: float = DIAL_SECONDS_MIN
    dial_seconds_max: float = DIAL_SECONDS_MAX

    def __post_init__(self) -> None:
        for kind, text in (("node", self.name), ("cluster", self.cluster)):
            if re.search(NAME_PATTERN, text) is None:
                raise ConfigError(
                    f"{text!r} will not do as the name of a {kind}: it takes up to "
                    f"{NODE_NAME_BYTES_MAX} letters, digits, '.', '_' and '-'."
                )
        if self.secret:
            check_secret(self.secret, "the configuration")
        if (self.key or self.ca) and not self.certificate:
            raise ConfigError("a key or a ca of the cluster has no effect without a certificate.")
        if self.frame_bytes_max > self.backlog_bytes_max:
            why = f"a frame of {self.frame_bytes_max:,} bytes would never fit into the backlog."
            raise ConfigError(why)
        if self.silence_seconds_max <= 2 * self.ping_seconds:
            raise ConfigError("silence_seconds_max would not outlast a ping that is late.")
        self._check_addresses()

    def _check_addresses(self) -> None:
        if self.advertise is None:
            if is_unspecified(self.host):
                raise ConfigError(
                    "a node that listens on every address has to say where others dial it.",
                    hint="Set its advertised address: host:port, as the other nodes see it.",
                )
        elif re.search(HOST_PATTERN, self.advertise.host) is None:
            raise ConfigError(f"{self.advertise.host!r} is no host that others could dial.")
