"""Shows the progress of a run: a line every few seconds, or one line that is updated in place."""

import asyncio
import sys

from reliability.auditor import Auditor
from reliability.runner import Runner

SHOW_SECONDS = 2.0
_PLAIN_SHOW_SECONDS = 3.0
"""The interval where lines stay, as in a log."""


def describe(runner: Runner, auditor: Auditor) -> str:
    """Return the progress of a run in one line."""
    world, injector = runner.world, runner.injector
    total = runner.settings.seconds
    left = max(runner.work_until - world.now(), 0) if runner.work_until else total
    active = ", ".join(f"{one.kind} {'+'.join(one.nodes)}" for one in injector.active.values())
    parts = [
        f"{runner.phase} {_clock(total - left)} of {_clock(total)}"
        if runner.phase == "workload"
        else runner.phase,
        f"{injector.count} faults" + (f" (now {active})" if active else ""),
        f"{world.published:,} published, {world.acknowledged:,} acknowledged",
        f"{world.delivered:,} delivered",
    ]
    if auditor.until:
        parts.append(f"{auditor.violations:,} violations in the first {auditor.until:.0f} s")
    else:
        parts.append("0 violations, nothing checked yet")
    return " | ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


async def show(runner: Runner, auditor: Auditor) -> None:
    """Show the progress until cancelled."""
    is_terminal = sys.stderr.isatty()
    while True:
        line = describe(runner, auditor)
        if is_terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
        await asyncio.sleep(SHOW_SECONDS if is_terminal else _PLAIN_SHOW_SECONDS)
