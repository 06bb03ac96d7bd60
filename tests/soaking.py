"""Trouble without end for clusters of real brokers: `scripts/soak`.

In short, and the same each time, it is tests/broker/peering/test_trouble.py. Here a round is a
cluster of three brokers, clients that publish and receive at all of them, and thirty strikes drawn
from the round's seed: brokers are killed, stopped, terminated and started, connections are lost,
the network is cut and healed, one on top of the other. Then all is made well, and nothing that was
acknowledged may be missing, nothing at QoS 2 doubled, nothing out of order.

With `--roam` it is connections alone that are lost, many of them, and clients come back to another
broker each time.

The logs of a round that failed are kept, and `--seed` runs it again.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from cluster_trouble import Trouble, open_cluster, trouble

STRIKES = 30
PAUSE_SECONDS_MAX = 1.5
LONG_PAUSE_SECONDS = 6.0
"""Longer than a connection that is silent is kept."""

LOST_A_STRIKE = 5
"""Connections, when clients roam."""

SECONDS = 600.0
SEEDS = 1 << 31


def run_round(seed: int, folder: Path, strikes: int, *, roam: bool) -> Trouble:
    """An AssertionError tells what went wrong."""
    with open_cluster(folder) as (brokers, network), trouble(brokers, network, seed) as made:
        if roam:
            made.let_roam()
        for _ in range(strikes):
            if roam:
                for _ in range(LOST_A_STRIKE):
                    made.lose()
            else:
                made.strike()
            is_long = not roam and made.random.random() < 0.1
            time.sleep(LONG_PAUSE_SECONDS if is_long else made.random.uniform(0, PAUSE_SECONDS_MAX))
    return made


def soak(seconds: float, seed: int | None, strikes: int, *, roam: bool) -> int:
    """Rounds until the time is over, or one fails. The exit code."""
    option = " --roam" if roam else ""
    until = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < until:
        number = random.randrange(SEEDS) if seed is None else seed
        folder = Path(tempfile.mkdtemp(prefix=f"dovetail-soak-{number}-"))
        began_at = time.monotonic()
        try:
            with contextlib.redirect_stdout(None):
                made = run_round(number, folder, strikes, roam=roam)
        except AssertionError as error:
            print(f"{error}\n\nThe brokers' logs: {folder}")
            print(f"Again: scripts/soak --seed {number}{option}")
            return 1
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
        rounds += 1
        sent = sum(len(one.acknowledged) for one in made.senders)
        received = sum(len(one.received) for one in made.receivers)
        print(
            f"round {rounds}, seed {number}: {sent:,} acknowledged, {received:,} received, "
            f"{len(made.story)} events in {time.monotonic() - began_at:.0f} s",
            flush=True,
        )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Random faults for clusters of real brokers, under load."
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"about how long; default {SECONDS:.0f}"
    )
    parser.add_argument("--seed", type=int, help="of every round; default: another each")
    parser.add_argument(
        "--strikes", type=int, default=STRIKES, help=f"in a round; default {STRIKES}"
    )
    parser.add_argument("--roam", action="store_true", help="clients come back to other brokers")
    options = parser.parse_args()
    # Whoever ends us ends our brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return soak(options.seconds, options.seed, options.strikes, roam=options.roam)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
