"""`[cluster]`: the links of a node with other nodes."""

from typing import Annotated

from msgspec import Struct

from dovetail.limits import (
    CLUSTER_JOIN_SECONDS_MAX,
    CLUSTER_PORT,
    FORGET_SECONDS,
    LINK_SILENCE_SECONDS_MAX,
)
from dovetail.settings.field import bounded, describe


class ClusterSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The links of a node with other nodes."""

    enabled: Annotated[bool, describe("Join this broker to a cluster.")] = False
    name: Annotated[
        str,
        describe(
            "The cluster's name, of letters, digits, '.', '_' and '-', up to 128. Nodes of "
            "different clusters refuse each other."
        ),
    ] = "dovetail"
    host: Annotated[
        str,
        describe(
            "The address to listen on for other nodes. Only this machine can reach 127.0.0.1; any "
            "other one needs a secret_file. An empty text, 0.0.0.0 or :: needs advertise, too."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, bounded(0, 65_535, "The port for other nodes. 0 takes any free one.")] = (
        CLUSTER_PORT
    )
    advertise: Annotated[
        str,
        describe(
            f"The address at which other nodes reach this one, as host:port, or the host alone for "
            f"port {CLUSTER_PORT}. Empty: the address that it listens on."
        ),
    ] = ""
    join: Annotated[
        tuple[str, ...],
        describe(
            f"Nodes to contact at the start, as host:port, or the host alone for port "
            f"{CLUSTER_PORT}. One that is up is enough, and the node itself may be among them: all "
            "nodes can have the same list. A broker also remembers the nodes of its last run."
        ),
    ] = ()
    secret_file: Annotated[
        str,
        describe(
            "A file with the secret that all nodes of the cluster share: at least 16 bytes, which "
            "not everybody may read. Empty: cluster.secret in the data folder, which a node "
            "without join creates if it is missing."
        ),
    ] = ""
    certificate: Annotated[
        str,
        describe(
            "The node's certificate chain for links with other nodes, a PEM file. All nodes have "
            "one, or none has. Empty: links are not encrypted."
        ),
    ] = ""
    key: Annotated[
        str,
        describe(
            "The certificate's private key, a PEM file without a passphrase. Empty: it is in the "
            "certificate's file."
        ),
    ] = ""
    ca: Annotated[
        str,
        describe(
            "A PEM file with the authorities of the certificates of other nodes; the names in them "
            "do not matter. Empty: any certificate is accepted, because the proof of the secret "
            "covers it."
        ),
    ] = ""
    silence_seconds: Annotated[
        float,
        bounded(
            1,
            3_600,
            "A node that is silent for this long counts as down: publishers do not wait for it, "
            "and brokers spool messages for it on disk.",
        ),
    ] = LINK_SILENCE_SECONDS_MAX
    join_seconds: Annotated[
        float,
        bounded(
            0,
            3_600,
            "The longest time that a starting broker waits for the subscriptions of the others. "
            "Then it accepts clients without them.",
        ),
    ] = CLUSTER_JOIN_SECONDS_MAX
    forget_seconds: Annotated[
        float,
        bounded(
            60,
            FORGET_SECONDS,
            "The other nodes forget a node that was away for this long, and delete its spool.",
        ),
    ] = FORGET_SECONDS
