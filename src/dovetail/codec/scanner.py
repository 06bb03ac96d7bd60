"""Scan read buffers for packets: the scan kernel with its scratch space. Pure."""

import numpy as np

from dovetail.codec.kernels import scan as kernels
from dovetail.codec.limits import RUN_PACKETS_MAX, RUNS_PER_PIECE


class Scanner:
    """The kernel with its scratch space."""

    def __init__(self) -> None:
        self.runs_max = RUNS_PER_PIECE
        self._runs = np.empty((self.runs_max, 7), np.int64)

    def __call__(
        self, data: bytes, version: int, packet_bytes_max: int
    ) -> tuple[list[list[int]], int, int, int]:
        """Return runs, where they end, why, and the size of the packet behind them."""
        count, at, status, needs = kernels.scan(
            np.frombuffer(data, np.uint8), version, packet_bytes_max, RUN_PACKETS_MAX, self._runs
        )
        return self._runs[:count].tolist(), at, status, needs
