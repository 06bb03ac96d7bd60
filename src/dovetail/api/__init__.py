"""What nodes, commands and jobs say to each other over HTTP, as data.

Types and one client: this package knows no broker, no Spark and no terminal.

    reports.py        status, routes, spaces, plans: what a node reports, and what it is ordered
    handles.py        subscriptions that are polled over HTTP
    engine.py         what a broker and the engine of a space say to each other
    child_process.py  what a supervisor and its child processes say to each other
    http_client.py    ask a node for a report; errors say what to do
"""
