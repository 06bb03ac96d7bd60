"""The wildcard paper's figure 7: what queries to a Bloom filter cost a broker.

query_cost.py     what is searched, and what the times mean (pure)
search_broker.py  a broker process whose every PUBLISH costs a chosen search
clients.py        one publisher and one subscriber
measurement.py    one point of the figure
report.py         the page
"""
