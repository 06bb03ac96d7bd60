"""The store: SQLite on disk. One thread writes each batch of the journal as one transaction.

- When `commit` returns, the whole batch is on disk. If it raises, nothing of it is.
- One thread at a time uses a `Store`: the one that opens and loads it, then its `StoreWriter`, then
  the one that closes it. Other threads and processes may call `backup`.
- The numbers of deleted sessions and messages are never used again.
- Damage changes nothing: the files stay as they are until all rows were read and found intact.
- On a full disk the store spends the reserve (disk_reserve.py) and keeps the log short. Then it
  accepts only writes that free space.
"""

import functools
import gc
import itertools
import logging
import os
import queue
import shlex
import sqlite3
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from dovetail.broker.store import integrity, tables
from dovetail.broker.store.database import (
    DATABASE_FILE,
    LOG_PAGES_CHECKPOINT,
    PAGE_BYTES,
    Durability,
    check_library,
    check_version,
    connect,
    connect_to_read,
    damage_error,
    flush,
    identity,
    is_out_of_room,
    keep_log,
    make_folder,
    sqlite_explained,
    take_lock,
)
from dovetail.broker.store.disk_reserve import RESERVE_BYTES, DiskReserve
from dovetail.broker.store.journal import Batch, OwedRow, StoredState
from dovetail.broker.store.watermark import LogIndex, Watermark
from dovetail.errors import DamageError, StoreError, explain_file_errors

STATEMENT_ROWS_MAX = 256
"""Rows that one statement writes. Python releases its global lock for each statement, and has to
get it back from the event loop. Beside a busy loop, a statement for every row took 1.4 to 12 times
as long (benchmarks/store.py; most on idle cores). More rows than this gain little, and delay the
loop while they are bound."""

STATEMENT_BYTES_MAX = 1 << 20
"""Payload of one statement, unless a single row has more. SQLite copies it."""

NUMBERS_RESERVED = 65_536
"""Numbers are reserved this far ahead, so that few commits have to store the highest one."""

LOG_PAGES_CHECKPOINT_LOW = RESERVE_BYTES // PAGE_BYTES // 4
"""LOG_PAGES_CHECKPOINT while the reserve is spent: the log has to fit into its space."""

log = logging.getLogger("dovetail.store")


