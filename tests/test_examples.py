"""Every example runs as its first lines promise."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.html_pages import check_balanced
from support.processes.broker_process import BrokerProcess
from support.processes.checkout import ROOT

FOLDER = ROOT / "examples"
EXAMPLES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("**/*.py"))
WITH_BROKER = {"pubsub.py"}

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs an example, with a broker if needed, and returns its output."""

    def run(name: str, *more: str) -> str:
        command = [sys.executable, str(FOLDER / name), *more]
        if name in WITH_BROKER:
            command.append(str(request.getfixturevalue("broker").port))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


def test_every_example_is_tested() -> None:
    assert EXAMPLES == ["pipeline/walk.py", "pubsub.py", "sketches.py", "traffic/city.py"]


def test_a_publication_goes_to_matching_brokers(run: Run) -> None:
    printed = run("sketches.py")
    assert "building7/lobby/door -> osaka building7/#" in printed
    assert "building7/lobby/door -> kyoto +/lobby/+" in printed
    before, after = printed.split("a delta arrived")
    assert "garage/light -> nobody" in before
    assert "garage/light -> osaka garage/+" in after


def test_the_guard_misses_nothing(run: Run) -> None:
    printed = run("pubsub.py")
    assert [line for line in printed.splitlines() if line.startswith("  ")] == [
        "  guard notes: building3/room1/door open",
        "  guard notes: building3/room1/door closed",
        "  guard notes: building3/room1/door silent",
        "  guard notes: building3/room1/lamp on (retained)",
    ]
    assert run("pubsub.py") == printed  # it leaves nothing behind


def test_drivers_see_matching_readings(run: Run) -> None:
    printed = run("traffic/city.py")  # it starts a broker, and checks the result itself
    saw = re.findall(
        r"^  and saw (\d+) of 400 readings, all that it wants:$", printed, re.MULTILINE
    )
    assert saw == ["7", "79", "81", "22"]


def test_a_walk_from_messages_to_a_plan(run: Run, tmp_path: Path) -> None:
    walk = tmp_path / "walk"
    printed = run("pipeline/walk.py", str(walk))  # it compares Spark's result with what drivers saw
    assert printed.count("as the broker has sent them") == 4
    assert "archived   4,000 readings in " in printed
    page = (walk / "speeds.html").read_text()
    check_balanced(page)
    assert "Ann, downtown" in page
    assert "in      4,000 messages, 8 subscriptions" in printed
    assert (walk / "plan.json").is_file()


def test_a_walk_replaces_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(FOLDER / "pipeline" / "walk.py"),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} is there already: name another folder, or remove it.\n"


def test_an_example_without_its_broker_says_so() -> None:
    command = [sys.executable, str(ROOT / "examples" / "pubsub.py"), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 1
    assert done.stderr == "Nobody listens on port 1: start a broker with ./dovetail up\n"
