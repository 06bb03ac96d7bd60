"""Simulates fifty brokers: the product's exchange and kernels, and a network that counts bytes."""

import statistics
from collections import deque
from functools import partial
from typing import Any

import numpy as np

from _cluster_filters import Topics, filters_of, topics_of
from _cluster_ways import CountingExchange, ExactTables, SketchTables, whole_text
from dovetail.cluster.frames import HEADER_BYTES
from dovetail.topics.topic_column import TopicColumn
from dovetail.topics.trie import FilterTrie


class Network:
    """A network where frames arrive in order, one after the other."""

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
    """The figures of one broker: what it stores, needs and sends."""

    def __init__(self) -> None:
        self.forwarded = self.needed = 0
        self.sketch_bytes = self.exact_bytes = 0
        self.join_bytes = self.exact_join_bytes = 0
        self.subscribe_bytes = self.exact_subscribe_bytes = 0.0


def simulate(kind: str, brokers: int, each: int, published: int) -> Figures:
    """Let brokers subscribe to `each` filters; publish topics of all at the first broker.

    The exact tables of all brokers would not fit into memory: one table is built, and the others
    count as equal.
    """
    result = Figures()
    network = Network(SketchTables, brokers)
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
    first: SketchTables,
    names: list[str],
    topics: Topics,
    published: int,
) -> None:
    """Publish a topic of each broker in turn, including the first broker's own."""
    own = [topics(number, published // len(names)) for number in range(len(names))]
    for number, some in enumerate(own):
        peers, answers = first.bank.search_column(TopicColumn.of(some))
        result.forwarded += int(np.count_nonzero(answers))
        if number:
            result.needed += len(some)
            if not answers[:, peers.index(names[number])].all():
                raise AssertionError("a subscription was missed")


def _subscribe(result: Figures, network: Network, kind: str, each: int) -> None:
    """Return the bytes to each peer for one new filter, and of the answer."""
    rounds = 20
    extra = filters_of(topics_of(kind, each)(len(network.exchanges) + 1, rounds))
    owner = next(iter(network.exchanges.values()))
    peers = len(network.exchanges) - 1
    result.subscribe_bytes = _bytes_each(network, owner, extra) / peers
    pair = Network(ExactTables, 2)
    pair.join_all()
    result.exact_subscribe_bytes = _bytes_each(pair, next(iter(pair.exchanges.values())), extra)


def _bytes_each(network: Network, owner: CountingExchange, filters: list[str]) -> float:
    """Return the median bytes: a sketch that grows is rare, and is sent whole."""
    sent = []
    for topic_filter in filters:
        before = network.bytes
        owner.add(topic_filter)
        network.flush()
        sent.append(network.bytes - before)
    return statistics.median(sent)
