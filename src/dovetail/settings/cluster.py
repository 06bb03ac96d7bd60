"""`[cluster]`: a node's links with other brokers."""

from typing import Annotated

from msgspec import Struct

from dovetail.limits import (
    CLUSTER_JOIN_SECONDS_MAX,
    CLUSTER_PORT,
    FORGET_SECONDS,
    LINK_SILENCE_SECONDS_MAX,
)
from dovetail.settings.field import about, number


class Cluster(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's links with other brokers."""

    enabled: Annotated[bool, about("Be one broker of a cluster.")] = False
    name: Annotated[
        str,
        about(
            "The cluster's name, of letters, digits, '.', '_' and '-', up to 128. Nodes of "
            "different clusters refuse each other."
        ),
    ] = "dovetail"
    host: Annotated[
        str,
        about(
            "The address to listen on for other nodes. Only this machine can reach 127.0.0.1; any "
            "other one needs a secret_file, and an empty text, 0.0.0.0 or :: needs advertise too."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, number(0, 65_535, "The port for other nodes. 0 takes any free one.")] = (
        CLUSTER_PORT
    )
    advertise: Annotated[
        str,
        about(
            f"Where other nodes reach this one, as host:port, or the host alone for port "
            f"{CLUSTER_PORT}. Empty: where it listens."
        ),
    ] = ""
    join: Annotated[
        tuple[str, ...],
        about(
            f"Nodes to look for at the start, as host:port, or the host alone for port "
            f"{CLUSTER_PORT}. One that is up is enough, and the node itself may be among them: all "
            "nodes can have the same list. Those of the last time are remembered as well."
        ),
    ] = ()
    secret_file: Annotated[
        str,
        about(
            "A file with the secret that all nodes of the cluster share: at least 16 bytes, which "
            "not everybody may read. Empty: cluster.secret in the data folder, which a node that "
            "joins nobody makes if it is missing."
        ),
    ] = ""
    certificate: Annotated[
        str,
        about(
            "The node's certificate chain for links with other nodes, a PEM file. All nodes have "
            "one, or none has. Empty: links are not encrypted."
        ),
    ] = ""
    key: Annotated[
        str,
        about(
            "The certificate's private key, a PEM file without a passphrase. Empty: it is in the "
            "certificate's file."
        ),
    ] = ""
    ca: Annotated[
        str,
        about(
            "A PEM file with the authorities whose certificates other nodes have to show, whatever "
            "names are in them. Empty: any certificate will do, since the proof of the secret "
            "covers it."
        ),
    ] = ""
    silence_seconds: Annotated[
        float,
        number(
            1,
            3_600,
            "A node that is not heard for so long counts as down: publishers do not wait for it, "
            "and what it is owed is kept on disk.",
        ),
    ] = LINK_SILENCE_SECONDS_MAX
    join_seconds: Annotated[
        float,
        number(
            0,
            3_600,
            "For so long a node that starts waits for the others to tell it what is subscribed to "
            "there, before it lets clients in without.",
        ),
    ] = CLUSTER_JOIN_SECONDS_MAX
    forget_seconds: Annotated[
        float,
        number(
            60,
            FORGET_SECONDS,
            "A node that was away for so long is forgotten, with what it was owed.",
        ),
    ] = FORGET_SECONDS
