"""What a warm `./dovetail` adds to Python's own start."""

import subprocess
import sys
from pathlib import Path

from _measure import finish, in_turn, table, verdict

ROUNDS = 15
LAUNCHER = Path(__file__).parent.parent / "dovetail"
ADDED_SECONDS_MAX = 0.3


def main() -> None:
    def run(*command: str) -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    seconds = in_turn(
        {
            "python -c pass": lambda: run(sys.executable, "-c", "pass"),
            "./dovetail --version": lambda: run(str(LAUNCHER), "--version"),
            "./dovetail --help": lambda: run(str(LAUNCHER), "--help"),
        },
        ROUNDS,
    )
    medians = {name: sorted(values)[ROUNDS // 2] for name, values in seconds.items()}
    table(
        f"Seconds to start; medians of {ROUNDS} rounds",
        ["command", "s"],
        [[name, f"{value:.3f}"] for name, value in medians.items()],
    )
    added = medians["./dovetail --version"] - medians["python -c pass"]
    verdict("seconds that a warm start adds", added, ADDED_SECONDS_MAX, at_most=True)


if __name__ == "__main__":
    main()
    finish()
