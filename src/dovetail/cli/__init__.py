"""The command line. A command reads its options, calls one function and prints the result.

A command imports its modules when it runs, so `dovetail --help` waits for neither Numba nor Spark.

    command.py             the `dovetail` command: joins all commands, and prints their errors
    up.py                  up, node
    inspection.py          status, route, spaces, drain
    maintenance.py         config, passwd, backup, repair, compact
    pub_sub.py             pub, sub
    connection_options.py  the options that pub and sub share
    match.py               match
    stream.py              stream
    plan.py                plan
    sketch.py              sketch ...
    option_types.py        types of options with their bounds

`reproduce` is in `papers/reproduce.py`.
"""

from dovetail.cli.command import app, main

__all__ = ["app", "main"]
