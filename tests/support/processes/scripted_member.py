"""A process that is supervised, and does what it is told in its one line: `python -m ...`.

`{"folder": ..., "name": ..., "steps": [...]}`: a step that is a text waits for the file of that
name in the folder; any other is said, and an error ends it. Then it stays. A signal leaves a file
there, and SIGTERM ends it; each life leaves one too.
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
