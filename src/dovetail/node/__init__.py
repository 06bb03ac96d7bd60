"""A node: one process that assembles the parts and runs until it is stopped.

service.py           event loop, log and signals, which all nodes share
broker.py            a broker: store, core, listeners, HTTP, cluster
broker_views.py      what a broker shows over HTTP
broker_reload.py     changed settings while a broker runs
sys_publisher.py     the `$SYS` topics of a broker
descriptor_check.py  are there enough file descriptors?
logins.py            logins of MQTT clients and HTTP users
http_access.py       permissions of HTTP users
matcher.py           a matcher: boxes, questions, HTTP, cluster
combined.py          both roles in one process
"""
