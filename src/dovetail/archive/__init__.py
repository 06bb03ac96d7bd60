"""The archive: publications as Parquet files. Brokers write them, Spark jobs read them.

    FOLDER/day=2026-11-16/hour=17/BROKER-FIRST-LAST.parquet      rows of that hour (UTC)
    FOLDER/subscriptions/version=N/BROKER.parquet                a broker's subscriptions

Only this package, `pipeline/` and `papers/` import pyarrow. A broker without an archive does not
load it.

Writing, in the order of a row:

    rows.py                   rows to Parquet
    columns.py                the columns of the archive; readers need nothing else
    writer.py                 puts a file in its place
    worker_thread.py          runs writes one after the other, outside the event loop
    archiver.py               archives a broker's rows while it runs
    compaction.py             merges small files of hours that are over: `dovetail compact`

Reading:

    files.py                  names of files, and which of them are in effect
    sequences.py              arithmetic on the sequence numbers of rows
    tail.py                   files by broker and sequence, for readers that continue at an offset
    reader.py                 reads a running broker's archive: files, then rows in no file yet
    arrow_stream.py           tables as bytes, for HTTP and for Spark's workers

Subscriptions:

    subscription_files.py     the table of subscriptions beside the rows
    subscription_export.py    writes that table when subscriptions have changed
    subscription_snapshot.py  a broker's current subscriptions, for streams that ask over HTTP
"""
