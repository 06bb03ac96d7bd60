"""The stream of `dovetail up --pipeline`: `python -m dovetail.pipeline.stream.member`.

A process like a node of a fleet: told what it is by a line on its standard input, it stops when
that ends or at SIGTERM, behind the batch under way, and answers in lines of JSON (fleet/child.py).
How it gets on goes to the log.
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
    """What is printed, line by line to the log."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                log.info("%s", line, extra=about(line))
        return len(text)


def main() -> None:
    # Whoever was told to stop says so once more to itself: Spark knows what to do at SIGINT.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    answers, sys.stdout = sys.stdout, _LogLines()
    member = msgspec.json.decode(_line(), type=StreamMember)
    set_up_logging(member.log_level, member.name)
    threading.Thread(target=_heed, daemon=True).start()

    def say(what: dict[str, object]) -> None:
        terminal.say(json.dumps(what), stream=answers)

    def begun(spark: SparkSession) -> None:
        say({UP: [("Spark", spark.sparkContext.uiWebUrl), ("table", member.out)]})

    try:
        console = terminal.console(file=cast("IO[str]", _LogLines()), soft_wrap=True)
        stream(options_of(member), console=console, begun=begun)
    except DovetailError as error:
        say({ERROR: str(error)})
        sys.exit(2)
    except KeyboardInterrupt:
        pass


def _line() -> bytes:
    """Without Python's buffer: a thread that waits at that is in the way of an end."""
    told = b""
    while not told.endswith(b"\n") and (more := os.read(_INPUT, 4_096)):
        told += more
    return told


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


def _heed() -> None:
    """Who started us has our input's other end: it ends with them."""
    while os.read(_INPUT, 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
