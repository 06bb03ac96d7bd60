"""File descriptors: how many the process may have, and who may take the last of them.

Every connection takes one, and so does every file. Strangers can open as many connections as they
like; if they could take the last descriptor, the broker could neither open its files nor reach its
peers. So each kind of connection has a share, and whoever comes beyond it is closed at once.

The system gives the lowest number that is free. So the number of a new connection says how many
descriptors are in use at least, by whomever, and nobody has to count them:

    0 ............ clients | HTTP | links of other nodes | files of our own .... limit

A connection of a client keeps its descriptor if the number is left of the first line, one of HTTP
left of the second, and so on. What is right of the last line only we ourselves can take.
"""

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


class Shares(NamedTuple):
    """The first numbers that are not for a kind of connection any more."""

    clients: int
    http: int
    links: int


def shares_of(limit: int) -> Shares:
    """Return the shares of a process that may have `limit` descriptors."""
    links = limit - FILE_DESCRIPTORS_RESERVED
    reserved = min(LINK_DESCRIPTORS_RESERVED_MAX, int(limit * LINK_DESCRIPTORS_RESERVED_SHARE))
    http = links - reserved
    return Shares(http - HTTP_DESCRIPTORS_RESERVED, http, links)


def limit_now() -> int:
    """Return how many descriptors this process may have. Others may change it at any time."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def raise_limit() -> None:
    """Have as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def clients_max() -> int:
    """Return how many connections of clients there is room for, besides what is open now."""
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    return shares_of(limit_now()).clients - lowest
