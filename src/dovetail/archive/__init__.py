"""The archive: publications as Parquet files, that brokers write and Spark jobs read.

    FOLDER/day=2026-11-16/hour=17/BROKER-FIRST-LAST.parquet      rows of that hour (UTC)
    FOLDER/subscriptions/version=N/BROKER.parquet                a broker's subscriptions, then

files.py has the one rule of what counts, and lists it; rows.py the columns; writing.py puts a file
in its place, and agent.py is a broker's part while it runs. compacting.py makes few files of many.
subscriptions.py has the table beside them, and exporting.py a broker's part in it.

Only here and in the pipeline is pyarrow imported, and by a broker only if it has an archive.
"""
