"""A node: one process that assembles the parts and runs until it is stopped.

broker.py       a broker: store, core, listeners, HTTP, cluster
broker_views.py what a broker shows over HTTP
logins.py       MQTT clients and users of HTTP log in
http_access.py  which users may do what over HTTP
matcher.py      a matcher: boxes, questions, HTTP, cluster
combined.py     both roles in one process
service.py      event loop, log and signals, which all of them share
"""
