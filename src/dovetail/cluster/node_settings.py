"""A node's part in its cluster, made of its settings: links, whom to look for, the sketches' seed.

The secret is in the file that the settings name. Where they name none it is in the data folder: a
node that joins nobody makes one there, and one that joins others has to have theirs.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from dovetail.api.reports import NodeRole
from dovetail.cluster.addresses import Address, parse_address
from dovetail.cluster.limits import SECRET_FILE
from dovetail.cluster.link_settings import ClusterLinks
from dovetail.cluster.secret import make_secret, read_secret, seed_of
from dovetail.cluster.tls import Tls
from dovetail.errors import ConfigError, files_explained
from dovetail.limits import CLUSTER_JOIN_SECONDS_MAX, FORGET_SECONDS
from dovetail.settings import Cluster, Settings


@dataclass(frozen=True)
class ClusterPart:
    """What a node has to know to be one of several."""

    links: ClusterLinks
    join: tuple[Address, ...] = ()
    seed: int = 0
    """Of the hashes in sketches; the same for all nodes."""
    join_seconds_max: float = CLUSTER_JOIN_SECONDS_MAX
    forget_seconds: float = FORGET_SECONDS


def part_of(
    settings: Settings,
    name: str,
    *,
    role: NodeRole = "broker",
    may_move: bool = False,
    shares_port: bool = False,
) -> ClusterPart:
    """`name` is the node's. With `may_move` it takes a port behind its own if that is taken.

    `shares_port`: with who started it, and holds the port.
    """
    cluster = settings.cluster
    secret = read_secret(secret_file_of(settings))
    return ClusterPart(
        links_of(cluster, name, secret, role=role, may_move=may_move, shares_port=shares_port),
        join=tuple(map(parse_address, cluster.join)),
        seed=seed_of(secret, cluster.name),
        join_seconds_max=cluster.join_seconds,
        forget_seconds=cluster.forget_seconds,
    )


def links_of(
    cluster: Cluster,
    name: str,
    secret: bytes,
    *,
    role: NodeRole = "broker",
    may_move: bool = False,
    shares_port: bool = False,
) -> ClusterLinks:
    return ClusterLinks(
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


def renewed_tls(links: ClusterLinks, cluster: Cluster) -> Tls | None:
    """Of links that have it, from the files that the settings name now; None: they have none."""
    if not links.certificate:
        return None
    if not cluster.certificate:
        raise ConfigError("links with other nodes have TLS until the next start.")
    return Tls(replace(links, certificate=cluster.certificate, key=cluster.key, ca=cluster.ca))


def secret_file_of(settings: Settings, folder: Path | None = None) -> str:
    """Where the secret is, which is there when this returns; `folder` stands for the data's."""
    cluster = settings.cluster
    if cluster.secret_file:
        return cluster.secret_file
    file = (Path(settings.data) if folder is None else folder) / SECRET_FILE
    with files_explained(file):
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
