"""Fifty brokers in one process: the product's exchange and kernels, a network that counts bytes."""

import statistics
from collections import deque
from functools import partial
from typing import Any

import numpy as np

from _cluster_filters import Topics, filters_of, topics_of
from _cluster_ways import Counting, Exact, Sketches, whole_text
from dovetail.cluster.frames import HEADER_BYTES
from dovetail.topics.topic_column import Column
from dovetail.topics.trie import FilterTrie


class Network:
    """Frames arrive in order, one after the other."""

    def __init__(self, way: type[Any], count: int) -> None:
        self.bytes = 0
        self._waiting: deque[tuple[str, str, int, bytes]] = deque()
        self.exchanges = {
            name: way(seed=7, lineage=1, send=partial(self._send, name), changed=lambda _name: None)
            for name in (f"broker-{number:02}" for number in range(count))
        }

    def _send(self, origin: str, peer: str, kind: int, body: bytes) -> bool:
        self.bytes += HEADER_BYTES + len(body)
        self._waiting.append((origin, peer, kind, body))
        return True

    def join_all(self) -> None:
        for origin, exchange in self.exchanges.items():
            for peer in self.exchanges:
                if peer != origin:
                    exchange.peer_is_live(peer, True)
                    exchange.peer_is_up(peer, True)
            self._settle()  # as they come: all at once, their sketches would wait here

    def flush(self) -> None:
        for exchange in self.exchanges.values():
            exchange.flush()
        self._settle()

    def _settle(self) -> None:
        while self._waiting:
            origin, peer, kind, body = self._waiting.popleft()
            answer_kind, answer = self.exchanges[peer].receive(origin, kind, body)
            self.bytes += HEADER_BYTES + len(answer)
            self.exchanges[origin].answered(peer, answer_kind, answer)


class Figures:
    """What one broker of them has, needs and sends."""

    def __init__(self) -> None:
        self.forwarded = self.needed = 0
        self.sketch_bytes = self.exact_bytes = 0
        self.join_bytes = self.exact_join_bytes = 0
        self.subscribe_bytes = self.exact_subscribe_bytes = 0.0


def simulate(kind: str, brokers: int, each: int, published: int) -> Figures:
    """Every broker subscribes to `each` filters; topics of all of them are published at the first.

    Exact tables of all would not fit: one broker's are made, the others' are alike.
    """
    result = Figures()
    network = Network(Sketches, brokers)
    topics = topics_of(kind, each)
    names = list(network.exchanges)
    exact = FilterTrie[bool]()
    for number, exchange in enumerate(network.exchanges.values()):
        filters = filters_of(topics(number, each))
        for topic_filter in filters:
            exchange.add(topic_filter)
        if number:
            result.exact_join_bytes += HEADER_BYTES + len(whole_text(1, each, filters))
            for topic_filter in filters:
                exact[topic_filter] = True
    network.join_all()
    first = network.exchanges[names[0]]
    result.join_bytes = first.whole_bytes
    result.sketch_bytes = first.known_bytes
    result.exact_bytes = exact.nbytes
    _publish(result, first, names, topics, published)
    _subscribe(result, network, kind, each)
    return result


def _publish(
    result: Figures,
    first: Sketches,
    names: list[str],
    topics: Topics,
    published: int,
) -> None:
    """A topic of each broker in turn, the first one's own among them."""
    own = [topics(number, published // len(names)) for number in range(len(names))]
    for number, some in enumerate(own):
        peers, answers = first.bank.search_column(Column.of(some))
        result.forwarded += int(np.count_nonzero(answers))
        if number:
            result.needed += len(some)
            if not answers[:, peers.index(names[number])].all():
                raise AssertionError("a subscription was missed")


def _subscribe(result: Figures, network: Network, kind: str, each: int) -> None:
    """Bytes to each peer for one filter that is new, and the answer."""
    rounds = 20
    extra = filters_of(topics_of(kind, each)(len(network.exchanges) + 1, rounds))
    owner = next(iter(network.exchanges.values()))
    peers = len(network.exchanges) - 1
    result.subscribe_bytes = _bytes_each(network, owner, extra) / peers
    pair = Network(Exact, 2)
    pair.join_all()
    result.exact_subscribe_bytes = _bytes_each(pair, next(iter(pair.exchanges.values())), extra)


def _bytes_each(network: Network, owner: Counting, filters: list[str]) -> float:
    """The median: a sketch that grows is sent whole, once in many thousands of them."""
    sent = []
    for topic_filter in filters:
        before = network.bytes
        owner.add(topic_filter)
        network.flush()
        sent.append(network.bytes - before)
    return statistics.median(sent)
