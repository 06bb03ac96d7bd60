"""Ports that stay ours until the benchmark ends, by the rules of the tests' own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from support.processes.ports import ReservedPorts  # the line above finds it

_RESERVED: list[ReservedPorts] = []


def reserve(count: int = 1) -> int:
    """The first of `count` ports, one behind the other, that servers of ours may listen at."""
    _RESERVED.append(ReservedPorts(count))
    return _RESERVED[-1].first
