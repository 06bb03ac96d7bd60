"""Limits of a node's process."""

DESCRIPTORS_MIN = 256
"""The error about too few file descriptors asks for this many: enough for some hundred clients and
all reserved ones."""

CLIENTS_FEW = 1_000
"""The node logs a warning at the start if its file descriptors allow fewer clients."""

KNOWN_LOGINS_FILE = "logins"
"""The file in the data folder that has the users and addresses of earlier logins."""
