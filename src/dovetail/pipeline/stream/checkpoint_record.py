"""Records that tie a checkpoint to one query, and a table to one checkpoint.

    CHECKPOINT/table/        Spark's checkpoint of the query of this name
    CHECKPOINT/table.json    the query: its source and its output
    OUT/_dovetail.json       the checkpoint that the table belongs to

Everything is checked before anything is written. A different query, a table of another checkpoint,
or a table whose checkpoint is lost is refused, and nothing is changed. To continue would skip rows
or write them twice.
"""

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from dovetail.errors import ConfigError
from dovetail.pipeline.source.checkpoint import last_batch
from dovetail.pipeline.spark.output_folder import write_errors

TABLE_FILE = "_dovetail.json"
_LOCK = ".lock"

T = TypeVar("T")


class QueryIdentity(msgspec.Struct, frozen=True):
    """The options that identify a query."""

    source: str
    topics: str
    output: str
    kind: str


class CheckpointRecord(msgspec.Struct, frozen=True):
    """The record of a checkpoint, as JSON."""

    id: str
    query: QueryIdentity


class TableRecord(msgspec.Struct, frozen=True):
    """The record of a table, as JSON."""

    id: str
    checkpoint: str
    ids: str
    """The Spark type of subscriptions' ids."""


@contextlib.contextmanager
def locked(checkpoint: Path) -> Iterator[None]:
    """Lock a checkpoint for this run. A new folder is deleted again if nothing was written."""
    is_new = not checkpoint.is_dir()
    with write_errors(checkpoint, "--checkpoint"):
        _check_ours(checkpoint)
        checkpoint.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(checkpoint / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another stream runs with the checkpoint {checkpoint} now.",
                hint="End it, or name another folder with --checkpoint.",
            ) from None
        yield
    finally:
        os.close(descriptor)
        if is_new and [one.name for one in checkpoint.iterdir()] == [_LOCK]:
            # The run was refused: leave nothing behind.
            (checkpoint / _LOCK).unlink()
            checkpoint.rmdir()


def _check_ours(checkpoint: Path) -> None:
    if not os.path.lexists(checkpoint):
        return
    if not checkpoint.is_dir():
        raise ConfigError(f"{checkpoint} is not a folder.", hint="Name one with --checkpoint.")
    names = {one.name for one in checkpoint.iterdir()}
    if names and _LOCK not in names:
        what = (
            "is the checkpoint of another program's query"
            if {"offsets", "metadata"} & names
            else f"holds something else than a checkpoint of this command ({min(names)})"
        )
        raise ConfigError(
            f"{checkpoint} {what}, and is left as it is.",
            hint="Name another folder with --checkpoint.",
        )


def check_query(checkpoint: Path, name: str, query: QueryIdentity) -> CheckpointRecord:
    """Return the checkpoint's record, or a new one that is not written yet."""
    file = checkpoint / f"{name}.json"
    record = _read(file, CheckpointRecord)
    if record is None:
        if last_batch(checkpoint / name) is not None:
            raise ConfigError(
                f"{checkpoint / name} has a checkpoint, and {file} does not say of what.",
                hint="Name another folder with --checkpoint.",
            )
        return CheckpointRecord(uuid.uuid4().hex, query)
    if record.query != query:
        differing = [
            f"{field}: {was or 'all'}, and now {now or 'all'}"
            for field in QueryIdentity.__struct_fields__
            if (was := getattr(record.query, field)) != (now := getattr(query, field))
        ]
        raise ConfigError(
            f"{checkpoint} is the checkpoint of another stream ({'; '.join(differing)}).",
            hint="Name another folder with --checkpoint. If it is the same under another address, "
            f"write that into {file}.",
        )
    return record


def check_table(
    out: Path, checkpoint: Path, name: str, record: CheckpointRecord
) -> TableRecord | None:
    """Return the table's record, if there is a table. Refuse a table of another checkpoint."""
    batch = last_batch(checkpoint / name)
    names = {one.name for one in out.iterdir()} if out.is_dir() else set()
    if os.path.lexists(out) and not out.is_dir():
        raise ConfigError(f"{out} is not a folder.", hint="Name another folder with --out.")
    if not names:
        if batch is not None:
            raise ConfigError(
                f"{out} has gone, and its checkpoint {checkpoint} is at batch {batch}.",
                hint="Bring it back; or begin anew, with another folder for --checkpoint.",
            )
        return None
    found = _read(out / TABLE_FILE, TableRecord)
    if found is None:
        raise ConfigError(
            f"{out} holds something else than a table of this command ({min(names)}), and is left "
            "as it is.",
            hint="Name another folder with --out.",
        )
    if found.id != record.id:
        lost = "" if Path(found.checkpoint).is_dir() else ", which is gone"
        raise ConfigError(
            f"{out} was written with the checkpoint {found.checkpoint}{lost}, and not with "
            f"{checkpoint}: rows would be in it twice.",
            hint="Name another folder with --out: it gets all rows again."
            if lost
            else f"--checkpoint {found.checkpoint} goes on with it; or name another folder with "
            "--out.",
        )
    return found


def check_ids(out: Path, found: TableRecord | None, ids: str) -> None:
    if found is not None and found.ids != ids:
        raise ConfigError(
            f"the ids of the subscriptions are {ids}, and in {out} they are {found.ids}.",
            hint="Name another folder with --out, and with --checkpoint.",
        )


def write_query(checkpoint: Path, name: str, record: CheckpointRecord) -> None:
    with write_errors(checkpoint, "--checkpoint"):
        _write(checkpoint / f"{name}.json", record)


def write_table(out: Path, record: TableRecord) -> None:
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        _write(out / TABLE_FILE, record)


def _write(file: Path, what: msgspec.Struct) -> None:
    """Write a record atomically, and sync it to the disk."""
    new = file.with_name(f".{file.name}.new")
    with new.open("wb") as opened:
        opened.write(msgspec.json.format(msgspec.json.encode(what)) + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.rename(file)


def _read(file: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
