"""Loads the kernels of the data path before the first client connects."""

import numpy as np

from dovetail.codec.kernels.pairs import pairs_end
from dovetail.codec.kernels.scan import QOS_1, scan_reads
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5
from dovetail.codec.run import (
    Run,
    pubacks_of,
    retained_parts_of,
    rewritten,
    rewritten_rows,
    starts_of,
)
from dovetail.codec.scanner import Scanner
from dovetail.topics.trie import FilterTrie


def load_kernels() -> None:
    """Call each kernel once, so that the first message does not wait for loading."""
    trie = FilterTrie[int]()
    for number in range(100):  # enough to make the trie grow
        trie[f"{number:020}/+/#"] = number
    list(trie.search(b"a/b", 1))
    trie.match(b"a/b")
    for topic_filter in reversed(list(trie)):
        trie.pop(topic_filter)
    pairs_end(np.frombuffer(b"\0", np.uint8), 0)
    packet = b"\x30\x05\x00\x01a\x00x"
    Scanner()(packet, MQTT_5, len(packet))
    run = Run(b"\x32\x07\x00\x01a\x00\x01\x00x", MQTT_5, QOS_1, 1, 0)
    rewritten(run, MQTT_3_1_1, 1, 1)
    pubacks_of(run, None)
    retained_parts_of(run)
    runs, ends = np.zeros((1, 7), np.int64), np.array([len(packet)])
    scan_reads(np.frombuffer(packet, np.uint8), ends, np.array([MQTT_5]), 0, 0, runs)
    rewritten_rows(run, starts_of(run), np.zeros(1, np.int64), MQTT_5, 0)
