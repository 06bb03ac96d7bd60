"""A supervised process that follows a script, which it reads from standard input: `python -m ...`.

The script is one line: `{"folder": ..., "name": ..., "steps": [...]}`. A step that is a text waits
for the file of that name in the folder. Any other step is printed, and an error ends the process.
After the last step the process waits. Each start and each signal leaves a file in the folder, and
SIGTERM ends the process.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    told = json.loads(sys.stdin.readline())
    folder, name = Path(told["folder"]), told["name"]

    def leave(*_: object) -> None:
        (folder / f"{name}.term").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, lambda *_: (folder / f"{name}.hup").touch())
    (folder / f"{name}.{os.getpid()}.life").touch()
    for step in told["steps"]:
        while isinstance(step, str) and not (folder / step).exists():
            time.sleep(0.01)
        if not isinstance(step, str):
            print(json.dumps(step), flush=True)
            if "error" in step:
                sys.exit(2)
    while sys.stdin.readline():
        pass


if __name__ == "__main__":
    main()
