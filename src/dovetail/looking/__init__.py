"""`dovetail status` and `dovetail route`: what a running cluster says of itself, for people.

They ask one node over HTTP, which asks the others. Nothing here knows a broker.
"""
