"""A seed of a simulated cluster replays exactly, in another process too, or nobody could trace it.

Processes differ in the order of sets: strings have other hashes, and objects other addresses.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HANDLES = """
from sim.test_polling import FastScenario
scene = FastScenario(8010)
scene.play(20)
came = [reader.got for reader in scene.readers]
"""
GROUPS = """
from sim.test_roaming_groups import RoamingDrama
scene = RoamingDrama(3)
scene.play(10)
came = [receiver.received for receiver in scene.receivers]
"""
DIGEST = """
import hashlib
history = came, [sender.times for sender in scene.senders], scene.cluster.random.getstate()
print(hashlib.sha256(repr(history).encode()).hexdigest())
"""


def digest(scenario: str, hash_seed: int) -> str:
    """Play a scenario in a process of its own. Each frame draws a number, so none may differ."""
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", scenario + DIGEST],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("scenario", [HANDLES, GROUPS], ids=["handles", "groups"])
def test_a_seed_replays_exactly_in_another_process(scenario: str) -> None:
    assert digest(scenario, 1) == digest(scenario, 2)
