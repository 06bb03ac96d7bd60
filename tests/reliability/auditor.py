"""Checks a history during the run, in a process of its own, so that clients are not delayed."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from reliability import history
from reliability.builder import build
from reliability.checker import check_record

AUDIT_SECONDS = 20.0
_NICENESS = 10


class Auditor:
    """Counts the `violations` so far, as far as a promise can be judged before the end."""

    def __init__(self, file: Path) -> None:
        self.violations = 0
        self.until = 0.0
        self._file = file

    async def run(self) -> None:
        """Check again and again until cancelled."""
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "reliability.auditor",
                str(self._file),
                cwd=Path(__file__).parent.parent,
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                output, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
            if not process.returncode:
                until, violations = output.split()
                self.until, self.violations = float(until), int(violations)


def main(file: str) -> None:
    os.nice(_NICENESS)
    record = build(history.read(Path(file)))
    violations = sum(verdict.violated for verdict in check_record(record))
    print(record.until, violations)


if __name__ == "__main__":
    main(sys.argv[1])
