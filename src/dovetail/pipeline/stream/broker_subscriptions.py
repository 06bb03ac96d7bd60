"""The subscriptions of the brokers of a cluster, fetched over HTTP. No Spark.

Each answer has a version, and a broker sends its subscriptions only if the version has changed
(web/archive_routes.py). If a broker is away, the stream waits for it only once. Until it answers,
its last subscriptions stay in force, like its sessions.
"""

import io
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pyarrow as pa

from dovetail.api.http_client import NoAnswerError, fetch_bytes
from dovetail.archive.subscription_files import SCHEMA
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import STREAM_READ_BYTES_MAX, STREAM_SUBSCRIPTIONS_SECONDS
from dovetail.pipeline.source.archives import ClusterArchive

_ANSWERS_AT_ONCE = 16


class BrokerSubscriptions:
    """The last known subscriptions of each broker."""

    def __init__(self, cluster: ClusterArchive, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._say = say
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-subscriptions")
        self._members: dict[str, str] = {}
        self._requests: dict[str, Future[tuple[bytes, str]]] = {}
        self._known: dict[str, tuple[str, pa.Table]] = {}
        self._silent: set[str] = set()

    def refresh(self) -> Hashable:
        try:
            self._members |= self._cluster.members()
        except DovetailError:
            if not self._members:
                raise
        earlier = {*self._requests}
        for name, url in self._members.items():
            if name not in self._requests:
                version = self._known[name][0] if name in self._known else ""
                self._requests[name] = self._threads.submit(self._ask, url, version)
        fresh = [request for name, request in self._requests.items() if name not in earlier]
        wait_for(fresh, STREAM_SUBSCRIPTIONS_SECONDS)
        for name in [*self._requests]:
            self._take(name)
        return tuple(sorted((name, version) for name, (version, _) in self._known.items()))

    def _ask(self, url: str, known: str) -> tuple[bytes, str]:
        answer = fetch_bytes(
            self._cluster.login,
            url,
            "/archive/subscriptions",
            {"known": known},
            STREAM_READ_BYTES_MAX,
        )
        return answer.body, answer.headers["dovetail-version"]

    def _take(self, name: str) -> None:
        request = self._requests[name]
        if not request.done():
            self._mark_silent(name, "it has not answered yet")
            return
        del self._requests[name]
        try:
            body, version = request.result()
        except NoAnswerError as error:
            self._mark_silent(name, error.message)
            return
        except DovetailError as error:
            if "no archive" not in error.message:
                raise
            self._mark_silent(name, error.message)
            return
        if body:
            with pa.ipc.open_stream(io.BytesIO(body)) as stream:
                self._known[name] = version, stream.read_all()
        if name in self._silent:
            self._silent.discard(name)
            self._say(f"{name} lists its subscriptions again.")

    def _mark_silent(self, name: str, why: str) -> None:
        if name in self._silent:
            return
        self._silent.add(name)
        used = "its last list is used" if name in self._known else "none of them is known"
        self._say(f"{name} does not list its subscriptions, and {used}: {why}")

    def table(self) -> pa.Table:
        """Return all subscriptions as of the last refresh, each once."""
        return each_once(table for _, (_, table) in sorted(self._known.items()))


def each_once(tables: Iterable[pa.Table]) -> pa.Table:
    """Join tables. During a session move, two brokers may list the same id for a moment."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()
    ids = whole["id"].to_pylist()
    if len({*ids}) == len(ids):
        return whole
    places = {one: place for place, one in enumerate(ids)}
    return whole.take(pa.array(sorted(places.values())))
