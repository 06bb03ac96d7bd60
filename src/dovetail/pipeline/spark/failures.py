"""Explain Spark's errors in plain words.

Spark wraps errors in others and adds codes and class names, and the reason is often innermost. So
`explain` searches the whole chain. Common errors have messages here; for others it shows the
outermost message without codes. The chain stays attached to the `DovetailError`, where --debug
shows it.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from dovetail.errors import DovetailError

TRACE = "`dovetail --debug ...` shows the whole trace."
_CAUSES_MAX = 20

_CLASSES = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)?: ")
_CODE = re.compile(r"^\[[A-Z][A-Z0-9_.]*\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_TASK = re.compile(r"^Job aborted due to stage failure: .*?\(TID \d+\) \(.*?\): ", re.DOTALL)
_FILE = re.compile(r"reading file (?:file:/*(?=/))?(.*?)\.(?:\s|$)")
_ENDS = (
    (
        ("No space left on device", "Disk quota exceeded"),
        "there is no space left on the disk that Spark writes to.",
        "Free some space, or name another folder with --out; temporary files are in TMPDIR.",
    ),
    (
        ("Python worker exited unexpectedly", "Python worker failed to"),
        "a Python worker of Spark ended in the middle of its work.",
        "Out of memory is the usual reason: fewer cores (--master local[1]) need less. " + TRACE,
    ),
    (
        ("stopped SparkContext", "SparkContext was shut down"),
        "Spark has stopped in the middle of the work: its master ended it, or never answered.",
        "Is it a Spark master that --master names, and is it still running? " + TRACE,
    ),
)
"""Texts that identify an error, its meaning, and what to do."""
_REASONS = {
    "record parsing: _corrupt_record": "a line in it is not a JSON object.",
    "record parsing: [null]": "`attributes` or `texts` is not JSON, or of other types.",
    "[UNABLE_TO_INFER_SCHEMA]": "it is empty, or of another kind than its name says.",
}
_OWN = re.compile(r"^(?:.*: )?dovetail(?:\.\w+)+Error: (.+)(?:\n([A-Z`].+))?", re.MULTILINE)
"""An error of Dovetail in another process, and its hint, at the end of a traceback."""
_CAUSED = re.compile(r"^Caused by: (.*)$", re.MULTILINE)


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Raise errors of Spark as a DovetailError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise explain(error) from error


def explain(error: Exception, otherwise: str = "Spark failed") -> DovetailError:
    """Return an error of Spark in plain words. An unknown error begins with `otherwise`."""
    chain = _chain(error)
    whole = "\n".join(chain)
    if own := _OWN.search(whole):
        hint = own[2] if own[2] and not own[2].startswith("SQLSTATE") else TRACE
        return DovetailError(own[1], hint=hint)
    if isinstance(error, PythonException):
        return DovetailError(f"{otherwise}: {first_line(error)}", hint=TRACE)
    for signs, sentence, hint in _ENDS:
        if any(sign in whole for sign in signs):
            return DovetailError(sentence, hint=hint)
    file = _FILE.search(whole)
    if file is not None:
        # The text after the name, or the longest cause.
        said = _plain(whole[file.end() :].partition("\n")[0])
        said = said or max(map(_plain, chain[1:]), key=len, default="") or "it is damaged"
        return DovetailError(f"{file[1]} cannot be read: {said}", hint=TRACE)
    reasons = (said for sign, said in _REASONS.items() if sign in whole)
    return DovetailError(f"{otherwise}: {next(reasons, first_line(error))}", hint=TRACE)


def first_line(error: Exception) -> str:
    """Return the outermost message, without codes and class names."""
    if isinstance(error, PythonException):
        # A worker's traceback, between dashes. The error is on the last line.
        text = str(error).strip()
        lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return lines[-1] if lines else text.splitlines()[-1]
    return _plain(_chain(error)[0]) or type(error).__name__


def _plain(text: str) -> str:
    said = _CLASSES.sub("", text.strip())
    said = _CLASSES.sub("", _TASK.sub("", said))
    said = _CODE.sub("", said).partition("\n")[0]
    return _STATE.sub("", said).strip()


def _chain(error: Exception) -> list[str]:
    """Return the messages of an error and its causes, the outermost first."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        # Over Spark Connect Java's trace is text.
        text = str(error)
        return [text, *_CAUSED.findall(text)]
    said: list[str] = []
    while java is not None and len(said) < _CAUSES_MAX:
        said.append(str(java.toString()))
        java = java.getCause()
    return said
