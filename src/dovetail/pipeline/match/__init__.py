"""Bulk matching: messages x subscriptions -> deliveries, with the kernels of a live matcher.

Read in this order:

    job.py            `dovetail match`: options to files
    bulk.py           two DataFrames to one: `match(...)`, for Spark users
    boxes.py          filters and where-clauses as rows of boxes (no Spark)
    batch_matcher.py  one Arrow batch of messages against these boxes (no Spark)
    texts.py          conditions on strings, for many pairs at once (no Spark)
    arrow_arrays.py   Arrow columns as NumPy arrays (no Spark)
    cut.py            plan how a large set is cut by mPartition (no Spark)
    spread.py         carry that plan out on Spark
"""
