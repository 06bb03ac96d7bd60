"""The scan kernel with its scratch space, and the calls that load what was compiled at set-up."""

import numpy as np

from dovetail.broker.dispatch import transcoded
from dovetail.broker.kernels import scan as kernels
from dovetail.broker.kernels.pairs import pairs_end
from dovetail.broker.packets import MQTT_5
from dovetail.config import RUN_PACKETS_MAX, RUNS_PER_PIECE
from dovetail.topics.trie import FilterTrie


class Scanner:
    """The kernel with its scratch space."""

    def __init__(self) -> None:
        self.runs_max = RUNS_PER_PIECE
        self._runs = np.empty((self.runs_max, 5), np.int64)

    def __call__(
        self, data: bytes, version: int, packet_bytes_max: int
    ) -> tuple[list[list[int]], int, int, int]:
        """Runs, where they end, why, and the bytes that the packet after them has in all."""
        count, at, status, needs = kernels.scan(
            np.frombuffer(data, np.uint8), version, packet_bytes_max, RUN_PACKETS_MAX, self._runs
        )
        return self._runs[:count].tolist(), at, status, needs


def load_kernels() -> None:
    """Compiled at set-up: loaded by a call of each rather than with the first message."""
    trie = FilterTrie[int]()
    for number in range(100):  # more than there is room for at first
        trie[f"{number:020}/+/#"] = number
    list(trie.search(b"a/b", 1))
    trie.match(b"a/b")
    for topic_filter in reversed(list(trie)):
        trie.pop(topic_filter)
    pairs_end(np.frombuffer(b"\0", np.uint8), 0)
    packet = b"\x30\x05\x00\x01a\x00x"
    Scanner()(packet, MQTT_5, len(packet))
    transcoded(packet, MQTT_5)
