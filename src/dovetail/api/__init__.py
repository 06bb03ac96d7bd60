"""The data that nodes, commands and jobs exchange over HTTP, and an HTTP client.

This package knows no broker, no Spark and no terminal.

    reports.py        reports of a node (status, routes, spaces, plans) and orders to it
    handles.py        subscriptions that are polled over HTTP
    engine.py         requests of the engine of a space, and the broker's answers
    child_process.py  messages between a supervisor and its child processes
    http_client.py    asks a node; its errors say what to do
"""
