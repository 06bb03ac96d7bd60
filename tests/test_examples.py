"""Every example runs, as its first lines say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""


def test_a_publication_goes_where_it_is_wanted() -> None:
    (example,) = [path for path in EXAMPLES if path.name == "sketches.py"]
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True
    )
    assert "building7/lobby/door -> osaka building7/#" in done.stdout
    assert "building7/lobby/door -> kyoto +/lobby/+" in done.stdout
    before, after = done.stdout.split("a delta arrived")
    assert "garage/light -> nobody" in before
    assert "garage/light -> osaka garage/+" in after
