"""Sources of archived rows: a folder with the files of an archive, or the brokers of a cluster.

Both answer two questions, by broker and sequence (archive/sequences.py): which rows are there above
these offsets, and what are the rows from one offset to another? So a stream works the same over
both, and compaction meanwhile duplicates nothing.

For a cluster the address of any node is enough: the node names the others, including those that
join later. A broker that does not answer is left out until it does, and a log line says so. Nobody
waits for it: a late answer counts at the next poll. No Spark.
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
from dovetail.archive.sequences import Run, clip_runs
from dovetail.archive.tail import ArchiveTail
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import (
    STREAM_ANSWER_SECONDS,
    STREAM_MEMBERS_SECONDS,
    STREAM_READ_BYTES_MAX,
)

log = logging.getLogger("dovetail.stream")

_AGAIN_SECONDS = 0.5
_ANSWERS_AT_ONCE = 16


class AvailableRows(NamedTuple):
    """A broker's rows above an offset, as runs of sequences."""

    earliest: int | None
    """The first row that the broker has at all; None if it has none."""
    runs: list[Run]


class RowSource(Protocol):
    """A place to read archived rows from."""

    def available_rows(self, offsets: Mapping[str, int]) -> dict[str, AvailableRows]:
        """Return the rows above these offsets, for each broker that can be read now."""

    def rows(
        self, broker: str, after: int, upto: int, wait_seconds: float
    ) -> Iterator[pa.RecordBatch]:
        """Yield a broker's rows in order. Wait at most `wait_seconds` for a broker that is away."""


@dataclass
class ArchiveFolder:
    """A `RowSource` over the files of an archive."""

    path: str
    _tail: ArchiveTail | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_tail": None}

    def _refreshed_tail(self) -> ArchiveTail:
        if not Path(self.path).is_dir():
            raise ArchiveError(
                f"there is no folder {self.path}.",
                hint="Name the one that archive.folder names; every worker has to see it.",
            )
        if self._tail is None:
            self._tail = ArchiveTail(Path(self.path))
        self._tail.refresh()
        return self._tail

    def available_rows(self, offsets: Mapping[str, int]) -> dict[str, AvailableRows]:
        tail = self._refreshed_tail()
        found = {}
        for broker in tail.brokers:
            runs = tail.runs(broker)
            found[broker] = AvailableRows(runs[0][0], clip_runs(runs, offsets.get(broker, 0)))
        return found

    def rows(
        self,
        broker: str,
        after: int,
        upto: int,
        wait_seconds: float,  # noqa: ARG002 (files are there, or never will be)
    ) -> Iterator[pa.RecordBatch]:
        tail = self._refreshed_tail()
        while after < upto:
            piece = tail.read(broker, after, upto, ARCHIVE_READ_ROWS_MAX, ARCHIVE_READ_BYTES_MAX)
            yield from piece.table.to_batches()
            after = piece.upto


@dataclass
class ClusterArchive:
    """A `RowSource` over the HTTP of brokers. `urls` are those of one node or more."""

    urls: tuple[str, ...]
    login: Login | None = None
    clock: Callable[[], float] = time.monotonic
    _state: "_ClusterPoller | None" = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {"urls": self.urls, "login": self.login, "clock": time.monotonic, "_state": None}

    def available_rows(self, offsets: Mapping[str, int]) -> dict[str, AvailableRows]:
        """Poll all brokers.

        A DovetailError: no node answers the first poll, or no broker has an archive.
        """
        if self._state is None:
            self._state = _ClusterPoller(self)
        return self._state.available_rows(offsets)

    def members(self) -> dict[str, str]:
        """Return the HTTP address of each broker."""
        failed: DovetailError | None = None
        for url in self.urls:
            try:
                return broker_urls(url, fetch_as(self.login, url, "/cluster", ClusterReport))
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
                url = url or self._url_of(broker)
                query = {"after": str(after), "upto": str(upto)}
                answer = fetch_bytes(self.login, url, "/archive/rows", query, STREAM_READ_BYTES_MAX)
            except NoAnswerError as error:
                # The batch needs these rows, so it waits for them.
                waits_since = self.clock() if waits_since is None else waits_since
                if self.clock() - waits_since >= wait_seconds:
                    raise NoAnswerError(
                        f"{broker} has rows that the stream has to read now, and does not answer: "
                        f"{error.message}",
                        hint="Start the broker again, and then the stream: it continues there.",
                    ) from error
                log.warning("waiting for %s, which does not answer: %s", broker, error.message)
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

    def _url_of(self, broker: str) -> str:
        members = self.members()
        if broker not in members:
            raise NoAnswerError(f"{broker} is not in the cluster now.")
        return members[broker]


