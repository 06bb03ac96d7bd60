"""Brokers of a cluster as processes of their own, on this machine.

usage: cluster_process.py NAME FOLDER PORT NODE_PORT ADVERTISED_PORT [JOIN_PORT...]
"""

import sys
from pathlib import Path

from dovetail.cluster.addresses import Address
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.node_settings import NodeSettings
from dovetail.node.broker import BrokerNode, run_node
from dovetail.settings import HttpSettings, ListenerSettings, Settings

HOST = "127.0.0.1"


def announce(node: BrokerNode) -> None:
    print(f"{node.name} is up", flush=True)


def main(
    name: str, folder: str, port: str, node_port: str, advertised_port: str, *join: str
) -> None:
    settings = Settings(
        name=name,
        data=str(Path(folder) / name),
        listeners=(ListenerSettings(kind="tcp", host=HOST, port=int(port)),),
        http=HttpSettings(enabled=False),
    )
    run_node(
        settings,
        announce=announce,
        cluster=NodeSettings(
            LinkSettings(
                name=name,
                host=HOST,
                port=int(node_port),
                advertise=Address(HOST, int(advertised_port)),
            ),
            tuple(Address(HOST, int(one)) for one in join),
        ),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
