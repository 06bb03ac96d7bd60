"""A broker process that runs a chosen search for every PUBLISH, and its handle. For figure 7.

It is the broker's own server and core on the loopback address, without a disk. One thing differs
from a broker in a cluster: to find the peers that need a publication, the router asks the
experiment's search instead of the peers' sketches (`Router.peers`). No peer ever needs it.
The router asks once for each topic that it does not remember. So the publisher gives each message
its own topic, and the counts show whether each was searched.

Commands come on standard input: each is a search point as one line of JSON. The answer on standard
output counts the searches since the last command. The process ends when standard input ends.
"""

import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import IO

import uvloop

from dovetail.broker.client_link import ClientLink
from dovetail.broker.kernel_loader import load_kernels
from dovetail.broker.net.listeners import listen, serve
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.other_brokers import NoPeers
from dovetail.broker.shared_state import SharedState
from dovetail.codec.packets import Connect
from dovetail.errors import DovetailError
from dovetail.papers.figure7.query_cost import SearchPoint, search_of
from dovetail.process.terminal import say
from dovetail.settings import ListenerSettings, MqttSettings
from dovetail.topics.topic_column import TopicColumn

END_SECONDS_MAX = 10.0
"""The process is killed if it has not ended so long after its input."""


@dataclass(frozen=True)
class SearchCount:
    """Topics that were searched since the last command, and the queries of all of them."""

    topics: int
    queries: int


class CountedSearch(NoPeers):
    """A search that replaces the peers' sketches, and counts topics and queries."""

    def __init__(self) -> None:
        self.topics = self.queries = 0
        self._search: Callable[[TopicColumn], int] = lambda _: 0

    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[str, ...]]:
        self.topics += len(topics)
        self.queries += self._search(TopicColumn.of(topics))
        return [()] * len(topics)

    def change(self, search: Callable[[TopicColumn], int]) -> SearchCount:
        searched = SearchCount(self.topics, self.queries)
        self._search = search
        self.topics = self.queries = 0
        return searched


async def run(seed: int) -> None:
    loop = asyncio.get_running_loop()
    load_kernels()

    def let_in(link: ClientLink, packet: Connect) -> None:
        server.broker.admit(link, packet, None)

    server = BrokerServer(
        SharedState(MqttSettings()), None, authenticate=let_in, random=Random(seed), clock=time.time
    )
    search = CountedSearch()
    server.broker.router.peers = search
    listening = await listen(server, ListenerSettings(kind="tcp", host="127.0.0.1", port=0))
    await serve(listening)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    # As a node does: garbage collection skips what exists now.
    gc.collect()
    gc.freeze()
    say(json.dumps({"port": listening.port}))
    while line := await orders.readline():
        searched = search.change(search_of(SearchPoint(**json.loads(line)), seed))
        say(json.dumps(asdict(searched)))
    listening.close()
    await server.stop()


# The handle ---------------------------------------------------------------------------------------


class SearchBroker:
    """The handle of a running broker process."""

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        self._process = process
        self._log = log
        self.port = int(self._answer()["port"])

    def set_search(self, point: SearchPoint) -> SearchCount:
        """Change the search, and return the counts of the last one."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_answer` reports it
            self._process.stdin.write(json.dumps(asdict(point)) + "\n")
            self._process.stdin.flush()
        return SearchCount(**self._answer())

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DovetailError(f"the broker of the experiment has ended: {self.last_log_line()}")
        answer: dict[str, int] = json.loads(line)
        return answer

    def last_log_line(self) -> str:
        self._log.seek(0)
        said = self._log.read().strip().splitlines()
        return said[-1] if said else "it said nothing."


@contextlib.contextmanager
def start_search_broker(seed: int) -> Iterator[SearchBroker]:
    """Start a broker process, which serves MQTT until the block ends."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C must not reach it; it ends with us
        )
        try:
            yield SearchBroker(process, log)
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(int(sys.argv[1])))
