"""The stream of `dovetail up --pipeline`: `python -m dovetail.pipeline.stream.member`.

A process like a node of a fleet. Its standard input has one line with its settings. It stops after
the running batch when that input ends, or at SIGTERM. It answers in lines of JSON (fleet/child.py),
and logs its progress.
"""

import io
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, cast

import msgspec
from pyspark.sql import SparkSession

from dovetail.api.child_process import ERROR, UP, StreamMember
from dovetail.client.endpoint import PASSWORD_VARIABLE
from dovetail.errors import DovetailError
from dovetail.limits import STREAM_USER
from dovetail.pipeline.stream.job import StreamOptions, stream
from dovetail.process import terminal
from dovetail.process.logs import about, set_up_logging

log = logging.getLogger("dovetail.up")

_INPUT = 0


class _LogLines(io.TextIOBase):
    """Sends printed text to the log, line by line."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                log.info("%s", line, extra=about(line))
        return len(text)


def main() -> None:
    # Spark handles SIGINT well, so SIGTERM does the same.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    answers, sys.stdout = sys.stdout, _LogLines()
    member = msgspec.json.decode(_line(), type=StreamMember)
    set_up_logging(member.log_level, member.name)
    threading.Thread(target=_stop_when_input_ends, daemon=True).start()

    def say(what: dict[str, object]) -> None:
        terminal.say(json.dumps(what), stream=answers)

    def on_start(spark: SparkSession) -> None:
        say({UP: [("Spark", spark.sparkContext.uiWebUrl), ("table", member.out)]})

    try:
        console = terminal.console(file=cast("IO[str]", _LogLines()), soft_wrap=True)
        stream(options_of(member), console=console, on_start=on_start)
    except DovetailError as error:
        say({ERROR: str(error)})
        sys.exit(2)
    except KeyboardInterrupt:
        pass


def _line() -> bytes:
    """Read a line without Python's buffer: a thread that waits for that would block the exit."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(_INPUT, 4_096)):
        line += more
    return line


def options_of(member: StreamMember) -> StreamOptions:
    login = STREAM_USER, member.key
    if member.user is not None:
        login = member.user, os.environ.get(PASSWORD_VARIABLE, "")
    return StreamOptions(
        url=",".join(member.urls),
        source="the brokers beside it",
        out=member.out,
        checkpoint=Path(member.checkpoint),
        is_serving=member.is_serving,
        login=login,
    )


def _stop_when_input_ends() -> None:
    """Stop when standard input ends, which it does when the parent process ends."""
    while os.read(_INPUT, 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
