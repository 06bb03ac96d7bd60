"""The command line as a shell sees it: output, errors, exit codes."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dovetail import __version__
from support.processes.broker_process import WAIT_SECONDS

# Runs the command line in a process whose modules were tampered with first.
TAMPERED = """
import sys, types
{tampering}
sys.argv = ["dovetail", *{arguments}]
from dovetail.cli import main
main()
"""
STAND_IN_JOB = """
jobs = types.ModuleType("dovetail.papers.job")
jobs.reproduce_wildcard = jobs.reproduce_broker = lambda **options: {action}
sys.modules["dovetail.papers.job"] = jobs
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dovetail", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def tampered(tampering: str, *arguments: str) -> list[str]:
    program = TAMPERED.format(tampering=textwrap.dedent(tampering), arguments=list(arguments))
    return [sys.executable, "-c", program]


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dovetail {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "Example: dovetail reproduce wildcard"),
        (["match", "--help"], "--subscriptions"),
        (["stream", "--help"], "Example: dovetail stream --url"),
        (["reproduce", "--help"], "wildcard"),
        (["reproduce", "wildcard", "--help"], "--figure"),
        (["reproduce", "broker", "--help"], "--rounds"),
        (["up", "--help"], "Run the service"),
    ],
)
def test_help(arguments: list[str], expected: str) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert expected in done.stdout


@pytest.mark.parametrize("group", [[], ["reproduce"], ["sketch"]])
def test_every_summary_fits_its_line(group: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run(*group, "--help")
    _, _, commands = done.stdout.partition("Commands:\n")
    assert commands
    assert [line for line in commands.splitlines() if line.endswith("...")] == []


def test_help_imports_no_heavy_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dovetail", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "dovetail.cli" in imported
    assert not imported & {"numba", "numpy", "pandas", "pyarrow", "pyspark"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--colour"], "--colour"),
        (["fly"], "fly"),
        (["reproduce", "wildcard", "--trials", "0"], "--trials"),
        (["reproduce", "wildcard", "--figure", "7"], "--figure"),
        (["reproduce", "broker", "--rounds", "0"], "--rounds"),
    ],
)
def test_usage_error(arguments: list[str], expected: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run("--debug", "up", "--config", str(tmp_path / "missing.toml"))
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "missing.toml" in done.stderr


@pytest.mark.parametrize("experiment", ["wildcard", "broker"])
def test_missing_spark_names_the_extra(experiment: str) -> None:
    command = tampered('sys.modules["pyspark"] = None', "reproduce", experiment)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pyspark cannot be imported" in done.stderr
    assert 'pip install "dovetail[spark]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_options_reach_the_job() -> None:
    command = tampered(
        STAND_IN_JOB.format(action="print(sorted(options.items()))"),
        *("reproduce", "wildcard", "--figure", "6", "--figure", "4", "--seed", "7", "--out", "x"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "[('figures', (6, 4)), ('master', None), ('out', PosixPath('x')), "
        "('seed', 7), ('trials', 10)]\n"
    )


def test_options_reach_the_timing_job() -> None:
    command = tampered(
        STAND_IN_JOB.format(action="print(sorted(options.items()))"),
        *("reproduce", "broker", "--rounds", "5", "--seconds", "0.5", "--seed", "7"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[('out', None), ('rounds', 5), ('seconds', 0.5), ('seed', 7)]\n"


def test_commands_clean_up_on_sigterm(tmp_path: Path) -> None:
    tampering = f"""
        from pathlib import Path
        from dovetail.pipeline.spark.output_folder import result_folder
        def work(**_):
            with result_folder(Path({str(tmp_path / "out")!r}), bool):
                print("ready", flush=True)
                __import__("time").sleep(60)
        jobs = types.ModuleType("dovetail.papers.job")
        jobs.reproduce_broker = work
        sys.modules["dovetail.papers.job"] = jobs
    """
    with subprocess.Popen(
        tampered(tampering, "reproduce", "broker"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len([*tmp_path.iterdir()]) == 1
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 143
    assert errors == ""
    assert [*tmp_path.iterdir()] == []


def test_an_interrupt_ends_without_a_traceback() -> None:
    action = "(print('ready', flush=True), __import__('time').sleep(60))"
    command = tampered(STAND_IN_JOB.format(action=action), "reproduce", "wildcard")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_pipe_prints_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    action = "[print('x' * 100) for _ in range(10_000)]"
    command = tampered(STAND_IN_JOB.format(action=action), "reproduce", "wildcard")
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""
