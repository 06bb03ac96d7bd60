"""The Spark session and its surroundings, for every job.

spark_session.py  start a session, keep it quiet, end it with its Java process
java.py           find or install a Java runtime
connect.py        a session on a Spark Connect server
resources.py      cores and partitions, with and without Spark Connect
table_files.py    tables of messages and subscriptions: Parquet, JSON lines, CSV
output_folder.py  results that appear whole or not at all
progress.py       a progress bar, or plain lines
failures.py       Spark's errors in plain words
"""
