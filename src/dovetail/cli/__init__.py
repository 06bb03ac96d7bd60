"""The command line.

    command.py      the `dovetail` command: all commands together, and what is said of errors
    serving.py        up, node
    looking.py        status, route
    upkeep.py         config, passwd, backup
    clients.py        pub, sub             connecting.py   the options that both have
    matching.py       match                streaming.py    stream
    planning.py       plan
    reproduce.py      reproduce ...
    sketch.py         sketch ...
    option.py       kinds of options, so that those that are alike have the same bounds

A command reads its options, calls one function and prints what it says. No command does its work
here, and what it needs is imported when it runs: `dovetail --help` must not wait for Numba or
Spark.
"""

from dovetail.cli.command import app, main

__all__ = ["app", "main"]
