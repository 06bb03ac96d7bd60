"""The check at the start whether the limit of file descriptors leaves room for clients."""

import logging

from dovetail.errors import ConfigError
from dovetail.node.limits import CLIENTS_FEW, DESCRIPTORS_MIN
from dovetail.process.descriptors import clients_max, descriptor_limit

log = logging.getLogger("dovetail.node")


def check_descriptors(connections_max: int) -> None:
    """Raise ConfigError if there is room for no client; log a warning if there is little."""
    limit, room = descriptor_limit(), clients_max()
    if room < 1:
        raise ConfigError(
            f"the limit of {limit:,} file descriptors leaves none for clients.",
            hint="`ulimit -Hn`, or LimitNOFILE of a service, has to be at least "
            f"{DESCRIPTORS_MIN:,}.",
        )
    if room < min(CLIENTS_FEW, connections_max):
        log.warning(
            "%d clients can be connected at a time: the limit of file descriptors is %s "
            "(`ulimit -Hn`)",
            room,
            f"{limit:,}",
        )
