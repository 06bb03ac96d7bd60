"""Addresses of nodes, host and port, and their text form. Pure."""

import ipaddress
import re
from typing import NamedTuple

from dovetail.errors import ConfigError
from dovetail.limits import CLUSTER_PORT, HOST_BYTES_MAX

HOST_PATTERN = rf"\A[A-Za-z0-9._:%-]{{1,{HOST_BYTES_MAX}}}\Z"
"""Names, IPv4 and IPv6 addresses, whether or not they can be reached."""

_HOST = re.compile(HOST_PATTERN)
_TEXT = re.compile(r"(?:\[(?P<literal>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `host:port`, `[IPv6 address]:port`, or either without a port."""
    found = _TEXT.fullmatch(text)
    host = (found["literal"] or found["name"]) if found is not None else ""
    port = int(found["port"] or CLUSTER_PORT) if found is not None else 0
    if _HOST.fullmatch(host) is None or not 1 <= port <= 65_535:
        raise ConfigError(
            f"{text!r} is no address of a node.",
            hint=f"It takes host:port, or the host alone for port {CLUSTER_PORT}; an IPv6 address "
            "stands in brackets: [::1]:7883.",
        )
    return Address(host, port)


def is_loopback(host: str) -> bool:
    """Is this a loopback address? A name never is."""
    address = _literal(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped is not None and mapped.is_loopback


def network_of(host: str) -> str:
    """Return the part of an address that belongs to one party: for IPv6, the /64 prefix.

    For IPv4 it is the whole address in normal form. A name is returned as it is.
    """
    address = _literal(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    if isinstance(mapped, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((mapped, 64), strict=False))
    return host if mapped is None else str(mapped)


def is_unspecified(host: str) -> bool:
    """Does it stand for every address of this machine, so that others cannot dial it?"""
    address = _literal(host)
    return not host or (address is not None and address.is_unspecified)


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
