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
    archiver.py               a broker's part while it runs
    compaction.py             merges small files of hours that are over: `dovetail compact`

Reading:

    files.py                  which files count, and the list of them
    sequences.py              arithmetic on the sequence numbers of rows
    tail.py                   files by broker and sequence, for readers that continue
    reader.py                 a running broker's archive: files, then rows that are in no file yet

Subscriptions:

    subscription_files.py     the table of subscriptions beside the rows
    subscription_export.py    a broker's part in that table
    subscription_snapshot.py  a broker's subscriptions now, for streams that ask over HTTP
"""
