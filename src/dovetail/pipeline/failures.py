"""What went wrong with Spark, as a sentence.

The chain below it, which --debug shows, has Spark's own trace.
"""

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from dovetail.errors import DovetailError


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Errors of Spark come out as a sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise DovetailError(
            f"Spark failed: {first_line(error)}",
            hint="`dovetail --debug ...` shows the whole trace.",
        ) from error


def first_line(error: Exception) -> str:
    text = str(getattr(error, "java_exception", None) or error).strip()
    if isinstance(error, PythonException):
        # A worker's traceback, between dashes; what was raised stands last.
        lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return lines[-1] if lines else text.splitlines()[-1]
    return text.partition("\n")[0] or type(error).__name__
