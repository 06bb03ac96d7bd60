"""The Spark data source and sink `format("dovetail")`.

data_source.py  what Spark calls to read
data_sink.py    what Spark calls to publish rows
options.py      the options of the reader
offsets.py      what a batch contains and how it is cut into tasks (pure)
archives.py     an archive in a folder, or at running brokers
checkpoint.py   offsets from Spark's checkpoint
"""
