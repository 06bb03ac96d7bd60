"""Reports skipped tests with reasons, at the end of `scripts/test`.

A test is skipped where a machine cannot run it. The report has the reason and the number of tests,
and not only a letter in a long row of dots. In continuous integration (`CI` is set) only the
reasons below are accepted: our machines have every program that a test needs.
"""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.processes.servers import in_continuous_integration

ACCEPTED = (
    "mounting is not allowed here",
    "there is no mount program",
    "network namespaces are not allowed here",
    "only root gives files away",
    "no /dev/full here",
    "no Java 17 or later is installed here",
    "no package registry can be reached from here",
)
"""Accepted beginnings of reasons: what a machine may lack (privileges, a network, a second
Java)."""

FILE_VARIABLE = "DOVETAIL_TEST_SUMMARY"
"""The environment variable that names a file for the same lines."""


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    what = report.longrepr
    text = what[2] if isinstance(what, tuple) else str(what)
    return text.removeprefix("Skipped: ")


def reasons(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> Counter[str]:
    """Count each reason. Several workers may report a folder that none of them could collect."""
    return Counter(reason for _, reason in {(one.nodeid, reason_of(one)) for one in reports})


def refused(found: Iterable[str]) -> list[str]:
    """Return reasons that continuous integration does not accept."""
    return sorted(reason for reason in found if not reason.startswith(ACCEPTED))


def lines(passed: int, found: Counter[str]) -> list[str]:
    told = [f"{passed} passed, {found.total()} skipped"]
    return told + [f"{count} skipped: {reason}" for reason, count in sorted(found.items())]


def _reasons_here(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return Counter() if reporter is None else reasons(reporter.stats.get("skipped", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail in the controlling process for refused reasons; workers do nothing."""
    if in_continuous_integration() and refused(_reasons_here(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    found = _reasons_here(config)
    told = lines(len(terminalreporter.stats.get("passed", ())), found)
    if in_continuous_integration():
        told += [f"ERROR: nothing is skipped where CI is set: {why}" for why in refused(found)]
    if found:
        terminalreporter.section("skipped tests")
        for line in told:
            terminalreporter.write_line(line)
    if file := os.environ.get(FILE_VARIABLE):
        Path(file).write_text("".join(f"{line}\n" for line in told))
