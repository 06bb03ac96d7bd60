"""Bulk matching: messages x subscriptions -> deliveries, with the kernels of a live matcher.

Read in this order:

    job.py                 `dovetail match`: options to files
    bulk.py                two DataFrames to one: `match(...)`, for Spark users
    boxes.py               filters and where-clauses as rows of boxes (no Spark)
    batch_matcher.py       one Arrow batch of messages against these boxes (no Spark)
    text_conditions.py     conditions on strings, for many pairs at once (no Spark)
    arrow_arrays.py        Arrow columns as NumPy arrays (no Spark)
    index_cache.py         indexes that a worker keeps from task to task (no Spark)
    task_plan.py           plan how mPartition cuts a large set into tasks (no Spark)
    distributed_match.py   carry that plan out on Spark
"""
