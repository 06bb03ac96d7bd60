"""Where rows of an archive are read: a folder with its files, or the brokers of a running cluster.

Both answer the same two questions, by broker and sequence (archive/sequences.py): which rows are
there above these offsets, and what are the rows from one offset to another? So a stream is the same
over both, and files that are put together meanwhile double nothing.

Of a cluster any node's address is enough: it names the others, and those that come later. A broker
that does not answer is left out until it does, and said to the log: its rows wait. Nobody waits for
it: its answer, if it comes late, is for the next look. No Spark.
"""

import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from dovetail.api.http_client import Login, NoAnswerError, fetch_as, fetch_bytes
from dovetail.api.reports import ArchiveReport, ClusterReport, NodeEntry
from dovetail.archive.files import ArchiveError
from dovetail.archive.limits import ARCHIVE_READ_BYTES_MAX, ARCHIVE_READ_ROWS_MAX
from dovetail.archive.sequences import Run
from dovetail.archive.tail import Tail
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import (
    STREAM_ANSWER_SECONDS,
    STREAM_MEMBERS_SECONDS,
    STREAM_READ_BYTES_MAX,
)

log = logging.getLogger("dovetail.stream")

_AGAIN_SECONDS = 0.5
_ANSWERS_AT_ONCE = 16


class Waiting(NamedTuple):
    """A broker's rows above an offset; and the first that it has at all, if there is one."""

    earliest: int | None
    runs: list[Run]


class Place(Protocol):
    """See the module."""

    def look(self, offsets: Mapping[str, int]) -> dict[str, Waiting]:
        """Of each broker that can be read now, by name, what is above its offset."""

    def rows(
        self, broker: str, after: int, upto: int, wait_seconds: float
    ) -> Iterator[pa.RecordBatch]:
        """In their order. `wait_seconds`: for a broker that does not answer."""


@dataclass
class Folder:
    """Files of an archive."""

    path: str
    _tail: Tail | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_tail": None}

    def _looked(self) -> Tail:
        if not Path(self.path).is_dir():
            raise ArchiveError(
                f"{self.path} is no folder that is there.",
                hint="Name the one that archive.folder names; every worker has to see it.",
            )
        if self._tail is None:
            self._tail = Tail(Path(self.path))
        self._tail.look()
        return self._tail

    def look(self, offsets: Mapping[str, int]) -> dict[str, Waiting]:
        tail = self._looked()
        found = {}
        for broker in tail.brokers:
            runs, after = tail.runs(broker), offsets.get(broker, 0)
            found[broker] = Waiting(
                runs[0][0], [(max(first, after + 1), last) for first, last in runs if last > after]
            )
        return found

    def rows(
        self,
        broker: str,
        after: int,
        upto: int,
        wait_seconds: float,  # noqa: ARG002 (files are there, or never will be)
    ) -> Iterator[pa.RecordBatch]:
        tail = self._looked()
        while after < upto:
            piece = tail.read(broker, after, upto, ARCHIVE_READ_ROWS_MAX, ARCHIVE_READ_BYTES_MAX)
            yield from piece.table.to_batches()
            after = piece.upto


@dataclass
class Cluster:
    """Brokers over HTTP. `urls`: of one node or more, whichever answers."""

    urls: tuple[str, ...]
    login: Login | None = None
    clock: Callable[[], float] = time.monotonic
    _state: "_Looking | None" = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {"urls": self.urls, "login": self.login, "clock": time.monotonic, "_state": None}

    def look(self, offsets: Mapping[str, int]) -> dict[str, Waiting]:
        """A DovetailError if nobody answers at first, or no broker has an archive."""
        if self._state is None:
            self._state = _Looking(self)
        return self._state.look(offsets)

    def members(self) -> dict[str, str]:
        """Where each broker's HTTP is."""
        failed: DovetailError | None = None
        for url in self.urls:
            try:
                return brokers_of(url, fetch_as(self.login, url, "/cluster", ClusterReport))
            except DovetailError as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def report(self, url: str, after: int) -> ArchiveReport:
        return fetch_as(self.login, url, "/archive", ArchiveReport, {"after": str(after)})

    def rows(
        self, broker: str, after: int, upto: int, wait_seconds: float
    ) -> Iterator[pa.RecordBatch]:
        url: str | None = None
        waits_since: float | None = None
        while after < upto:
            try:
                url = url or self._place_of(broker)
                query = {"after": str(after), "upto": str(upto)}
                answer = fetch_bytes(self.login, url, "/archive/rows", query, STREAM_READ_BYTES_MAX)
            except NoAnswerError as error:
                # Rows that a batch has to have: there is no batch without them.
                waits_since = self.clock() if waits_since is None else waits_since
                if self.clock() - waits_since >= wait_seconds:
                    raise NoAnswerError(
                        f"{broker} has rows that the stream has to read now, and does not answer: "
                        f"{error.message}",
                        hint="Start it again, and then the stream: it goes on where it was.",
                    ) from error
                log.warning("%s does not answer, and is waited for: %s", broker, error.message)
                url = None
                time.sleep(_AGAIN_SECONDS)
                continue
            waits_since = None
            reached = int(answer.headers["dovetail-upto"])
            if reached <= after:
                raise ArchiveError(
                    f"{broker} has no rows above {after}, and had some up to {upto}.",
                    hint="Were its data folder and the files of its archive removed?",
                )
            with pa.ipc.open_stream(io.BytesIO(answer.body)) as stream:
                yield from stream
            after = reached

    def _place_of(self, broker: str) -> str:
        members = self.members()
        if broker not in members:
            raise NoAnswerError(f"{broker} is not in the cluster now.")
        return members[broker]