class Store:
    """An open data folder: `Store.open`, `load` once, `commit` often, `close`."""

    def __init__(
        self,
        folder: Path,
        connection: sqlite3.Connection,
        kept_log: ExitStack,
        lock: int,
        *,
        may_lag: bool,
    ) -> None:
        """`may_lag`: a loss of power may take back the last commits."""
        self.folder = folder
        self.file = folder / DATABASE_FILE
        self._connection = connection
        self._kept_log = kept_log
        self._lock: int | None = lock
        self._identity = identity(self.file)
        self._damaged: Counter[str] = Counter()
        self._reserved = dict(self._rows(tables.NUMBERS))
        self._raise_if_damaged()
        self._has_failed = False
        self._log_index = LogIndex(self.file)
        self._watermark = Watermark(self.file, may_lag=may_lag)
        # If nobody closes a store, Python frees its connection, at the latest at exit. Then SQLite
        # moves the log into the database and deletes it.
        self._clear_mark = weakref.finalize(self, self._watermark.clear)
        self._room = DiskReserve(folder)

    @classmethod
    def open(cls, folder: Path, durability: Durability) -> "Store":
        """Open the folder, and make it if it is missing."""
        check_library()
        folder = folder.absolute()
        file = folder / DATABASE_FILE
        with explain_file_errors(folder), sqlite_explained(file), ExitStack() as undo:
            make_folder(folder)
            lock = take_lock(folder)
            undo.callback(os.close, lock)
            integrity.check(file)
            kept_log = keep_log(file)
            undo.callback(kept_log.close)
            connection = connect(file, durability)
            undo.callback(connection.close)
            flush(folder)
            store = cls(folder, connection, kept_log, lock, may_lag=durability == "process")
            store._room.prepare()
            undo.pop_all()
            return store

    def load(self) -> StoredState:
        """Return all rows; deliveries by session, and in order.

        Remove garbage first: messages without a reference, and rows of deleted sessions or
        messages. If a row is damaged, close the store.
        """
        try:
            with sqlite_explained(self.file), _no_collections(), self._transaction():
                removed = self._remove_garbage()
                state = self._read()
                self._raise_if_damaged()
        except DamageError:
            self._clear_mark.detach()
            self._leave()
            raise
        self._kept_log.close()
        if any(removed.values()):
            counts = ", ".join(f"{count} {name}" for name, count in removed.items() if count)
            log.info("Removed from %s what nothing refers to: %s.", self.file, counts)
        return state

    def _read(self) -> StoredState:
        return StoredState(
            sessions=tables.read_sessions(self._rows(tables.SESSIONS)),
            subscriptions=tables.read_subscriptions(self._rows(tables.SUBSCRIPTIONS)),
            messages=tables.read_messages(self._rows(tables.MESSAGES)),
            deliveries=tables.read_deliveries(self._rows(tables.DELIVERIES)),
            runs=tables.read_runs(self._rows(tables.RUNS)),
            run_deliveries=tables.read_run_deliveries(self._rows(tables.RUN_DELIVERIES)),
            incoming=tables.read_incoming(self._rows(tables.INCOMING)),
            owed={
                (peer, number): OwedRow(message, mark)
                for peer, number, message, mark in self._rows(tables.OWED)
            },
            heard=dict(self._rows(tables.HEARD)),
            seen={stream: bool(row) for stream, row in self._rows(tables.SEEN)},
            members=tables.read_members(self._rows(tables.MEMBERS)),
            removals=dict(self._rows(tables.REMOVALS)),
            peer_groups={
                (peer, name, topic_filter): kept
                for peer, name, topic_filter, kept in self._rows(tables.PEER_GROUPS)
            },
            archive=tables.read_archive(self._rows(tables.ARCHIVE)),
        )

    def highest_numbers(self) -> tuple[int, int]:
        """Return a session and a message number, at or above all that were ever committed.

        Higher numbers are new. Some numbers are skipped.
        """
        return self._reserved["sessions"], self._reserved["messages"]

    def begin_life(self, now: float) -> tuple[int, int]:
        """Return the folder's stream, and an incarnation above that of any process before."""
        with sqlite_explained(self.file):
            incarnation = max(self._reserved["incarnation"] + 1, int(now * 1_000))
            with self._transaction():
                self._put_number("incarnation", incarnation)
        self._reserved["incarnation"] = incarnation
        return self._reserved["stream"], incarnation

    def next_archived(self, now: float) -> int:
        """Return an archive sequence above all that this folder, or one before it, has used.

        A new data folder must not use them again, so it is at least the time.
        """
        return max(int(self._reserved["archive"]) + 1, int(now * 1e6))

    def commit(self, batch: Batch) -> None:
        """Write the batch, or raise and leave the store as it was.

        If only the sync of "power" fails, the batch is undone for every reader, but a crash may
        bring it back: more than was promised, never less.
        """
        probing, self._has_failed = self._has_failed, True
        with sqlite_explained(self.file):
            self._check_in_place()
            self._roll_back()
            if self._room.is_spent:
                self._restore_room()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._write(batch)
                # The rest of a failed batch may change no page, so it would not test the disk.
                reserved = self._reserve(batch, change=probing)
                self._connection.execute("COMMIT")
            except BaseException as error:
                # If this fails, too (the disk is gone), the next commit begins with it.
                with suppress(sqlite3.Error):
                    self._roll_back()
                if is_out_of_room(error):
                    self._make_room()
                raise
        self._note()
        self._reserved = reserved
        self._has_failed = False

    @property
    def is_low(self) -> bool:
        """Is there space only for writes that free space?"""
        return self._room.is_spent

    def backup(self, target: Path) -> None:
        """Call `backup`. Any thread may call this, at any time."""
        backup(self.folder, target)

    def close(self) -> None:
        """Close the folder. SQLite moves the log into the database and deletes it."""
        if self._lock is None:
            return
        self._clear_mark()
        self._kept_log.close()
        self._leave()

    def _leave(self) -> None:
        """Close the folder as it is, with its log if that is kept."""
        assert self._lock is not None
        self._connection.close()
        self._kept_log.close()
        self._watermark.close()
        self._log_index.close()  # after SQLite has given up its locks
        os.close(self._lock)
        self._lock = None

    def _rows(self, table: tables.TableSchema) -> Iterator[Any]:
        """Return the intact rows, and count the others."""
        is_whole = tables.is_whole
        for row in self._connection.execute(tables.read_statement(table)):
            if is_whole(row):
                yield row[:-1]
            else:
                self._damaged[table.name] += 1

    def _raise_if_damaged(self) -> None:
        if self._damaged:
            raise damage_error(self.file, [integrity.damaged_rows(self._damaged)])

    def _remove_garbage(self) -> dict[str, int]:
        """Remove garbage; return how many rows of each table."""
        return {
            name: self._connection.execute(statement).rowcount
            for name, statement in tables.remove_garbage_statements().items()
        }

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit all of it and note that; nothing after an error."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._roll_back()
            raise
        self._note()

    def _note(self) -> None:
        """Note where the log ends. The next start checks that all of it is there."""
        self._watermark.note(self._log_index.packed_place())

    def _write(self, batch: Batch) -> None:
        self._put_and_remove(tables.SESSIONS, batch.sessions)
        self._put_and_remove(tables.SUBSCRIPTIONS, batch.subscriptions)
        self._put_and_remove(tables.MESSAGES, batch.messages)
        self._put_and_remove(tables.DELIVERIES, batch.deliveries)
        self._put_and_remove(tables.RUNS, batch.runs)
        self._put_and_remove(tables.RUN_DELIVERIES, batch.run_deliveries)
        self._put_and_remove(tables.INCOMING, batch.incoming)
        self._put_and_remove(tables.OWED, batch.owed)
        self._put_and_remove(tables.HEARD, batch.heard)
        self._put_and_remove(tables.SEEN, batch.seen)
        self._put_and_remove(tables.MEMBERS, batch.members)
        self._put_and_remove(tables.REMOVALS, batch.removals)
        self._put_and_remove(tables.PEER_GROUPS, batch.peer_groups)
        self._put_and_remove(tables.ARCHIVE, batch.archive)
        # Last, so that rows that the batch has for a deleted session are deleted with it.
        gone = [(number,) for number, row in batch.sessions.items() if row is None]
        for table in (
            tables.SUBSCRIPTIONS,
            tables.DELIVERIES,
            tables.RUN_DELIVERIES,
            tables.INCOMING,
        ):
            self._in_pieces(functools.partial(tables.remove_statement, table, 1), gone)

    def _put_and_remove(self, table: tables.TableSchema, changes: dict[Any, Any]) -> None:
        put: list[tuple[Any, ...]] = []
        sizes: list[int] = []
        removed: list[tuple[Any, ...]] = []
        flatten, with_checksum = table.flatten, tables.with_checksum
        # In the order of keys a page is changed once, however many of its rows are.
        for key in sorted(changes):
            row = changes[key]
            parts = key if isinstance(key, tuple) else (key,)
            if row is None:
                removed.append(parts)
            else:
                flat, size = with_checksum((*parts, *flatten(row)))
                put.append(flat)
                sizes.append(size)
        self._in_pieces(functools.partial(tables.put_statement, table), put, sizes)
        self._in_pieces(functools.partial(tables.remove_statement, table, len(table.keys)), removed)

    def _in_pieces(
        self,
        statement: Callable[[int], str],
        rows: list[tuple[Any, ...]],
        sizes: Sequence[int] = (),
    ) -> None:
        """Execute a statement for all rows, many at once, as far as their bytes are not too many.

        Pieces are powers of two, so that SQLite compiles few statements, and each once.
        """
        start = 0
        while start < len(rows):
            count = min(1 << (len(rows) - start).bit_length() - 1, STATEMENT_ROWS_MAX)
            while count > 1 and sum(sizes[start : start + count]) > STATEMENT_BYTES_MAX:
                count //= 2
            piece = rows[start : start + count]
            self._connection.execute(statement(count), [*itertools.chain.from_iterable(piece)])
            start += count

    def _reserve(self, batch: Batch, *, change: bool) -> dict[str, int]:
        """Return the reserved numbers after this batch. With `change`, write in any case."""
        reserved = dict(self._reserved)
        of_batch: tuple[tuple[str, Collection[int]], ...] = (
            ("sessions", batch.sessions),
            ("messages", (*batch.messages, *batch.runs)),
            ("archive", batch.archive),
        )
        for kind, numbers in of_batch:
            highest = max(numbers, default=0)
            if highest > reserved[kind]:
                reserved[kind] = highest + NUMBERS_RESERVED
            elif change:
                reserved[kind] += 1
            if reserved[kind] != self._reserved[kind]:
                self._put_number(kind, reserved[kind])
        return reserved

    def _put_number(self, kind: str, reserved: int) -> None:
        row = (kind, reserved)
        statement = tables.put_statement(tables.NUMBERS, 1)
        self._connection.execute(statement, (*row, tables.checksum(row)))

    def _roll_back(self) -> None:
        # SQLite ends some failed transactions by itself.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _make_room(self) -> None:
        """Spend the reserve, and move the log into the database if that needs no space.

        The next commit overwrites the log from its beginning. So deletions, which free space, go
        through on a full disk.
        """
        is_spent = self._room.spend()
        with suppress(sqlite3.Error):
            if is_spent:
                self._checkpoint_after(LOG_PAGES_CHECKPOINT_LOW)
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _restore_room(self) -> None:
        self._room.restore()
        if not self._room.is_spent:
            self._checkpoint_after(LOG_PAGES_CHECKPOINT)

    def _checkpoint_after(self, pages: int) -> None:
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")

    def _check_in_place(self) -> None:
        # SQLite would continue to write to a deleted file.
        with suppress(OSError):
            if identity(self.file) == self._identity:
                return
        raise StoreError(
            f"{self.file} was moved or removed while Dovetail uses it.",
            hint="Put the folder back as it was, or end Dovetail: what is written now is lost.",
        )


