"""A stream that serves spaces instead of live matchers: `engine = "spark"`.

Read in this order:

    query.py            start the query: `serve(spark, url, checkpoint)`
    driver.py           what the driver does with each batch
    cluster_view.py     which brokers there are, and which clauses each lists
    broker_client.py    ask these brokers over HTTP
    clause_shipment.py  clauses of all brokers, shipped to tasks
    task.py             one task: rows of one publishing broker
    clause_matcher.py   which clauses each row satisfies (pure)
    delivery_sender.py  deliver the matches to brokers, in order
    state_file.py       what the stream stores beside Spark's checkpoint
"""
