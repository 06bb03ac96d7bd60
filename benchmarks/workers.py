"""Compares the throughput of `dovetail up --workers` with that of one broker.

Pairs of a publisher and a subscriber run at once, each pair in a process of its own and checked as
in `_load`. The system gives every connection to some worker. So with two workers half of the
messages go on from one to another, and with more workers more. All processes share the machine.
Where it has no more cores than workers, the ratio shows that as much as anything else.
"""

import argparse
import multiprocessing
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _load import Load, Traffic
from _load_contenders import HOST, Contender, Purpose, Server
from _measure import ratio, table

WARM_UP_SECONDS = 0.5
READY_SECONDS_MAX = 120.0
"""The time for all pairs to warm up; a pair that was killed cannot report."""


@dataclass(frozen=True)
class PairTraffic(Traffic):
    """Traffic on topics that no other pair has."""

    pair: int = 0

    def topic(self, publisher: int, number: int) -> bytes:
        return b"pair/%03d/" % self.pair + super().topic(publisher, number)


def traffics(pair: int) -> dict[str, PairTraffic]:
    filters = (b"pair/%03d/#" % pair,)
    return {
        "QoS 0, 10 publishers, a send for each packet": PairTraffic(
            pair=pair, filters=filters, publishers=10, single_packets=True, window_bytes=10 << 10
        ),
        "QoS 1": PairTraffic(pair=pair, filters=filters, qos=1),
        "QoS 2": PairTraffic(pair=pair, filters=filters, qos=2),
    }


def contender(workers: int) -> Contender:
    program = Path(sys.executable).with_name("dovetail")

    def prepare(port: int, folder: Path, _purpose: Purpose) -> list[str]:
        place = ["--port", str(port), "--host", HOST, "--data", str(folder / "data")]
        return [str(program), "up", *place, "--workers", str(workers), "--quiet"]

    return Contender(name(workers), prepare)


def name(workers: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}"


@contextmanager
def started(workers: int) -> Iterator[Server]:
    server = Server(contender(workers), "throughput")
    os.sched_setaffinity(server.process_id, os.sched_getaffinity(0))  # and so its workers'
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def run_pair(port: int, what: str, pair: int, seconds: float, ready: Any, rates: Any) -> None:  # noqa: ANN401
    Load._runs = pair * 1_000_000  # noqa: SLF001  # client identifiers are by this
    try:
        with Load(port, traffics(pair)[what]) as load:
            load.run(WARM_UP_SECONDS)
            ready.wait()
            rates.put(load.run(seconds).rate)
    except BaseException:
        ready.abort()  # or the others would wait for this one
        raise


def measure(port: int, what: str, pairs: int, seconds: float) -> float:
    """Return the messages a second of all pairs together."""
    context = multiprocessing.get_context("fork")
    ready, rates = context.Barrier(pairs, timeout=READY_SECONDS_MAX), context.SimpleQueue()
    processes = [
        context.Process(target=run_pair, args=(port, what, pair, seconds, ready, rates))
        for pair in range(pairs)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"FAILED: {what}: a pair lost, doubled or altered a message")
    return sum(rates.get() for _ in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=2, help="against one; default 2")
    parser.add_argument("--pairs", type=int, default=4, help="of clients; default 4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers are ended, too
    counts = (1, options.workers)
    samples: dict[tuple[str, int], list[float]] = {}
    with started(counts[0]) as one, started(counts[1]) as several:
        servers = dict(zip(counts, (one, several), strict=True))
        for _ in range(options.rounds):
            for what in traffics(0):
                for count, server in servers.items():
                    rate = measure(server.port, what, options.pairs, options.seconds)
                    samples.setdefault((what, count), []).append(rate)
                    print(f"{what}: {name(count)}: {rate:,.0f}/s", file=sys.stderr, flush=True)
    rows = []
    for what in traffics(0):
        first, other = (samples[what, count] for count in counts)
        medians = [f"{statistics.median(rates):,.0f}" for rates in (first, other)]
        rows.append([what, *medians, f"{ratio(other, first):.2f}"])
    title = f"messages a second, {options.pairs} pairs, {os.cpu_count()} cores for all"
    table(title, ["traffic", *map(name, counts), "ratio"], rows)


if __name__ == "__main__":
    main()
