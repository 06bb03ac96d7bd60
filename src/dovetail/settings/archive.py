"""`[archive]`: publications that are written to Parquet files, for jobs that read them."""

from typing import Annotated

from msgspec import Struct

from dovetail.settings.field import about, number

_MIB = 1 << 20


class Archive(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Publications as Parquet files."""

    topics: Annotated[
        tuple[str, ...],
        about(
            "Filters of the topics whose publications are archived, with + and #. None: there is "
            "no archive. It needs pyarrow."
        ),
    ] = ()
    folder: Annotated[
        str,
        about(
            "Where the files are, by day and hour (UTC); made when it is missing. All brokers of a "
            "cluster may have the same one."
        ),
    ] = "dovetail-archive"
    delay_seconds: Annotated[
        float,
        number(
            0.1,
            3_600,
            "A publication is in a file so long after it came, unless the disk is slower. A file "
            "is written for each such time in which there was something: `dovetail compact` makes "
            "few of many.",
        ),
    ] = 1
    subscriptions_seconds: Annotated[
        float,
        number(
            0,
            86_400,
            "The broker's subscriptions are written beside its publications, as a table with "
            "versions, at most so often and when something has changed. 0: they are not.",
        ),
    ] = 60
    file_bytes_max: Annotated[
        int,
        # A column of Arrow has up to 2 GiB, and the last publication of a file may be large.
        number(1_024, 1 << 30, "Bytes of publications in one file, before they are compressed."),
    ] = 64 * _MIB
    buffer_bytes_max: Annotated[
        int,
        number(
            1_024,
            1 << 50,
            "Bytes of publications that wait for the archive, in memory and in the data folder: "
            "while its folder is full or gone, they gather here. Beyond, further ones are not "
            "archived, and counted.",
        ),
    ] = 128 * _MIB
