"""Skipped tests are reported with reasons, and continuous integration refuses unknown ones."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from support.processes.checkout import ROOT
from support.skips import ACCEPTED, FILE_VARIABLE, lines

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(5))
def test_passes(number): ...

@pytest.mark.parametrize("number", range(3))
def test_skips_itself(number):
    pytest.skip("mounting is not allowed here (permission denied): not tested")

@pytest.mark.skipif(True, reason="only root gives files away")
def test_is_skipped(): ...
"""
MISSING = """
import pytest
pytest.importorskip("dovetail_no_such_package")
"""
WHY = "could not import 'dovetail_no_such_package': No module named 'dovetail_no_such_package'"
SAID = [
    "5 passed, 4 skipped",
    "3 skipped: mounting is not allowed here (permission denied): not tested",
    "1 skipped: only root gives files away",
]


PYTEST = (sys.executable, "-m", "pytest", "-p", "no:hypothesispytest")  # which starts slowly


def run(folder: Path, *options: str, **environment: str) -> tuple[int, str, list[str]]:
    """Return the exit code, the output and the text of the file."""
    file = folder / "said"
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [*PYTEST, "-q", "-p", "support.skips", *options, folder],
        cwd=folder,
        env=inherited | {"PYTHONPATH": str(ROOT / "tests"), FILE_VARIABLE: str(file)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, file.read_text().splitlines()


def test_each_reason_is_shown_with_its_count(tmp_path: Path) -> None:
    """All workers count together; a folder that none could collect counts once."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text(MISSING)
    code, output, said = run(tmp_path, "-n", "2")
    assert (code, said) == (0, ["5 passed, 5 skipped", f"1 skipped: {WHY}", *SAID[1:]])
    assert "\n".join(said) in output


def test_continuous_integration_accepts_only_known_reasons(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    assert run(tmp_path, CI="true")[::2] == (0, SAID)
    (tmp_path / "test_other.py").write_text(MISSING)
    code, output, said = run(tmp_path, CI="true")
    assert (code, said[0]) == (1, "5 passed, 5 skipped")
    assert said[-1] == f"ERROR: nothing is skipped where CI is set: {WHY}"
    assert said[-1] in output


def test_nothing_is_skipped() -> None:
    assert lines(7, Counter()) == ["7 passed, 0 skipped"]


def test_reasons_that_are_accepted_are_those_of_tests() -> None:
    texts = [file.read_text() for file in (ROOT / "tests").rglob("*.py") if file.name != "skips.py"]
    for reason in ACCEPTED:
        assert any(f'"{reason}' in text for text in texts), reason


def test_the_summary_of_all_checks_shows_skips(tmp_path: Path) -> None:
    """scripts/test, in a project of one file that passes every check."""
    scripts, tests, programs = (tmp_path / name for name in ("scripts", "tests", "venv/bin"))
    for folder in (scripts, tests, programs):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", scripts)
    (scripts / "setup.sh").write_text("venv=$root/venv\nensure_venv() { :; }\n")
    (scripts / "servers.sh").write_text("skipped=\nensure_servers() { :; }\n")
    for name in ("conftest.py", "support/skips.py", "support/processes/servers.py"):
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tests / name)
    (tests / "test_some.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["tests"]\n')
    for name, command in {
        **dict.fromkeys(("ruff", "mypy", "lint-imports"), "true"),
        "python": sys.executable,
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [scripts / "test"],
        env=os.environ | {"DOVETAIL_TEST_WORKERS": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, summary = done.stdout.partition("== summary\n")
    checks = [f"  ok      {name}" for name in ("format", "lint", "types", "imports", "tests")]
    assert summary.splitlines() == [*checks, *(f"          {line}" for line in SAID)]
