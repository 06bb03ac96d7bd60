"""The command line: `scripts/soak`."""

import argparse
import asyncio
import random
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path

from dovetail import __version__
from reliability import history, namespaces, schedule, workload
from reliability.auditor import Auditor
from reliability.builder import build
from reliability.checker import check_record
from reliability.cluster import StartError
from reliability.history import HistoryError, Recorder
from reliability.namespaces import Namespaces
from reliability.network import Network, NetworkError
from reliability.progress import show
from reliability.record import Record
from reliability.relays import Relays
from reliability.report import report
from reliability.runner import Runner, Settings
from reliability.summary import summary
from reliability.verdict import Verdict

NODES = ("one", "two", "three")
MINUTES = 10.0
SEEDS = 1 << 31
HISTORY, REPORT = "history.jsonl", "report.html"
KEPT, BROKEN, UNUSABLE, INTERRUPTED = 0, 1, 2, 130

_DESCRIPTION = """\
Judge a cluster of brokers: clients use it while faults are injected, a history records every
operation, and checkers say which promises were kept (docs/reliability.md).
"""
_EPILOG = """\
examples:
  scripts/soak                              ten minutes, another seed each time
  scripts/soak --minutes 1 --seed 7         the same workload and schedule of faults every time
  scripts/soak --faults kill,cut            these faults only
  scripts/soak --check FOLDER/history.jsonl check a history again, without any broker

Ctrl-C ends the workload, heals the cluster and checks what was recorded; a second Ctrl-C stops at
once. Exit codes: 0 every promise was kept, 1 a promise was broken, 2 the run could not be started
or its file not be read, 130 it was stopped at once.

faults:
"""


def parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {kind:9} {text}" for kind, text in schedule.EXPLANATIONS.items())
    made = argparse.ArgumentParser(
        prog="scripts/soak",
        description=_DESCRIPTION,
        epilog=_EPILOG + faults,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"how long the workload lasts; start and end come on top (default {MINUTES:g})",
    )
    made.add_argument(
        "--seed", type=int, help="decides workload and faults (default: another one each time)"
    )
    made.add_argument(
        "--rate",
        type=float,
        default=workload.RATE,
        help=f"publications a second, of all clients together (default {workload.RATE:g})",
    )
    made.add_argument(
        "--faults",
        type=_kinds,
        default=schedule.KINDS,
        metavar="KIND,...",
        help="which faults come, or 'none' (default: all that this machine can make)",
    )
    made.add_argument(
        "--network",
        choices=("auto", "namespaces", "relays"),
        default="auto",
        help="namespaces need root or user namespaces; relays can do less (default auto)",
    )
    made.add_argument(
        "--folder",
        type=Path,
        help="where history, report and logs go (default soak-results/SEED)",
    )
    made.add_argument("--check", type=Path, metavar="FILE", help="check a history, and run nothing")
    return made


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(",")) if text != "none" else ()
    unknown = [kind for kind in kinds if kind not in schedule.KINDS]
    if unknown:
        known = ", ".join(schedule.KINDS)
        raise argparse.ArgumentTypeError(f"there is no fault {unknown[0]!r}; there are {known}")
    return kinds


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.check is not None:
            return check_file(options.check)
        return run(options)
    except (HistoryError, NetworkError, OSError, StartError) as error:
        print(f"scripts/soak: error: {error}", file=sys.stderr)
        return UNUSABLE


def check_file(path: Path) -> int:
    record = build(history.read(path))
    options = record.run.options if record.run else {}
    return finish(record, check_record(record), path.parent, options.get("command", ""))


def finish(record: Record, verdicts: list[Verdict], folder: Path, replay: str) -> int:
    """Print a summary, write the report, and return the exit code."""
    print(summary(record, verdicts))
    page = folder / REPORT
    page.write_text(report(record, verdicts, replay))
    print(f"\nreport: {page}")
    return KEPT if all(verdict.holds for verdict in verdicts) else BROKEN


def run(options: argparse.Namespace) -> int:
    _enter_namespaces(options.network)
    seed = random.randrange(SEEDS) if options.seed is None else options.seed
    folder = options.folder or Path("soak-results") / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty. Remove it, or name another --folder.")
    replay = shlex.join(["scripts/soak", *_again(options, seed)])
    settings = Settings(
        seed,
        60 * options.minutes,
        NODES,
        options.rate,
        options.faults,
        __version__,
        {"minutes": f"{options.minutes:g}", "rate": f"{options.rate:g}", "command": replay},
    )
    print(f"seed {seed}; history, logs and report go to {folder}", file=sys.stderr)
    file = folder / HISTORY
    with file.open("wb") as lines:
        recorder = Recorder(lines)
        is_whole_run = asyncio.run(_run(settings, folder.resolve(), recorder))
    record = build(recorder.events)
    code = finish(record, check_record(record), folder, replay)
    if code == BROKEN:
        print(f"\nRun it again:   {replay}\nCheck it again: scripts/soak --check {file}")
        print("A seed decides what clients do and which faults come, and not how processes are")
        print("scheduled: a violation may take several runs to come again. The history stays.")
    return code if is_whole_run else INTERRUPTED


def _again(options: argparse.Namespace, seed: int) -> list[str]:
    """Return the options that repeat this run."""
    again = ["--seed", str(seed), "--minutes", f"{options.minutes:g}"]
    if options.rate != workload.RATE:
        again += ["--rate", f"{options.rate:g}"]
    if options.faults != schedule.KINDS:
        again += ["--faults", ",".join(options.faults) or "none"]
    if options.network != "auto":
        again += ["--network", options.network]
    return again


async def _run(settings: Settings, folder: Path, recorder: Recorder) -> bool:
    """Run, and return whether the run was complete."""
    network = _make_network(settings)
    runner = Runner(settings, folder, network, recorder)
    _explain(runner, settings)
    auditor = Auditor(folder / HISTORY)
    running = asyncio.create_task(runner.run())
    others = [asyncio.create_task(show(runner, auditor)), asyncio.create_task(auditor.run())]

    def interrupt() -> None:
        if runner.is_stopping:
            running.cancel()
        else:
            print("\nThe run ends early: the cluster is healed and checked.", file=sys.stderr)
            runner.stop_soon()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        await running
    except asyncio.CancelledError:
        return False
    finally:
        for task in others:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*others, return_exceptions=True)
        print(file=sys.stderr)
    return True


def _make_network(settings: Settings) -> Network:
    if namespaces.is_inside():
        return Namespaces(settings.nodes, settings.seed)
    return Relays(settings.nodes)


def _enter_namespaces(network: str) -> None:
    """Restart in namespaces of our own, if they are wanted and possible."""
    if network == "relays" or namespaces.is_inside():
        return
    try:
        namespaces.enter(sys.argv[1:])
    except NetworkError as error:
        if network == "namespaces":
            raise
        print(
            f"NO NETWORK NAMESPACES HERE: {error}.\n"
            "Brokers are connected by TCP relays instead, which can be cut and slowed down, but "
            "lose and delay no packets. Run it as root for the rest.",
            file=sys.stderr,
        )


def _explain(runner: Runner, settings: Settings) -> None:
    missing = [kind for kind in settings.kinds if kind not in runner.kinds]
    if missing:
        print(f"NOT TESTED HERE: {', '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
