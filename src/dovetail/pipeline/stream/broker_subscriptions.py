"""Who subscribes at the brokers of a cluster, as they say it over HTTP. No Spark.

Brokers say a version with their subscriptions, and send them only to who has another
(web/archive_routes.py). A broker that is away is not waited for twice: what it said last holds, as
its sessions do, until it answers.
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
from dovetail.pipeline.source.archives import Cluster

_ANSWERS_AT_ONCE = 16


class BrokerTables:
    """Of each broker what it said last."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._say = say
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-subscriptions")
        self._members: dict[str, str] = {}
        self._asked: dict[str, Future[tuple[bytes, str]]] = {}
        self._known: dict[str, tuple[str, pa.Table]] = {}
        self._silent: set[str] = set()

    def look(self) -> Hashable:
        try:
            self._members |= self._cluster.members()
        except DovetailError:
            if not self._members:
                raise
        late = {*self._asked}
        for name, url in self._members.items():
            if name not in self._asked:
                version = self._known[name][0] if name in self._known else ""
                self._asked[name] = self._threads.submit(self._ask, url, version)
        fresh = [asked for name, asked in self._asked.items() if name not in late]
        wait_for(fresh, STREAM_SUBSCRIPTIONS_SECONDS)
        for name in [*self._asked]:
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
        asked = self._asked[name]
        if not asked.done():
            self._told(name, "it has not answered yet")
            return
        del self._asked[name]
        try:
            body, version = asked.result()
        except NoAnswerError as error:
            self._told(name, error.message)
            return
        except DovetailError as error:
            if "no archive" not in error.message:
                raise
            self._told(name, error.message)
            return
        if body:
            with pa.ipc.open_stream(io.BytesIO(body)) as stream:
                self._known[name] = version, stream.read_all()
        if name in self._silent:
            self._silent.discard(name)
            self._say(f"{name} says again who subscribes there.")

    def _told(self, name: str, why: str) -> None:
        if name in self._silent:
            return
        self._silent.add(name)
        now = "those that it said last hold" if name in self._known else "nobody there is known"
        self._say(f"{name} does not say who subscribes there, and {now}: {why}")

    def table(self) -> pa.Table:
        """As of the last look, each once."""
        return each_once(table for _, (_, table) in sorted(self._known.items()))


def each_once(tables: Iterable[pa.Table]) -> pa.Table:
    """One that is moving may be at two brokers for a moment: the id is the same."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()
    ids = whole["id"].to_pylist()
    if len({*ids}) == len(ids):
        return whole
    places = {one: place for place, one in enumerate(ids)}
    return whole.take(pa.array(sorted(places.values())))