@contextmanager
def _no_collections() -> Iterator[None]:
    """Stop the garbage collector: it would search millions of rows that all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class StoreWriter:
    """The thread that commits batches of the event loop. It calls `on_result` in the thread.

    One batch at a time, because a later batch must not overtake a failed one. The next is submitted
    after the last result; after a failure it has the failed rows, too.
    """

    def __init__(self, store: Store, on_result: Callable[[Batch, StoreError | None], None]) -> None:
        self._store = store
        self._on_result = on_result
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._outstanding = False
        self._pending = 0
        self._closed = False
        # A process that ends without `close` must not wait for us; for the disk it is a kill.
        self._thread = threading.Thread(target=self._run, name="dovetail-store", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Batches not on disk: a submitted one, or a failed one until the next is stored."""
        return self._pending

    def submit(self, batch: Batch) -> None:
        """Submit a batch; never wait. The batch belongs to the writer until its result."""
        if self._closed:
            raise RuntimeError("the writer is closed")
        if self._outstanding:
            raise RuntimeError("a batch was submitted before the result of the last")
        self._outstanding = True
        self._pending = 1
        self._batches.put(batch)

    def close(self, timeout_seconds: float) -> None:
        """Finish the outstanding batch, and end the thread."""
        self._closed = True
        self._batches.put(None)
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            raise StoreError(
                f"{self._store.file} did not take the last batch in {timeout_seconds:g} seconds.",
                hint="The disk is very slow or does not answer; the system's log may say more.",
            )

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            error = self._commit(batch)
            if error is None:
                self._pending = 0
            self._outstanding = False  # first, as `on_result` may submit the next
            try:
                self._on_result(batch, error)
            except Exception:
                log.exception("The result of a batch could not be passed on.")
            del batch, error  # free the memory while we wait

    def _commit(self, batch: Batch) -> StoreError | None:
        try:
            self._store.commit(batch)
        except StoreError as error:
            return error
        except Exception as error:
            # A dead thread would leave all callers waiting, without a word.
            log.exception("A batch could not be written.")
            return StoreError(
                f"A batch could not be written: {error!r}",
                hint="This is a fault of Dovetail; its log shows where.",
            )
        return None


