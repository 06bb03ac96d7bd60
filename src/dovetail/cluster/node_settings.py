"""Makes a node's cluster settings from its settings file: links, seeds, secret and sketch seed.

The secret is in the file that the settings name, or else in the data folder. A node that joins no
others makes one there. A node that joins others needs a copy of theirs.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from dovetail.api.reports import NodeRole
from dovetail.cluster.addresses import Address, parse_address
from dovetail.cluster.limits import SECRET_FILE
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.secret import make_secret, read_secret, seed_of
from dovetail.cluster.tls import LinkTls
from dovetail.errors import ConfigError, explain_file_errors
from dovetail.limits import CLUSTER_JOIN_SECONDS_MAX, FORGET_SECONDS
from dovetail.settings import ClusterSettings, Settings


@dataclass(frozen=True)
class NodeSettings:
    """The settings that a node needs to be in a cluster."""

    links: LinkSettings
    join: tuple[Address, ...] = ()
    seed: int = 0
    """The seed of the hashes in sketches, the same for all nodes."""
    join_seconds_max: float = CLUSTER_JOIN_SECONDS_MAX
    forget_seconds: float = FORGET_SECONDS


def node_settings_of(
    settings: Settings,
    name: str,
    *,
    role: NodeRole = "broker",
    may_move: bool = False,
    shares_port: bool = False,
) -> NodeSettings:
    """Return the settings of the node `name`. The secret's file is read, or made.

    With `may_move` the node takes a later port if its own is in use. With `shares_port` it shares
    the port with the process that started it and holds the port.
    """
    cluster = settings.cluster
    secret = read_secret(secret_file_of(settings))
    return NodeSettings(
        link_settings_of(
            cluster, name, secret, role=role, may_move=may_move, shares_port=shares_port
        ),
        join=tuple(map(parse_address, cluster.join)),
        seed=seed_of(secret, cluster.name),
        join_seconds_max=cluster.join_seconds,
        forget_seconds=cluster.forget_seconds,
    )


def link_settings_of(
    cluster: ClusterSettings,
    name: str,
    secret: bytes,
    *,
    role: NodeRole = "broker",
    may_move: bool = False,
    shares_port: bool = False,
) -> LinkSettings:
    return LinkSettings(
        name=name,
        role=role,
        cluster=cluster.name,
        host=cluster.host,
        port=cluster.port,
        may_move=may_move,
        shares_port=shares_port,
        advertise=parse_address(cluster.advertise) if cluster.advertise else None,
        secret=secret,
        certificate=cluster.certificate,
        key=cluster.key,
        ca=cluster.ca,
        silence_seconds_max=cluster.silence_seconds,
    )


def renewed_tls(links: LinkSettings, cluster: ClusterSettings) -> LinkTls | None:
    """Read the certificates again, from the files in the settings. None: links have no TLS."""
    if not links.certificate:
        return None
    if not cluster.certificate:
        raise ConfigError("links with other nodes have TLS until the next start.")
    return LinkTls(replace(links, certificate=cluster.certificate, key=cluster.key, ca=cluster.ca))


def secret_file_of(settings: Settings, folder: Path | None = None) -> str:
    """Return the path of the secret's file. Without one, make it in `folder` or the data folder."""
    cluster = settings.cluster
    if cluster.secret_file:
        return cluster.secret_file
    file = (Path(settings.data) if folder is None else folder) / SECRET_FILE
    with explain_file_errors(file):
        is_there = file.exists()
    if not is_there:
        if cluster.join:
            raise ConfigError(
                f"the secret of the cluster that is joined is not known here: there is no {file}.",
                hint="--secret-file, or secret_file in the table [cluster], names a copy of the "
                "one that the other nodes have.",
            )
        make_secret(file)
    return str(file)