class _ClusterPoller:
    """Polls the brokers of a cluster, and keeps late answers for the next poll."""

    def __init__(self, cluster: ClusterArchive) -> None:
        self._cluster = cluster
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-poll")
        self._members = cluster.members()  # at first a node has to answer
        self._members_at = cluster.clock()
        self._members_request: Future[dict[str, str]] | None = None
        self._requests: dict[str, Future[ArchiveReport]] = {}
        self._is_away: dict[str, bool] = {}
        self._without_archive: set[str] = set()
        """Brokers without an archive."""

    def available_rows(self, offsets: Mapping[str, int]) -> dict[str, AvailableRows]:
        self._refresh_members()
        earlier = {*self._requests}
        for name, url in self._members.items():
            if name not in self._requests:
                self._requests[name] = self._threads.submit(
                    self._cluster.report, url, offsets.get(name, 0)
                )
        wait_for(
            [self._requests[name] for name in {*self._requests} - earlier], STREAM_ANSWER_SECONDS
        )
        found: dict[str, AvailableRows] = {}
        for name, request in [*self._requests.items()]:
            if not request.done():
                self._log_change(name, is_away=True, why="it has not answered yet")
                continue
            del self._requests[name]
            try:
                report = request.result()
            except NoAnswerError as error:
                self._log_change(name, is_away=True, why=error.message)
            except DovetailError as error:
                if "no archive" not in error.message:
                    raise
                self._without_archive.add(name)
            else:
                self._log_change(name, is_away=False)
                self._without_archive.discard(name)
                runs = clip_runs(report.runs, offsets.get(name, 0))
                found[name] = AvailableRows(report.earliest, runs)
        if self._without_archive and self._without_archive >= self._members.keys():
            names = ", ".join(sorted(self._without_archive))
            raise DovetailError(
                f"no broker of the cluster has an archive ({names}).",
                hint='Name topics under [archive] in their configuration: topics = ["#"] has all.',
            )
        return found

    def _refresh_members(self) -> None:
        now = self._cluster.clock()
        if self._members_request is None and now - self._members_at >= STREAM_MEMBERS_SECONDS:
            self._members_at = now
            self._members_request = self._threads.submit(self._cluster.members)
        if self._members_request is not None and self._members_request.done():
            request, self._members_request = self._members_request, None
            try:
                # A broker that is not listed any more may come back.
                self._members |= request.result()
            except DovetailError as error:
                log.warning("no node names the brokers of the cluster: %s", error.message)

    def _log_change(self, name: str, *, is_away: bool, why: str = "") -> None:
        if is_away and not self._is_away.get(name):
            log.warning("%s does not answer; its rows wait: %s", name, why)
        elif not is_away and self._is_away.get(name):
            log.warning("%s answers again", name)
        self._is_away[name] = is_away


def broker_urls(asked_url: str, report: ClusterReport) -> dict[str, str]:
    """Return the HTTP address of each broker that reports one.

    The node that was asked is at `asked_url`.
    """
    found = {}
    for entry in report.nodes:
        if entry.name == report.asked and entry.role == "broker":
            found[entry.name] = asked_url
        elif entry.role == "broker" and entry.report is not None and entry.report.http:
            found[entry.name] = _reachable(entry.report.http, entry)
    return found


def _reachable(url: str, entry: NodeEntry) -> str:
    """If the node listens on all addresses, return the one at which other nodes reach it."""
    parts = urlsplit(url)
    if parts.hostname not in {"0.0.0.0", "::"}:  # noqa: S104 (this only compares)
        return url
    host, _, _ = entry.address.rpartition(":")
    return f"http://{host}:{parts.port}"
