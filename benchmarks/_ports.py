"""Reserves ports until the benchmark ends, in the same way as the tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from support.processes.ports import ReservedPorts  # the line above finds it

_RESERVED: list[ReservedPorts] = []


def reserve(count: int = 1) -> int:
    """Reserve `count` consecutive ports for our servers, and return the first."""
    _RESERVED.append(ReservedPorts(count))
    return _RESERVED[-1].first
