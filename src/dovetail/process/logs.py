"""The log of a process: lines on standard error, the same for every command that runs a broker.

Rules:

- The first line of a kind is written at once, repeats once a second with their number
  (log_repeats.py), so that no client can fill the log. The kind of a line is its logger, its level,
  its text before the details are inserted, and its subject (`about`). At the level debug every
  debug line is written.
- A line begins with its time. No inserted text can start another line: control characters are
  escaped (terminal.py), and lines after the first are indented.
- Warnings and errors of other libraries, which strangers may cause too, follow the same rules.
"""

import copy
import logging
import sys
import threading
import time
from collections.abc import Iterable
from typing import TextIO

from dovetail.process.limits import LOG_KINDS_MAX, LOG_REPEAT_SECONDS
from dovetail.process.log_repeats import CountedLine, RepeatFilter
from dovetail.process.terminal import printable

_ABOUT = "about"
_INDENT = "    "


def set_up_logging(level: str, name: str | None = None) -> None:
    """Log to standard error from `level` on. With `name` each line begins with it."""
    who = "" if name is None else f"{name}: "
    handler = _Handler(sys.stderr)
    handler.setFormatter(
        _Formatter(f"%(asctime)s %(levelname)-7s {who}%(message)s", "%Y-%m-%d %H:%M:%S")
    )
    own, root = logging.getLogger("dovetail"), logging.getLogger()
    for logger in (own, root):
        for earlier in [one for one in logger.handlers if isinstance(one, _Handler)]:
            logger.removeHandler(earlier)
            earlier.close()
        logger.addHandler(handler)
    own.setLevel(level.upper())
    own.propagate = False


def about(subject: str) -> dict[str, str]:
    """Return the `extra` of a log line about `subject`, such as a node of the cluster.

    Lines about different subjects are of different kinds. So there must be few subjects, and
    strangers must not choose them.
    """
    return {_ABOUT: subject}


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines, and counts repeated ones."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._repeats: RepeatFilter[logging.LogRecord] = RepeatFilter(
            seconds=LOG_REPEAT_SECONDS, kinds_max=LOG_KINDS_MAX
        )
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock."""
        if record.levelno < logging.INFO:
            super().emit(record)
            return
        written = self._repeats.take(_kind_of(record), record, time.monotonic())
        if written is not None:
            self._write([written])
        else:
            self._wait()

    def _write(self, lines: Iterable[CountedLine[logging.LogRecord]]) -> None:
        for record, count in lines:
            super().emit(record if count == 1 else _counted(record, count - 1))

    def _wait(self) -> None:
        """Start a timer for the next counted lines."""
        due = self._repeats.next_due
        if due is None or self._timer is not None:
            return
        timer = threading.Timer(max(due - time.monotonic(), 0.0), self._write_due)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the process ends: `close` writes the rest
            return
        self._timer = timer

    def _write_due(self) -> None:
        assert self.lock is not None
        with self.lock:
            self._timer = None
            self._write(self._repeats.due(time.monotonic()))
            self._wait()

    def close(self) -> None:
        """Write what was counted. Python calls this at the end of the process, too."""
        assert self.lock is not None
        with self.lock:
            self._write(self._repeats.flush())
            if self._timer is not None:
                self._timer.cancel()
        super().close()


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = printable(super().format(record), keep="\n\t")
        return text.replace("\n", f"\n{_INDENT}")


def _counted(record: logging.LogRecord, others: int) -> logging.LogRecord:
    counted = copy.copy(record)
    counted.msg = f"{record.getMessage()} ... and {others:,} more like it in the last second"
    counted.args = ()
    return counted


def _kind_of(record: logging.LogRecord) -> tuple[object, ...]:
    # asyncio writes details into the lines after the first.
    words = str(record.msg).partition("\n")[0]
    return record.name, record.levelno, words, getattr(record, _ABOUT, None)
