"""The log of a process: lines on standard error, the same for every command that runs a broker."""

import logging
import sys


def set_up_logging(level: str, name: str | None = None) -> None:
    """With `name` each line says who speaks."""
    who = "" if name is None else f"{name}: "
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)-7s {who}%(message)s", "%Y-%m-%d %H:%M:%S")
    )
    root = logging.getLogger("dovetail")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