class _Looking:
    """What is known of a cluster from look to look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-look")
        self._members = cluster.members()  # at first somebody has to be there
        self._members_at = cluster.clock()
        self._asking: Future[dict[str, str]] | None = None
        self._asked: dict[str, Future[ArchiveReport]] = {}
        self._is_away: dict[str, bool] = {}
        self._without: set[str] = set()
        """Brokers that have no archive."""

    def look(self, offsets: Mapping[str, int]) -> dict[str, Waiting]:
        self._find_members()
        late = {*self._asked}
        for name, url in self._members.items():
            if name not in self._asked:
                self._asked[name] = self._threads.submit(
                    self._cluster.report, url, offsets.get(name, 0)
                )
        wait_for([self._asked[name] for name in {*self._asked} - late], STREAM_ANSWER_SECONDS)
        found: dict[str, Waiting] = {}
        for name, asked in [*self._asked.items()]:
            if not asked.done():
                self._say(name, is_away=True, why="it has not answered yet")
                continue
            del self._asked[name]
            try:
                report = asked.result()
            except NoAnswerError as error:
                self._say(name, is_away=True, why=error.message)
            except DovetailError as error:
                if "no archive" not in error.message:
                    raise
                self._without.add(name)
            else:
                self._say(name, is_away=False)
                self._without.discard(name)
                after = offsets.get(name, 0)
                runs = [(max(first, after + 1), last) for first, last in report.runs]
                found[name] = Waiting(
                    report.earliest, [(first, last) for first, last in runs if first <= last]
                )
        if self._without and self._without >= self._members.keys():
            raise DovetailError(
                f"no broker of the cluster has an archive ({', '.join(sorted(self._without))}).",
                hint='Name topics under [archive] in their configuration: topics = ["#"] has all.',
            )
        return found

    def _find_members(self) -> None:
        now = self._cluster.clock()
        if self._asking is None and now - self._members_at >= STREAM_MEMBERS_SECONDS:
            self._members_at = now
            self._asking = self._threads.submit(self._cluster.members)
        if self._asking is not None and self._asking.done():
            asking, self._asking = self._asking, None
            try:
                # Who is not listed any more may come back.
                self._members |= asking.result()
            except DovetailError as error:
                log.warning("no node names the brokers of the cluster: %s", error.message)

    def _say(self, name: str, *, is_away: bool, why: str = "") -> None:
        if is_away and not self._is_away.get(name):
            log.warning("%s does not answer, and its rows wait: %s", name, why)
        elif not is_away and self._is_away.get(name):
            log.warning("%s answers again", name)
        self._is_away[name] = is_away


def brokers_of(asked_url: str, report: ClusterReport) -> dict[str, str]:
    """Of those that say where their HTTP is; who was asked is where it was asked."""
    found = {}
    for entry in report.nodes:
        if entry.name == report.asked and entry.role == "broker":
            found[entry.name] = asked_url
        elif entry.role == "broker" and entry.report is not None and entry.report.http:
            found[entry.name] = _reachable(entry.report.http, entry)
    return found


def _reachable(url: str, entry: NodeEntry) -> str:
    """One that listens at every address is where the other nodes reach it."""
    parts = urlsplit(url)
    if parts.hostname not in {"0.0.0.0", "::"}:  # noqa: S104 (it is read, and not listened at)
        return url
    host, _, _ = entry.address.rpartition(":")
    return f"http://{host}:{parts.port}"
