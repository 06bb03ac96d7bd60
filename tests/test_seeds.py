"""`--seeds` runs seeded tests with other seeds, and leaves all others as they are."""

import os
import subprocess
import sys

from support.processes.checkout import ROOT


def collected(*options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *options],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_other_seeds() -> None:
    file = "tests/sim/test_gossip_cluster.py"
    own, others = collected(file), collected(file, "--seeds", "1000:1003")
    seeded = [name for name in others if name.endswith("]")]
    assert seeded == [
        f"{file}::test_all_nodes_agree_soon_after_the_last_fault[{seed}]"
        for seed in range(1000, 1003)
    ]
    assert set(others) - set(own) == set(seeded)
