"""A broker whose every PUBLISH costs a chosen search: a process for figure 7, and its owner's end.

It is the broker's own server and core on the loopback address, without a disk. What differs from a
broker in a cluster is whom the router asks which other brokers may need a publication: not peers'
sketches but the experiment's. It is asked at the same place (`Router.search_peers`), and nobody
else ever needs it. The router asks once for each topic that it does not remember, so whoever
publishes gives each message a topic of its own, and the counts tell whether that was so.

Orders come on standard input, one JSON object a line: a point. The answer, on standard output, is
what was searched since the last order. When standard input ends, so does the process.
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

from dovetail.broker.client_link import Link
from dovetail.broker.kernel_loader import load_kernels
from dovetail.broker.net.listeners import listen, serve
from dovetail.broker.net.server import Server
from dovetail.broker.shared_state import Shared
from dovetail.codec.packets import Connect
from dovetail.errors import DovetailError
from dovetail.papers.figure7.query_cost import Point, search_of
from dovetail.process.terminal import say
from dovetail.settings import Listener, Mqtt
from dovetail.topics.topic_column import Column

END_SECONDS_MAX = 10.0
"""After its input has ended; then it is killed."""


@dataclass(frozen=True)
class Searched:
    """Since the last order: topics that were searched for, and the queries of all of them."""

    topics: int
    queries: int


class Search:
    """In the place of the peers' sketches; what it costs is an order's to say."""

    def __init__(self) -> None:
        self.topics = self.queries = 0
        self._search: Callable[[Column], int] = lambda _: 0

    def __call__(self, topics: Sequence[bytes]) -> Sequence[tuple[str, ...]]:
        self.topics += len(topics)
        self.queries += self._search(Column.of(topics))
        return [()] * len(topics)

    def change(self, search: Callable[[Column], int]) -> Searched:
        searched = Searched(self.topics, self.queries)
        self._search = search
        self.topics = self.queries = 0
        return searched


async def run(seed: int) -> None:
    loop = asyncio.get_running_loop()
    load_kernels()

    def let_in(link: Link, packet: Connect) -> None:
        server.broker.admit(link, packet, None)

    server = Server(Shared(Mqtt()), None, authenticate=let_in, random=Random(seed), clock=time.time)
    search = Search()
    server.broker.router.search_peers = search
    listening = await listen(server, Listener(kind="tcp", host="127.0.0.1", port=0))
    await serve(listening)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    # As a node does: what was made until now stays.
    gc.collect()
    gc.freeze()
    say(json.dumps({"port": listening.port}))
    while line := await orders.readline():
        searched = search.change(search_of(Point(**json.loads(line)), seed))
        say(json.dumps(asdict(searched)))
    listening.close()
    await server.stop()


# The owner's end ----------------------------------------------------------------------------------


class SearchingBroker:
    """The process, as whoever started it sees it."""

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        self._process = process
        self._log = log
        self.port = int(self._answer()["port"])

    def order(self, point: Point) -> Searched:
        """What it searched so far; from now on it is this."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_answer` says so
            self._process.stdin.write(json.dumps(asdict(point)) + "\n")
            self._process.stdin.flush()
        return Searched(**self._answer())

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DovetailError(f"the broker of the experiment has ended: {self.last_words()}")
        answer: dict[str, int] = json.loads(line)
        return answer

    def last_words(self) -> str:
        self._log.seek(0)
        said = self._log.read().strip().splitlines()
        return said[-1] if said else "it said nothing."


@contextlib.contextmanager
def searching_broker(seed: int) -> Iterator[SearchingBroker]:
    """A process that serves MQTT until the block ends."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; our end is its end
        )
        try:
            yield SearchingBroker(process, log)
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
