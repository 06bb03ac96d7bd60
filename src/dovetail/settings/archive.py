"""`[archive]`: publications that the broker writes to Parquet files, for jobs that read them."""

from typing import Annotated

from msgspec import Struct

from dovetail.settings.field import bounded, describe

_MIB = 1 << 20


class ArchiveSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Publications as Parquet files."""

    topics: Annotated[
        tuple[str, ...],
        describe(
            "Filters of the topics whose publications are archived, with + and #. None: there is "
            "no archive. It needs pyarrow."
        ),
    ] = ()
    folder: Annotated[
        str,
        describe(
            "The folder of the files, by day and hour (UTC); created if it is missing. All brokers "
            "of a cluster may use the same one."
        ),
    ] = "dovetail-archive"
    delay_seconds: Annotated[
        float,
        bounded(
            0.1,
            3_600,
            "The time from a publication to its file, unless the disk is slower. The broker writes "
            "one file per such interval with publications; `dovetail compact` merges them.",
        ),
    ] = 1
    subscriptions_seconds: Annotated[
        float,
        bounded(
            0,
            86_400,
            "The shortest interval between two versions of the table of subscriptions, which the "
            "broker writes beside its publications when they change. 0: it writes no table.",
        ),
    ] = 60
    file_bytes_max: Annotated[
        int,
        # A column of Arrow has up to 2 GiB, and the last publication of a file may be large.
        bounded(1_024, 1 << 30, "Bytes of publications in one file, before they are compressed."),
    ] = 64 * _MIB
    buffer_bytes_max: Annotated[
        int,
        bounded(
            1_024,
            1 << 50,
            "Bytes of publications that wait for the archive, in memory and in the data folder, "
            "while its folder is full or missing. Beyond, further ones are counted, but not "
            "archived.",
        ),
    ] = 128 * _MIB
