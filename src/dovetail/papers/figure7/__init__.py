"""The wildcard paper's figure 7: the cost of Bloom filter queries for a broker.

query_cost.py     the points of the figure, their searches, and the evaluation (pure)
search_broker.py  a broker process that runs a chosen search for every PUBLISH
clients.py        one publisher and one subscriber, which measure time
measurement.py    measures one point of the figure
report.py         the page
"""
