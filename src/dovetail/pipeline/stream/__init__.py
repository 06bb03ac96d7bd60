"""`dovetail stream`: matching while messages arrive, with Structured Streaming.

A table gets each batch once. A cluster gets each match at least once. Read in this order:

    job.py                   options to queries: the edge
    queries.py               run queries in one session until they end
    checkpoint_record.py     a checkpoint belongs to one query, and a table to one stream
    archived_messages.py     archived rows as messages
    current_boxes.py         the boxes of the current subscriptions
    subscription_sources.py  subscriptions from files, an archive or a cluster
    broker_subscriptions.py  subscriptions of running brokers, over HTTP
    cluster_spaces.py        spaces of a running cluster
    output.py                the protocol of outputs
    table_output.py          matches as a table
    publish_output.py        matches as publications
    tally.py, lag.py, progress_line.py   how far the stream is
    member.py                the process that `up --pipeline` starts
"""
