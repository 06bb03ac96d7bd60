"""`dovetail status`, `route` and `spaces`: what a running cluster says of itself, for people.

They ask one node over HTTP, which may ask the others. Nothing here knows a broker.
"""
