"""The archive: publications as Parquet files, that brokers write and Spark jobs read.

    FOLDER/day=2026-11-16/hour=17/BROKER-FIRST-LAST.parquet      rows of that hour (UTC)

files.py has the one rule of what counts, and lists it; rows.py the columns; writing.py puts a file
in its place, and agent.py is a broker's part while it runs. compacting.py makes few files of many.

Only here and in the pipeline is pyarrow imported, and by a broker only if it has an archive.
"""
