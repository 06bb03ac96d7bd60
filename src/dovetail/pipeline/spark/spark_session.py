"""Start a Spark session, keep it quiet, and end it with its Java process.

The output of Spark and its workers goes to a log in a scratch folder that lives as long as the
session, never to the user's terminal. On this machine (a master of `local[...]`) everything listens
on the loopback address only. Errors of Spark are raised as a `DovetailError` (failures.py). A
session on a Spark Connect server needs no Java (connect.py).
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.spark import connect
from dovetail.pipeline.spark.failures import first_line, spark_errors
from dovetail.pipeline.spark.java import find_java_home

MASTER_DEFAULT = "local[*]"
MASTER_FORMS = (
    "local, local[4], local[*], spark://host:7077, yarn, k8s://host:443 or sc://host:15002"
)
LOOPBACK = "127.0.0.1"

DRIVER_MEMORY = "1g"
"""The driver only plans and collects results; the arrays are in the Python workers."""

LOCAL_PARTITIONS = 32
"""Partitions of a shuffle on this machine. Spark's default of 200 costs more than most tables."""

CONNECT_TIMEOUT_SECONDS = 5
"""For an attempt to reach a standalone master. Spark itself would try for a minute."""

JAVA_GONE_SECONDS = 1
"""Wait after an error, to see whether Java is ending although it still answers."""

JAVA_EXIT_SECONDS = 10
"""A Java process that has not ended by then is killed."""

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?")
_OTHER = re.compile(r"yarn|k8s://.+|local-cluster\[\d+,\d+,\d+\]")
_STANDALONE = re.compile(r"spark://([^/?#\s]+)")

# Warnings go to the log only; they help when something fails.
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def is_local(master: str) -> bool:
    return _LOCAL.fullmatch(master) is not None


def check_master(master: str) -> None:
    """Refuse a master that Spark could not use, before Java starts."""
    standalone = _STANDALONE.fullmatch(master)
    if standalone is not None:
        _check_reachable(master, standalone[1].split(","))
    elif master.startswith(connect.SCHEME):
        connect.check_server(master)
    elif not (is_local(master) or _OTHER.fullmatch(master)):
        raise ConfigError(
            f"{master!r} is not a Spark master.",
            hint=f"A master looks like this: {MASTER_FORMS}",
        )


def _check_reachable(master: str, addresses: list[str]) -> None:
    reasons = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ConfigError(
                f"the Spark master {master} lacks a host or a port.",
                hint="A standalone master looks like this: spark://host:7077",
            )
        try:
            with socket.create_connection((host, int(port)), CONNECT_TIMEOUT_SECONDS):
                return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise DovetailError(
        f"the Spark master {master} cannot be reached ({'; '.join(reasons)}).",
        hint="Is it running, and is the address right? Without --master this machine is used.",
    )


@contextlib.contextmanager
def open_session(master: str | None = None) -> Iterator[SparkSession]:
    """Open a session on this master. Its Java process ends with the block."""
    master = master or MASTER_DEFAULT
    if master.startswith(connect.SCHEME):
        with spark_errors(), connect.remote_session(master) as session:
            yield session
        return
    check_master(master)
    java_home = find_java_home()
    try:
        scratch = Path(tempfile.mkdtemp(prefix="dovetail-spark-"))
    except OSError as error:
        raise DovetailError(
            f"there is no folder for temporary files: {(error.strerror or str(error)).lower()}.",
            hint="Set TMPDIR to a folder that you may write to.",
        ) from error
    process = None
    _silence_bridge()
    try:
        with _environment(master, java_home), _own_interrupt_handler():
            process, context = _start(master, scratch)
            with _watched(process), spark_errors():
                yield SparkSession(context)
    finally:
        if process is not None:
            _stop(process)
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Restore the handler for SIGINT, which Spark replaces."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _silence_bridge() -> None:
    """Silence log lines about errors that are raised as well.

    Py4J logs a traceback for each failed call, and PySpark logs JSON for each error in a query. It
    stays so: a thread of Py4J still tells Java about garbage when the session has ended.
    """
    logging.getLogger().addFilter(_is_not_of_bridge)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for kind in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{kind}QueryContextLogger").disabled = True


def _is_not_of_bridge(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextlib.contextmanager
def _watched(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the Java process at once on Ctrl-C, and raise a clear error if Java ends by itself.

    Spark's own handler cancels the jobs and waits for an answer, perhaps as long as for the whole
    work. Without Java, calls fail with many kinds of errors, which all mean the same.
    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        process.terminate()
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if interrupted:
            raise KeyboardInterrupt from None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(JAVA_GONE_SECONDS if _java_answers() else JAVA_EXIT_SECONDS)
        if process.poll() is None:
            raise
        raise DovetailError(
            "Spark's Java process has ended in the middle of the work.",
            hint="Out of memory is the usual reason. `dovetail --debug ...` shows the whole trace.",
        ) from error
    finally:
        if interrupted:
            _wait(process)


def _java_answers() -> bool:
    try:
        return bool(SparkContext._jvm.System.nanoTime())  # type: ignore[union-attr]  # noqa: SLF001
    except Exception:  # noqa: BLE001 (without Java, calls fail with many kinds of errors)
        return False


def _start(master: str, scratch: Path) -> tuple[subprocess.Popen[bytes], SparkContext]:
    log = scratch / "spark.log"
    settings = SparkConf(loadDefaults=False)
    settings.setAll(list(_settings(master, scratch).items()))
    process: subprocess.Popen[bytes] | None = None
    try:
        with log.open("wb") as output, _no_orphan():
            gateway = java_gateway.launch_gateway(  # type: ignore[no-untyped-call]
                settings, {"stdout": output, "stderr": output}
            )
        process = gateway.proc
        context = SparkContext(conf=settings, gateway=gateway)
        # It would print a traceback when Java goes away while it reads.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    except (PySparkException, Py4JError, OSError) as error:
        reason = _complaint(log) if process is None else first_line(error)
        if process is not None:
            _stop(process)
        raise DovetailError(
            f"Spark could not be started on {master}: {reason}",
            hint="`dovetail --debug ...` shows the whole trace.",
        ) from error
    except BaseException:
        if process is not None:
            _stop(process)
        raise
    return process, context


@contextlib.contextmanager
def _no_orphan() -> Iterator[None]:
    """Kill a Java process whose start is interrupted.

    PySpark returns the process only when it is up. Left alone, it would never end: it fails to
    write its address to a file that is already deleted, and waits for ever.
    """
    launched: list[subprocess.Popen[bytes]] = []

    def launch(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        launched.append(subprocess.Popen(*arguments, **options))
        return launched[-1]

    java_gateway.Popen = launch  # type: ignore[assignment,attr-defined]
    try:
        yield
    except BaseException:
        for process in launched:
            process.kill()
            process.wait()
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]


def _settings(master: str, scratch: Path) -> Mapping[str, str]:
    log_settings = scratch / "log4j2.properties"
    log_settings.write_text(_LOGGING)
    settings = {
        "spark.app.name": "dovetail",
        "spark.master": master,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings.as_uri()} "
        f'"-Djava.io.tmpdir={scratch}"',
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.submit.deployMode": "client",
        "spark.ui.port": "0",  # any free one
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        settings |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.local.dir": str(scratch),
            "spark.sql.shuffle.partitions": str(LOCAL_PARTITIONS),
        }
    return settings


@contextlib.contextmanager
def _environment(master: str, java_home: Path) -> Iterator[None]:
    """Set the environment variables that Spark reads, while the session lasts."""
    before = dict(os.environ)
    os.environ["JAVA_HOME"] = str(java_home)
    # Use the Spark inside PySpark: another release would not understand it.
    os.environ.pop("SPARK_HOME", None)
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End Spark and its Java process, and reset PySpark, so that another session can follow.

    After an interrupt or a crash, Java has ended already, and every call to it fails.
    """
    gateway = SparkContext._gateway  # noqa: SLF001
    for stop in (_stop_session, _stop_context, gateway.shutdown if gateway else None):
        if stop is not None and process.poll() is None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                stop()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    # Spark's gateway ends when its input does.
    if process.stdin is not None:
        process.stdin.close()
    _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(JAVA_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stop_session() -> None:
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def _stop_context() -> None:
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is not None:
        context.stop()


def _complaint(log: Path) -> str:
    """Return Java's first messages. Those of Spark's shell scripts come after them."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    said = [line for line in lines if line and not re.search(r"\bWARN(ING)?\b", line)]
    return "; ".join(said[:2]) or "Java ended at once"
