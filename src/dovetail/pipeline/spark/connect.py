"""Spark Connect: a session on a server that runs elsewhere and outlives the session.

An address is `sc://host:port`, optionally with parameters (`/;token=...;use_ssl=true`). If the
server does not answer, an error says so after seconds; Spark's client would try for ten minutes.
Needs the extra `connect`.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dovetail.errors import ConfigError, DovetailError, MissingDependencyError

SCHEME = "sc://"
_MODE = "SPARK_CONNECT_MODE_ENABLED"

READY_SECONDS = 5
"""Time for a server to answer at the start."""

RETRIES_MAX, BACKOFF_MS_MAX = 8, 5_000
"""While it works, a server has about 25 seconds to come back."""


def check_server(address: str) -> None:
    """Refuse an invalid address, and a server that does not answer."""
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise MissingDependencyError(
            "Spark Connect needs packages that are not installed.",
            hint='`pip install "dovetail[connect]"` installs them.',
        ) from error
    try:
        builder = DefaultChannelBuilder(address)
        where = builder.endpoint
    except (PySparkException, ValueError) as error:
        raise ConfigError(
            f"{address} is not the address of a Spark Connect server ({error}).",
            hint="One looks like this: sc://host:15002",
        ) from error
    channel = builder.toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=READY_SECONDS)
    except grpc.FutureTimeoutError:
        raise DovetailError(
            f"the Spark Connect server {where} cannot be reached.",
            hint="Is it running, and is the address right? Without --master this machine is used.",
        ) from None
    finally:
        channel.close()


@contextlib.contextmanager
def remote_session(address: str) -> Iterator[SparkSession]:
    """Open a session on a server. Until it ends, PySpark uses Connect in the whole process."""
    check_server(address)
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as Remote

    before = os.environ.get(_MODE)
    os.environ[_MODE] = "1"
    session = Remote.builder.remote(address).create()
    try:
        session.client.set_retry_policies(
            [DefaultPolicy(max_retries=RETRIES_MAX, max_backoff=BACKOFF_MS_MAX)]
        )
        session.conf.set("spark.sql.session.timeZone", "UTC")
        yield cast("SparkSession", session)
    finally:
        session.stop()
        if before is None:
            del os.environ[_MODE]
        else:
            os.environ[_MODE] = before
