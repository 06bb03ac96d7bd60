"""The limit of file descriptors of the process, and the share of each kind of connection.

Every connection and every open file takes a descriptor. Strangers can open as many connections as
they like. With the last descriptor they would keep the broker from its files and its peers. So each
kind of connection has a share, and a connection beyond it is closed at once.

The operating system assigns the lowest free number. So the number of a new connection is a lower
bound for the descriptors in use, and no counter is needed:

    0 ............ clients | HTTP | links of other nodes | files of our own .... limit

A connection of a client may stay if its number is left of the first line, one of HTTP left of the
second, and so on. The numbers right of the last line are for files and our own connections.
"""

import functools
import os
import resource
import sys
from typing import NamedTuple

from dovetail.process.limits import (
    FILE_DESCRIPTORS_RESERVED,
    HTTP_DESCRIPTORS_RESERVED,
    LINK_DESCRIPTORS_RESERVED_MAX,
    LINK_DESCRIPTORS_RESERVED_SHARE,
)


class DescriptorShares(NamedTuple):
    """For each kind of connection, the first number beyond its share."""

    clients: int
    http: int
    links: int


@functools.lru_cache(maxsize=1)
def shares_of(limit: int) -> DescriptorShares:
    """Return the shares of a process that may have `limit` descriptors."""
    links = limit - FILE_DESCRIPTORS_RESERVED
    reserved = min(LINK_DESCRIPTORS_RESERVED_MAX, int(limit * LINK_DESCRIPTORS_RESERVED_SHARE))
    http = links - reserved
    return DescriptorShares(http - HTTP_DESCRIPTORS_RESERVED, http, links)


def descriptor_limit() -> int:
    """Return the current limit of descriptors. Another process may change it at any time."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def clients_max() -> int:
    """Return how many clients can connect, besides the descriptors that are open now."""
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    return shares_of(descriptor_limit()).clients - lowest