def has_promises(folder: Path) -> bool:
    """Return whether this folder has data that a client, or another broker, would miss.

    Raise a StoreError if a broker uses it.
    """
    file = folder / DATABASE_FILE
    with explain_file_errors(folder):
        integrity.check_repair(folder)
        if not file.exists():
            return False
        os.close(take_lock(folder))
    with sqlite_explained(file), closing(connect_to_read(file)) as connection:
        check_version(connection, file)
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        return any(
            connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None  # noqa: S608
            for name in there
            & {
                table.name
                for table in (tables.SESSIONS, tables.MESSAGES, tables.OWED, tables.ARCHIVE)
            }
        )


def backup(folder: Path, target: Path) -> None:
    """Copy the database of a data folder to a new file, whether or not a broker runs.

    The copy is a complete database. To use it, put it into an empty folder as `dovetail.db`, and
    start Dovetail with that folder.
    """
    folder, target = folder.absolute(), target.absolute()
    file = folder / DATABASE_FILE
    with explain_file_errors(folder):
        integrity.check_repair(folder)
        is_there = file.is_file()
        within = sorted(one.parent for one in folder.glob(f"*/{DATABASE_FILE}"))
    if not is_there:
        hint = "Name the folder with --data."
        if within:
            names = ", ".join(shlex.quote(str(one)) for one in within)
            hint = f"Brokers have folders within it; name one with --data: {names}"
        raise StoreError(f"{folder} holds no data of Dovetail.", hint=hint)
    if not target.parent.is_dir():
        raise StoreError(
            f"{target.parent} is not a folder that is there.", hint="Make it, or name another."
        )
    if os.path.lexists(target):
        raise StoreError(
            f"{target} is there already, and is left as it is.", hint="Name a file that is not."
        )
    with explain_file_errors(target.parent):
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(descriptor)
        unfinished = Path(name)
        try:
            _copy(file, unfinished, target)
            flush(unfinished)
            unfinished.rename(target)
            flush(target.parent)
        finally:
            unfinished.unlink(missing_ok=True)


def _copy(file: Path, unfinished: Path, target: Path) -> None:
    with sqlite_explained(file):
        source = connect_to_read(file)
    with closing(source):
        with sqlite_explained(file):
            check_version(source, file)
        with sqlite_explained(target), closing(sqlite3.connect(unfinished)) as copy:
            # All pages at once: between steps, every commit would make it begin again. The log
            # grows meanwhile, since no checkpoint may pass a reader.
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal
