"""The session: what it refuses, how it fails, and that it leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.spark import spark_session
from dovetail.pipeline.spark.failures import spark_errors
from dovetail.pipeline.spark.spark_session import check_master
from support.processes.broker_process import START_SECONDS, WAIT_SECONDS, wait_until


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[3]", "local[2, 4]", "yarn", "k8s://h"]
)
def test_masters_that_may_be_used(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master", ["", "foo", "local[0]", "local[]", "locale", "http://host:1", "spark://"]
)
def test_invalid_masters_are_refused(master: str) -> None:
    with pytest.raises(ConfigError, match="Spark"):
        check_master(master)


@pytest.mark.parametrize("address", ["host", "host:", ":7077", "host:0", "host:99999", "host:x"])
def test_standalone_master_needs_host_and_port(address: str) -> None:
    with pytest.raises(ConfigError, match="lacks a host or a port"):
        check_master(f"spark://{address}")


def test_master_that_does_not_answer() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(DovetailError, match="cannot be reached") as refusal:
            check_master(f"spark://{address}")
    assert address in refusal.value.message


def test_settings(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    assert url.startswith("http://127.0.0.1:")
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 5):
        pass


def test_failing_worker_is_one_sentence(spark: SparkSession) -> None:
    def raising(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        for _ in batches:
            raise OSError("no room in the worker")
        yield pa.record_batch({"id": pa.array([1])})

    with pytest.raises(DovetailError) as failure, spark_errors():
        spark.range(2).mapInArrow(raising, "id long").collect()
    assert failure.value.message == "Spark failed: OSError: no room in the worker"


SLEEPING_JOB = textwrap.dedent(
    """
    import pathlib, sys, tempfile
    tempfile.tempdir = sys.argv[1]
    working = pathlib.Path(sys.argv[2])
    from dovetail.pipeline.spark.spark_session import open_session

    def sleep(batches):
        import time
        for batch in batches:
            working.touch()
            time.sleep(600)
            yield batch

    try:
        with open_session("local[1]") as spark:
            java = spark.sparkContext._gateway.proc.pid
            print(java, flush=True)
            spark.range(1).mapInArrow(sleep, "id long").toArrow()
    except KeyboardInterrupt:
        sys.exit(130)
    """
)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_interrupt_ends_everything_quietly(tmp_path: Path) -> None:
    """And soon: the work would take ten minutes."""
    own, working = tmp_path / "own", tmp_path / "working"
    own.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING_JOB, str(own), str(working)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        java = int(process.stdout.readline())
        wait_until(working.exists, "Spark works", seconds=START_SECONDS)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert errors == ""
    assert not is_running(java)
    assert list(own.iterdir()) == []


STARTING_JOB = textwrap.dedent(
    """
    import subprocess, sys

    class Reporting(subprocess.Popen):
        told = False

        def poll(self):  # Spark does, until Java is there
            if "spark-submit" in str(self.args) and not Reporting.told:
                Reporting.told = True
                print(self.pid, flush=True)
            return super().poll()

    subprocess.Popen = Reporting
    from dovetail.pipeline.spark.spark_session import open_session

    try:
        with open_session("local[1]"):
            print("too late", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
    """
)


def test_java_whose_start_is_interrupted_is_not_left_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING_JOB], stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdout is not None
        java = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, output) == (130, "")
    assert not is_running(java)


def test_java_that_is_killed_is_one_sentence_and_another_session_may_follow() -> None:
    program = textwrap.dedent(
        """
        from dovetail.pipeline.spark import spark_session as session
        try:
            with session.open_session("local[1]") as spark:
                spark.sparkContext._gateway.proc.kill()
                spark.range(3).toArrow()
        except session.DovetailError as error:
            print(error.message)
        with session.open_session("local[1]") as spark:
            print(spark.range(3).count())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=500
    )
    assert done.stdout == "Spark's Java process has ended in the middle of the work.\n3\n"
    assert done.stderr == ""


def test_java_that_takes_its_time_to_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers no more: on a busy machine it is there for some seconds all the same."""
    monkeypatch.setattr(SparkContext, "_jvm", None)
    with (
        subprocess.Popen(["sleep", str(2 * spark_session.JAVA_GONE_SECONDS)]) as java,
        pytest.raises(DovetailError, match="Java process has ended"),
        spark_session._watched(java),
    ):
        raise ConnectionRefusedError


def test_java_that_cannot_start_is_one_sentence(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'there is no room for a heap' >&2\nexit 1\n")
    java.chmod(0o755)
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from dovetail.pipeline.spark import spark_session as session
        session.find_java_home = lambda: Path({str(tmp_path)!r})
        try:
            with session.open_session("local[1]"):
                pass
        except session.DovetailError as error:
            print(error.message)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    assert "could not be started on local[1]: " in done.stdout
    assert "there is no room for a heap" in done.stdout
    assert done.stderr == ""
