"""Settings for all tests."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.skips import pytest_sessionfinish, pytest_terminal_summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary"]

# A kernel's first call may compile it, and the machine may be shared: no deadlines. A failing
# example prints what replays it.
settings.register_profile("dovetail", deadline=None, print_blob=True)
settings.load_profile("dovetail")

# The Javas of tests live for seconds: half of their work would be the second compiler's.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell's background jobs ignore SIGINT, and hand that down: tests interrupt what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "pipeline",
    "papers",
    "test_packaging.py",
    "test_launcher.py",
    "test_setup.py",
    "sim/test_cluster.py",
    "test_examples.py",
    "test_brokers.py",
)
"""The slowest tests, which start first, so that no worker waits for one at the end. All of
`pipeline` and `papers` comes before everything else, where one worker has it: each would start its
own Spark."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((i for i, long in enumerate(LONG) if name.startswith(long)), len(LONG))

    items.sort(key=place)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=seeds,
        metavar="FIRST:END",
        help="run tests that have a seed with these, and not with their own",
    )


def seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize seeded tests, one for each seed."""
    chosen = metafunc.config.getoption("seeds")
    if chosen is not None:
        marks = metafunc.definition.own_markers
        marks[:] = [
            pytest.mark.parametrize("seed", chosen).mark
            if mark.name == "parametrize" and mark.args[0] == "seed"
            else mark
            for mark in marks
        ]


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One real Spark for all tests of the pipeline and of the papers' experiments."""
    from dovetail.pipeline.spark.spark_session import open_session

    with open_session("local[2]") as session:
        yield session


@pytest.fixture
def lend(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], None]:
    """Let a module of jobs use this Spark instead of one of its own."""

    @contextlib.contextmanager
    def open_session(_master: str | None) -> Iterator["SparkSession"]:
        yield spark

    return lambda module: monkeypatch.setattr(module, "open_session", open_session)
