"""Measures the cost of where-clauses at SUBSCRIBE, and at the start of a broker with many of them.

Three parts, each compared with something similar in the same run:

- reading: clauses by the fast path that most of them take, against the whole grammar;
- subscribing: SUBSCRIBE with a clause at a real broker, against one without;
- starting: a real process with stored subscriptions, with clauses and without: CPU seconds, memory
  for each, and the time of the first publication.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from _attributes_process import NAMES, Client, Service, progress
from _measure import finish, in_turn, ratio, table, verdict
from _ports import reserve
from attributes import packets, publish
from dovetail import codec
from dovetail.attributes.grammar import parse, parse_fully
from dovetail.broker.store.journal import Batch, SessionRow, SubscriptionRow
from dovetail.broker.store.sqlite import Store
from dovetail.codec.packets import (
    MQTT_5,
    SESSION_NEVER_EXPIRES,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
)
from dovetail.sim import workload

READ_AT_ONCE = 200
PACKETS_AT_ONCE = 200
SESSIONS = 20
FASTER_MIN = 4.0
SUBSCRIBING_MAX = 4.0
STARTING_MAX = 8.0
"""Measured: 3.8 and 5.1 on a busy machine. With the grammar alone it was about 18."""


def ranges(random: Random) -> list[tuple[str, float, float]]:
    lows = [round(random.uniform(0, 750), 3) for _ in NAMES]
    return [(name, low, round(low + 250, 3)) for name, low in zip(NAMES, lows, strict=True)]


SHAPES: dict[str, Callable[[str, float, float], str]] = {
    "0 <= a < 9 and ...": lambda name, low, high: f"{low!r} <= {name} < {high!r}",
    "a >= 0 and a < 9 and ...": lambda name, low, high: f"{name}>={low!r} and {name}<{high!r}",
    "a in [0, 9) and ...": lambda name, low, high: f"{name} in [{low!r}, {high!r})",
}


def clauses(write: Callable[[str, float, float], str], count: int) -> list[str]:
    random = Random(1)
    return [" and ".join(write(*one) for one in ranges(random)) for _ in range(count)]


# Reading ------------------------------------------------------------------------------------------


def reading(rounds: int) -> None:
    rows = []
    factors = []
    for shape, write in SHAPES.items():
        texts = clauses(write, READ_AT_ONCE)
        seconds = in_turn(
            {
                "short": lambda texts=texts: [parse(text) for text in texts],  # type: ignore[misc]
                "whole": lambda texts=texts: [parse_fully(text) for text in texts],  # type: ignore[misc]
            },
            rounds,
        )
        factors.append(ratio(seconds["whole"], seconds["short"]))
        each = [statistics.median(seconds[way]) / READ_AT_ONCE * 1e6 for way in ("whole", "short")]
        rows.append((shape, *(f"{one:.1f}" for one in each), f"{factors[-1]:.1f}"))
    table("Reading a clause of four ranges, µs", ("clause", "grammar", "short way", "ratio"), rows)
    verdict("times as fast by the short way", min(factors), FASTER_MIN, at_most=False)


# Subscribing --------------------------------------------------------------------------------------


def subscribes(requests: Sequence[tuple[str, str | None]]) -> list[bytes]:
    return [
        codec.encode(
            MQTT_5,
            Subscribe(
                1,
                [SubscriptionRequest(topic_filter)],
                0,
                () if where is None else (("where", where),),
            ),
        )
        for topic_filter, where in requests
    ]


def send_all(client: Client, encoded: Sequence[bytes]) -> None:
    for first in range(0, len(encoded), PACKETS_AT_ONCE):
        together = encoded[first : first + PACKETS_AT_ONCE]
        client.send(b"".join(together))
        left = len(together)
        while left:
            answers = client.take(1)
            for kind, body in answers:
                answer = codec.decode(MQTT_5, kind, body)
                assert isinstance(answer, SubscriptionAck)
                assert not any(answer.reasons), answer
            left -= len(answers)


def subscribing(count: int, rounds: int) -> None:
    texts = iter(clauses(SHAPES["0 <= a < 9 and ..."], count * (rounds + 1)))
    numbers = iter(range(count * (rounds + 1)))
    with served(lambda _folder: None) as (_, port):
        client = Client(port, "subscriber")

        def with_clause() -> None:
            send_all(client, subscribes([("bench/#", next(texts)) for _ in range(count)]))

        def without() -> None:
            filters = [(f"bench/{next(numbers)}/of/many", None) for _ in range(count)]
            send_all(client, subscribes(filters))

        seconds = in_turn({"with": with_clause, "without": without}, rounds)
        client.close()
    rows = [
        (f"{way} a clause", f"{count / statistics.median(seconds[way]):,.0f}")
        for way in ("without", "with")
    ]
    table("SUBSCRIBE, one filter a packet", ("subscription", "a second"), rows)
    slower = ratio(seconds["with"], seconds["without"])
    verdict("times as long with a clause", slower, SUBSCRIBING_MAX, at_most=True)


# Starting -----------------------------------------------------------------------------------------


@contextmanager
def served(fill: Callable[[Path], None]) -> Iterator[tuple[Service, int]]:
    """Run a broker and yield its port; `fill` first writes to its data folder."""
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as name:
        folder = Path(name)
        fill(folder / "data")
        port = reserve()
        service = Service(folder, "up", "--port", port, "--data", folder / "data")
        try:
            yield service, port
        finally:
            service.stop()


def with_stored(keys: Sequence[str]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        store = Store.open(folder, "process")
        batch = Batch(1)
        for number in range(1, SESSIONS + 1):
            batch.sessions[number] = SessionRow(
                f"client-{number}", SESSION_NEVER_EXPIRES, time.time(), None, None
            )
        row = SubscriptionRow(0, 0)
        for number, key in enumerate(keys):
            batch.subscriptions[number % SESSIONS + 1, key] = row
        store.commit(batch)
        store.close()

    return fill


def stored_clauses(count: int) -> list[str]:
    write = SHAPES["0 <= a < 9 and ..."]
    lows, highs = (edges.round(3).tolist() for edges in workload.boxes(count))
    return [
        "bench/#\0" + " and ".join(map(write, NAMES, low, high))
        for low, high in zip(lows, highs, strict=True)
    ]


def stored_filters(count: int) -> list[str]:
    return [f"bench/site-{number % 40}/machine-{number:07d}/of/many" for number in range(count)]


def starting(count: int, rounds: int) -> None:
    kinds = {
        "nothing": list[str](),
        "without a clause": stored_filters(count),
        "with a clause": stored_clauses(count),
    }
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    memory: dict[str, list[float]] = {kind: [] for kind in kinds}
    first: dict[str, list[float]] = {kind: [] for kind in kinds}
    one = packets(1, 1)
    for turn in range(rounds):
        for kind, keys in kinds.items():
            with served(with_stored(keys)) as (service, port):
                (seconds,) = service.cpu_seconds().values()
                cpu[kind].append(seconds)
                memory[kind].append(resident_bytes(service.process.pid))
                publisher = Client(port, "publisher")
                first[kind].append(publish(publisher, one))
                publisher.close()
            progress(f"start {turn + 1}, {kind}: {seconds:.1f} s of CPU")
    rows = []
    for kind in kinds:
        more = [took - rest for took, rest in zip(cpu[kind], cpu["nothing"], strict=True)]
        larger = [have - rest for have, rest in zip(memory[kind], memory["nothing"], strict=True)]
        rows.append(
            (
                kind,
                f"{statistics.median(cpu[kind]):.1f}",
                f"{statistics.median(more) / count * 1e6:.0f}",
                f"{statistics.median(larger) / count:,.0f}",
                f"{statistics.median(first[kind]) * 1e3:.0f}",
            )
        )
    table(
        f"A start with {count:,} subscriptions",
        ("stored", "CPU s", "µs each", "bytes each", "first publication ms"),
        rows,
    )
    added = [
        [took - rest for took, rest in zip(cpu[kind], cpu["nothing"], strict=True)]
        for kind in ("with a clause", "without a clause")
    ]
    verdict("times as long to restore with a clause", ratio(*added), STARTING_MAX, at_most=True)


def resident_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise SystemExit("the broker is gone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=4_000, help="in each round")
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    reading(5 * options.rounds)
    subscribing(options.subscriptions, options.rounds)
    starting(options.stored, options.rounds)


if __name__ == "__main__":
    main()
    finish()
