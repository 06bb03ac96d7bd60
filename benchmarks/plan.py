"""Measures what the borders of a plan gain over even ones, simulated and live.

    simulated   20 matchers, by the rate at which queues begin to grow (_plan_simulated.py)
    live        4 matchers and 2 brokers, by the CPU time of matchers (_plan_live.py)

The code of `dovetail plan` makes the plans from a sample. A gain of 2 means that matchers take
twice the publications, because the busiest one sets the limit.
"""

import argparse
import os
from dataclasses import replace

from _measure import finish
from _plan_live import live
from _plan_simulated import WORKLOADS, simulated


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", action="append", choices=["simulated", "live"], help="only this")
    parser.add_argument("--matchers", type=int, default=20, help="simulated ones")
    parser.add_argument("--seeds", type=int, default=3, help="of simulations")
    parser.add_argument("--boxes", type=int, default=8_000, help="of the live cluster")
    parser.add_argument("--publications", type=int, default=40_000, help="the same")
    options = parser.parse_args()
    parts = options.part or ["simulated", "live"]
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load} before")
    if "simulated" in parts:
        simulated(options.matchers, range(1, options.seeds + 1), os.cpu_count() or 1)
    if "live" in parts:
        small = {
            name: replace(setting, matchers=4, boxes=options.boxes)
            for name, setting in WORKLOADS.items()
        }
        live(small, options.publications, 1)
    finish()


if __name__ == "__main__":
    main()
