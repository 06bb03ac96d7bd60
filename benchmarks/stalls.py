"""Measures how long others wait for long work of one client: Dovetail against Mosquitto.

A client does each kind of work within the default limits (tests/support/brokers/long_work.py).
Meanwhile another process sends PINGREQ again and again, and records the longest wait for PINGRESP.
The first row is without any work: it shows what the machine itself adds. Next to each row is the
CPU time of the broker, from the beginning until it is idle again.

tests/test_turns.py bounds Dovetail's longest turn of the event loop, in CPU time of its thread;
this benchmark measures it at full size.
"""

import argparse
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from _load_contenders import Server, dovetail, mosquitto, running
from _measure import finish, table, verdict
from support.brokers.long_work import (
    DEEP_TOPIC,
    GROUPS_TOPIC,
    close_together,
    close_with,
    connect_with_properties,
    group_filters,
    overlapping_filters,
    plain_filters,
    publish_at_once,
    publish_to,
    start_clean_over,
    subscribe_to_retained,
    unsubscribe_from,
)
from support.processes.turn_process import TurnBroker

TURN_MS_MAX = 20.0
PAUSE_SECONDS = 0.001
IDLE_SECONDS = 1.5
IDLE_SHARE = 0.1
SETTLE_SECONDS_MAX = 120.0
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04ping"
CONFIGURATION = '[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nport = 0\n'

Case = Callable[[int], object]
"""A client's work; takes the port of the broker."""


def cases(share: float) -> dict[str, Case]:
    """Return work by name, at a `share` of the largest sizes that the default limits allow."""

    def some(count: int) -> int:
        return max(int(count * share), 1)

    plain = plain_filters(some(100_000))
    deep = overlapping_filters(some(65_536))
    groups = group_filters(some(2_000))
    retained = some(10_000)
    properties = some(5_000)
    return {
        "nothing": lambda _: time.sleep(IDLE_SECONDS),
        f"close with {len(plain):,} subscriptions": lambda port: close_with(port, plain),
        f"unsubscribe from {len(plain):,}": lambda port: unsubscribe_from(port, plain),
        f"start clean over {len(plain):,}": lambda port: start_clean_over(port, plain),
        f"publish to {len(deep):,} overlapping filters": lambda port: publish_to(
            port, deep, DEEP_TOPIC
        ),
        f"publish to {len(groups):,} groups": lambda port: publish_to(port, groups, GROUPS_TOPIC),
        f"100 publications at once to {len(groups):,} groups": lambda port: publish_at_once(
            port, groups, GROUPS_TOPIC, 100, 0
        ),
        f"nine clients with {len(deep):,} close": lambda port: close_together(port, deep, 9),
        f"{properties:,} user properties on CONNECT": (
            lambda port: connect_with_properties(port, properties)
        ),
        f"subscribe to {retained:,} retained messages": (
            lambda port: subscribe_to_retained(port, retained)
        ),
    }


# The waits of another client ----------------------------------------------------------------------


def ping(port: int, orders: Connection) -> None:
    """Ping, and answer each order with the longest wait since the last, in s."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(CONNECT)
        client.recv(4, socket.MSG_WAITALL)
        longest = 0.0
        while True:
            if orders.poll():
                if not orders.recv():
                    return
                orders.send(longest)
                longest = 0.0
            began = time.perf_counter()
            client.sendall(PINGREQ)
            if client.recv(2, socket.MSG_WAITALL) != PINGRESP:
                return
            longest = max(longest, time.perf_counter() - began)
            time.sleep(PAUSE_SECONDS)


class Prober:
    """The process that pings a broker."""

    def __init__(self, port: int) -> None:
        self._orders, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=ping, args=(port, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def longest_wait(self) -> float:
        """Return the longest wait since the last call, in seconds."""
        self._orders.send(True)
        return float(self._orders.recv())

    def stop(self) -> None:
        self._orders.send(False)
        self._process.join()


def settle(server: Server) -> float:
    """Wait until the broker only answers pings; return its CPU time."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    before = server.cpu_seconds()
    while time.monotonic() < deadline:
        time.sleep(IDLE_SECONDS)
        now = server.cpu_seconds()
        if now - before < IDLE_SHARE * IDLE_SECONDS:
            return now
        before = now
    return before


def waits(server: Server, chosen: dict[str, Case]) -> dict[str, tuple[float, float]]:
    """Return by case the longest wait of the other client and the broker's CPU time, in ms."""
    server.wait_until_ready()
    prober = Prober(server.port)
    found = {}
    for name, act in chosen.items():
        began = settle(server)
        prober.longest_wait()
        act(server.port)
        cpu = settle(server) - began
        found[name] = prober.longest_wait() * 1e3, cpu * 1e3
    prober.stop()
    return found


# Turns of the loop --------------------------------------------------------------------------------


def turns(chosen: dict[str, Case]) -> dict[str, float]:
    """Return by case the longest turn of Dovetail's loop, in ms of CPU time."""
    found = {}
    with tempfile.TemporaryDirectory() as name, TurnBroker(Path(name), CONFIGURATION) as broker:
        for case, act in chosen.items():
            broker.start_measuring()
            act(broker.port)
            found[case] = broker.longest_turn() * 1e3
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the largest sizes (default 1)")
    chosen = cases(parser.parse_args().share)
    contenders = [one for one in (dovetail(), mosquitto()) if one.missing is None]
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for contender in contenders:
        print(f"{contender.name} ...", flush=True)
        with running([contender], "throughput") as servers:
            found[contender.name] = waits(servers[contender.name], chosen)
    print("Dovetail's loop ...", flush=True)
    longest = turns(chosen)
    table(
        "While one client does this: the longest wait of another, ms / CPU time of the broker, ms",
        ["", *found, "Dovetail's longest turn, ms of CPU"],
        [
            [
                name,
                *(f"{one[name][0]:,.1f} / {one[name][1]:,.0f}" for one in found.values()),
                f"{longest[name]:.1f}",
            ]
            for name in chosen
        ],
    )
    if "Mosquitto" in found:
        ours, theirs = (
            max(wait for wait, _ in found[name].values()) for name in ("Dovetail", "Mosquitto")
        )
        print(f"\nThe longest wait of all: Mosquitto's is {theirs / ours:.1f} x Dovetail's.")
    verdict("longest turn, ms of CPU", max(longest.values()), TURN_MS_MAX, at_most=True)
    finish()


if __name__ == "__main__":
    main()
