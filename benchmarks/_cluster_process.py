"""Runs a broker of the cluster benchmark, with one of the ways and with subscriptions.

usage: _cluster_process.py '{"name": ..., "way": ..., "kind": ..., "broker": 0, "each": 1000000,
                             "folder": ..., "port": ..., "node_port": ..., "join": [...]}'

It starts with its subscriptions, as if from its data folder, and prints "loaded". It joins the
others when it reads "go". Then it answers every line that it reads with a line of figures.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from _cluster_filters import filters_of, topics_of
from _cluster_ways import WAYS, CountingExchange
from dovetail.broker.core import Broker
from dovetail.broker.peering import mesh
from dovetail.broker.session import Session
from dovetail.cluster.addresses import Address
from dovetail.cluster.link_settings import LinkSettings
from dovetail.node.broker import BrokerNode, NodeSettings, run_node
from dovetail.settings import HttpSettings, ListenerSettings, LogSettings, MqttSettings, Settings

HOST = "127.0.0.1"
FILTERS_A_SESSION = 1_000


def resident_bytes() -> int:
    """Return the resident bytes, after the allocator has released free memory."""
    gc.collect()
    with contextlib.suppress(OSError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def say(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def load(broker: Broker, options: dict[str, Any]) -> None:
    each = options["each"]
    filters = filters_of(topics_of(options["kind"], each)(options["broker"], each))
    gc.disable()
    for first in range(0, each, FILTERS_A_SESSION):
        # Clients that are away: what comes for them at QoS 0 is needed here, and ends here.
        session = Session(broker.shared, 10_000_000 + first, f"subscriber-{first}")
        for topic_filter in filters[first : first + FILTERS_A_SESSION]:
            broker.router.subscribe(session, topic_filter, 0, 0)
    gc.enable()
    gc.freeze()


def figures(node: BrokerNode, alone_bytes: int, rest_bytes: int) -> dict[str, Any]:
    assert node.agent is not None
    exchange = node.agent.mesh.sketch_exchange
    assert isinstance(exchange, CountingExchange)
    counters = node.agent._server.shared.counters  # noqa: SLF001
    known = len(node.agent.mesh.names()) if exchange.is_synchronous else 0
    return {
        "known": known,
        "rest": rest_bytes,
        "alone": alone_bytes,
        "resident": resident_bytes(),
        "known_bytes": exchange.known_bytes,  # type: ignore[attr-defined]
        "own_bytes": exchange.own_bytes,  # type: ignore[attr-defined]
        "whole_bytes": exchange.whole_bytes,
        "delta_bytes": exchange.delta_bytes,
        "forwarded": counters.publishes_forwarded,
        "from_peers": counters.publishes_from_peers,
        "in_vain": counters.publishes_in_vain,
        "dropped": counters.peer_messages_dropped,
    }


def main(options: dict[str, Any]) -> None:
    mesh.SketchExchange = WAYS[options["way"]]  # type: ignore[misc]
    restore = Broker.restore
    measured: dict[str, int] = {}

    def restore_and_load(broker: Broker, *arguments: Any) -> None:  # noqa: ANN401
        restore(broker, *arguments)
        measured["rest"] = resident_bytes()
        if options["each"]:
            load(broker, options)
            assert broker.mesh is not None
            broker.mesh.sketch_exchange.sketch  # noqa: B018  # it is made when it is looked at
        measured["alone"] = resident_bytes()
        say({"loaded": options["each"]})
        sys.stdin.readline()

    Broker.restore = restore_and_load  # type: ignore[method-assign]

    def announce(node: BrokerNode) -> None:
        def answer() -> None:
            line = sys.stdin.readline()
            if line:
                say(figures(node, measured["alone"], measured["rest"]))
            else:
                asyncio.get_running_loop().remove_reader(0)

        asyncio.get_running_loop().add_reader(0, answer)
        say({"up": node.name})

    run_node(
        Settings(
            name=options["name"],
            data=str(Path(options["folder"]) / options["name"]),
            listeners=(ListenerSettings(kind="tcp", host=HOST, port=options["port"]),),
            http=HttpSettings(enabled=False),
            mqtt=MqttSettings(sys_interval_seconds=0),
            log=LogSettings(level="error"),
        ),
        announce=announce,
        cluster=NodeSettings(
            LinkSettings(name=options["name"], host=HOST, port=options["node_port"]),
            tuple(Address(HOST, port) for port in options["join"]),
        ),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
