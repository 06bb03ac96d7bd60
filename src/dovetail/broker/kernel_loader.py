"""Loads the kernels of the data path before the first client connects."""

import numpy as np

from dovetail.broker.dispatch import transcoded
from dovetail.codec.kernels.pairs import pairs_end
from dovetail.codec.packets import MQTT_5
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
    transcoded(packet, MQTT_5)
